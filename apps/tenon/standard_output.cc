#include "standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "spdlog/spdlog.h"

namespace tenon::app {
namespace {

// Returns why the file could not be written: the reason that writing gives now, or
// gives again if an earlier writing failed.
int reason_of(std::FILE* file) {
  errno = 0;
  if (std::fflush(file) != 0 && errno != 0) return errno;
  if (std::ferror(file) == 0) return 0;
  std::clearerr(file);
  errno = 0;
  if (std::fputc('\n', file) == EOF || std::fflush(file) != 0) return errno != 0 ? errno : EIO;
  return EIO;
}

}  // namespace

void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free is this one. Reading from an input and writing to an output fail with EBADF.
    static_cast<void>(open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY));
  }
}

bool flush_file(std::FILE* file, const std::string& name) {
  const int reason = reason_of(file);
  if (reason == 0) return true;
  spdlog::error("{}: cannot be written: {}", name, reason == EBADF ? "it is closed" : std::strerror(reason));
  return false;
}

bool flush_output() {
  static bool lost = false;
  if (!lost) lost = !flush_file(stdout, "standard output");
  return !lost;
}

bool print_now(std::string_view text) {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stdout));
  return flush_output();
}

}  // namespace tenon::app
