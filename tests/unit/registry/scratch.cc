#include "scratch.h"

#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace tenon::test {

namespace fs = std::filesystem;

fs::path bad_plugin(const std::string& name) {
  return fs::path(TENON_BAD_PLUGINS) / name / (name + ".cpu.so");
}

std::vector<std::byte> contents_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

Scratch::Scratch() {
  std::string name = fs::canonical(fs::temp_directory_path()) / "tenon-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path Scratch::copy(const fs::path& from, const std::string& to) const {
  return write(to, contents_of(from));
}

fs::path Scratch::write(const std::string& to, const std::vector<std::byte>& bytes) const {
  return write(to, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

fs::path Scratch::write(const std::string& to, const std::string& text) const {
  const fs::path file = path_ / to;
  fs::create_directories(file.parent_path());
  fs::permissions(file.parent_path(), fs::perms::owner_all | fs::perms::group_read | fs::perms::others_read);
  std::ofstream(file, std::ios::binary) << text;
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  return file;
}

}  // namespace tenon::test
