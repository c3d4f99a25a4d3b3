// A whole model of a Hugging Face folder runs, from its files to two steps. An input is config.json, the header of
// model.safetensors and three digits of base 64 from '0' on, each part ended by a byte 0: how much data follows the
// header, in units of 64 bytes by two digits, and which pipeline runs it.
#include <cctype>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "run_model.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostData = size_t{256} << 10;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = fs::exists("/dev/shm") ? "/dev/shm/tenon_fuzz_XXXXXX" : "/tmp/tenon_fuzz_XXXXXX";
    tenon::fuzz::require(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  void write(const char* file, std::string_view bytes) const {
    std::ofstream(path / file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
};

}  // namespace

// Three times of four another number takes the place of one in the texts: JSON that is broken gets nowhere.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<std::pair<size_t, size_t>> numbers;
  for (size_t i = 0; i < size; ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) continue;
    const size_t begin = i;
    while (i < size && (std::isdigit(static_cast<unsigned char>(text[i])) != 0 || text[i] == '.')) ++i;
    numbers.emplace_back(begin, i - begin);
  }
  if (numbers.empty()) return LLVMFuzzerMutate(data, size, max_size);
  const auto [at, length] = numbers[(seed >> 2) % numbers.size()];
  const uint64_t old = std::strtoull(text.c_str() + at, nullptr, 10);
  const std::string candidates[] = {"0",
                                    "1",
                                    "2",
                                    "-1",
                                    "1e9",
                                    "0.5",
                                    "2147483648",
                                    "18446744073709551615",
                                    "null",
                                    "1e-300",
                                    "true",
                                    "\"a\"",
                                    "[1]",
                                    "{}",
                                    std::to_string(old + 1),
                                    std::to_string(old - 1),
                                    std::to_string(old * 2),
                                    std::to_string(old / 2),
                                    std::to_string(old + 32)};
  text.replace(at, length, candidates[(seed >> 12) % std::size(candidates)]);
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  static const std::string pool = tenon::fuzz::made_up_data(kMostData);
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t first = all.find('\0');
  const size_t second = first == all.npos ? all.npos : all.find('\0', first + 1);
  if (second == all.npos || all.size() < second + 4) return 0;
  const auto digit = [&](size_t i) { return static_cast<size_t>(std::clamp(all[second + 1 + i] - '0', 0, 63)); };
  const std::string_view header = all.substr(first + 1, second - first - 1);
  std::string weights;
  for (size_t i = 0; i < 8; ++i) weights += static_cast<char>(header.size() >> (8 * i) & 0xFFU);
  weights += header;
  weights += pool.substr(0, std::min(kMostData, (digit(0) * 64 + digit(1)) * 64));
  folder.write("config.json", all.substr(0, first));
  folder.write("model.safetensors", weights);
  try {
    tenon::fuzz::run_model(folder.path, digit(2));
  } catch (const tenon::Error&) {
  }
  return 0;
}
