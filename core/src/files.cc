#include "tenon/core/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "last_error.h"

namespace tenon {
namespace {

// This is not a stream of the standard library, since those say that something went wrong, and not what.
class Descriptor {
 public:
  explicit Descriptor(const char* path) : number_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

std::string read_start(int file, uint64_t most, std::error_code& error) {
  constexpr uint64_t kPiece = 1U << 16U;
  std::string text;
  ssize_t got = 1;
  while (got > 0 && text.size() < most) {
    const size_t before = text.size();
    text.resize(before + std::min(std::max<uint64_t>(kPiece, before), most - before));
    do got = ::read(file, text.data() + before, text.size() - before);
    while (got < 0 && errno == EINTR);
    if (got < 0) error = last_error();
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  }
  return error ? std::string() : text;
}

}  // namespace

std::string read_start(const std::filesystem::path& path, uint64_t most, std::error_code& error) {
  error.clear();
  const Descriptor file(path.c_str());
  if (file.number() >= 0) return read_start(file.number(), most, error);
  error = last_error();
  return {};
}

std::vector<std::string> names_in_folder(const std::filesystem::path& folder, std::error_code& error) {
  error.clear();
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
  errno = entries ? 0 : errno;
  while (const dirent* const entry = entries ? ::readdir(entries.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  if (errno != 0) {
    error = last_error();
    names.clear();
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tenon
