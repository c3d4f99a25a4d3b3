// A whole GGUF model runs, from its file to two steps. An input is what stands before the tensors' data, and a word of
// four bytes: how much data follows (24 bits) and which pipeline runs it. The data is made up, so that inputs are small
// and mutations meet what decides.
#include <cstdint>
#include <cstring>

#include "run_model.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr size_t kWord = 4, kAlignment = 32, kMostData = size_t{256} << 10;

// This finds where the header's numbers are: counts, types, values, dimensions, offsets.
// It reads as far as the header makes sense.
class Numbers {
 public:
  struct Place {
    size_t at, bytes;
  };
  Numbers(const uint8_t* data, size_t size) : data_(data), size_(size) {
    at_ = 8;
    const uint64_t tensors = number(8), pairs = number(8);
    for (uint64_t i = 0; i < pairs && good_; ++i) {
      text();
      value(static_cast<uint32_t>(number(4)));
    }
    for (uint64_t i = 0; i < tensors && good_; ++i) {
      text();
      const uint64_t dims = number(4);
      for (uint64_t d = 0; d < dims && d < 8 && good_; ++d) number(8);
      number(4);
      number(8);
    }
  }
  const std::vector<Place>& places() const { return places_; }

 private:
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    good_ = good_ && size_ - at_ >= bytes;
    if (!good_) return 0;
    std::memcpy(&value, data_ + at_, bytes);
    places_.push_back({at_, bytes});
    at_ += bytes;
    return value;
  }
  void text() {
    const uint64_t length = number(8);
    good_ = good_ && length <= size_ - at_;
    if (good_) at_ += length;
  }
  void value(uint32_t type) {
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == 8) return text();
    if (type == 9) {
      const auto of = static_cast<uint32_t>(number(4));
      const uint64_t count = number(8);
      for (uint64_t i = 0; i < count && good_; ++i) value(of);
      return;
    }
    good_ = good_ && type < 13;
    if (good_) number(kBytes[type]);
  }

  const uint8_t* data_;
  size_t size_, at_ = 0;
  bool good_ = true;
  std::vector<Place> places_;
};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (size < 32 || seed % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const Numbers numbers(data, size);
  if (numbers.places().empty()) return LLVMFuzzerMutate(data, size, max_size);
  uint64_t random = seed * 0x9E3779B97F4A7C15U;
  const auto draw = [&](uint64_t below) {
    random = random * 6364136223846793005U + 1442695040888963407U;
    return (random >> 33) % below;
  };
  const Numbers::Place place = numbers.places()[draw(numbers.places().size())];
  uint64_t old = 0;
  std::memcpy(&old, data + place.at, place.bytes);
  const uint64_t candidates[] = {0,
                                 1,
                                 2,
                                 old + 1,
                                 old - 1,
                                 old * 2,
                                 old / 2,
                                 old + 32,
                                 ~0ULL,
                                 1ULL << 31,
                                 1ULL << 32,
                                 1ULL << 63,
                                 0x7FC00000,
                                 draw(64),
                                 0x7FFFFFFF,
                                 0xFFFFFFFF,
                                 old ^ (1ULL << draw(64))};
  const uint64_t fresh = candidates[draw(std::size(candidates))];
  std::memcpy(data + place.at, &fresh, place.bytes);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tenon::fuzz::MemoryFile file;
  static const std::string pool = tenon::fuzz::made_up_data(kMostData);
  if (size < kWord) return 0;
  uint32_t word = 0;
  std::memcpy(&word, data + size - kWord, kWord);
  std::string bytes(reinterpret_cast<const char*>(data), size - kWord);
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
  bytes += pool.substr(0, std::min<size_t>(word & 0xFFFFFFU, kMostData));
  file.assign(bytes);
  try {
    tenon::fuzz::run_model(file.path(), word >> 24);
  } catch (const tenon::Error&) {
  }
  return 0;
}
