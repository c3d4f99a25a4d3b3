#include "text_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "spdlog/spdlog.h"
#include "tenon/core/error.h"

namespace tenon::app {
namespace {

[[noreturn]] void fail(const std::string& name) {
  throw Error(ErrorCode::kIo, {name, 0, 0}, std::string("cannot be read: ") + std::strerror(errno));
}

std::string read_all(int descriptor, const std::string& name, uint64_t limit) {
  constexpr size_t kPiece = size_t{1} << 20U;
  std::string text;
  while (text.size() <= limit) {
    const size_t before = text.size();
    text.resize(before + std::min<uint64_t>(kPiece, limit + 1 - before));
    const ssize_t count = read(descriptor, text.data() + before, text.size() - before);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(name);
    if (count == 0) return text;
  }
  throw Error(ErrorCode::kRequest, {name, 0, 0},
              "has more than " + in_mebibytes(limit) + ", the most that is read of it");
}

class Descriptor {
 public:
  // Opening a pipe without a writer would wait, in silence.
  explicit Descriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail(path);
    struct stat info {};
    if (fstat(fd_, &info) != 0) fail(path);
    if (S_ISFIFO(info.st_mode)) wait_for_writer(path);
    fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
  }
  ~Descriptor() { close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }

 private:
  void wait_for_writer(const std::string& path) const {
    constexpr int kPatienceMs = 500;
    pollfd pipe{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&pipe, 1, kPatienceMs) != 0) return;
    spdlog::warn("{} is a pipe; waiting for what is written to it", path);
    while (poll(&pipe, 1, -1) < 0 && errno == EINTR) {
    }
  }

  int fd_;
};

}  // namespace

std::string in_mebibytes(uint64_t bytes) {
  return std::to_string(bytes >> 20U) + " MiB";
}

std::string text_of_file(const std::string& path, uint64_t limit) {
  const Descriptor file(path);
  return read_all(file.get(), path, limit);
}

std::string text_of_input(uint64_t limit) {
  return read_all(STDIN_FILENO, "standard input", limit);
}

}  // namespace tenon::app
