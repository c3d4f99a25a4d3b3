// Runs a function in a child process, and returns its text, its exception, or how it died. The child has a session of
// its own, so that whatever it starts ends with it. The pipe is read until the child is dead, not until it is closed:
// others may hold it open.
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "tenon/core/error.h"
#include "tenon/core/plugin_check.h"

namespace tenon {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMaxText = 1 << 20;

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::kIo, std::string(what) + ": " + std::strerror(errno));
}

void write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR) return;
    if (n > 0) at += static_cast<size_t>(n);
  }
}

[[noreturn]] void be_the_child(const std::function<std::string()>& work, int to_parent) {
  // The child gets a session and a group of its own, so that what it starts ends with it.
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  // The first byte tells a result from an exception.
  try {
    write_all(to_parent, '=' + work());
  } catch (const Error& e) {
    write_all(to_parent, '!' + e.diagnostics().front().message);
  } catch (const std::exception& e) {
    write_all(to_parent, std::string("!") + e.what());
  } catch (...) {
    write_all(to_parent, "!an exception that is no std::exception");
  }
  _exit(0);
}

// Reads everything that is there now; returns false if nothing will follow.
bool read_available(int fd, std::string& text) {
  char buffer[4096];
  while (text.size() < kMaxText) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0;
    text.append(buffer, static_cast<size_t>(n));
  }
  return false;
}

// Reads everything that the child writes until it is dead, whoever else may hold the pipe; false if time was up first.
bool read_until_dead(int fd, int process, Clock::time_point deadline, std::string& text) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wanted[] = {{fd, POLLIN, 0}, {process, POLLIN, 0}};
    const int ready = poll(wanted, 2, static_cast<int>(std::max<int64_t>(0, left)));
    if (ready == 0) return false;
    if (ready < 0 && errno != EINTR) fail("waiting for a child process");
    if (ready < 0) continue;
    if (fd >= 0 && !read_available(fd, text)) fd = -1;  // poll() passes over it
    if (wanted[1].revents != 0 || (fd < 0 && process < 0)) return true;
  }
}

std::string seconds(std::chrono::milliseconds limit) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", std::chrono::duration<double>(limit).count());
  return text;
}

}  // namespace

ChildOutcome run_in_child(const std::function<std::string()>& work, std::chrono::milliseconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("making a pipe");
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    fail("starting a child process");
  }
  if (child == 0) {
    close(ends[0]);
    be_the_child(work, ends[1]);
  }
  close(ends[1]);
  const int process = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  std::string text;
  const bool in_time = read_until_dead(ends[0], process, Clock::now() + limit, text);
  close(ends[0]);
  close(process);
  // Processes that the child has started go too, before its number is anybody else's.
  kill(-child, SIGKILL);
  kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  using End = ChildOutcome::End;
  if (!in_time) return {End::kTimedOut, "gave no answer within " + seconds(limit)};
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return {End::kCrashed, "crashed with signal " + std::to_string(signal) + " (" + strsignal(signal) + ')'};
  }
  if (text.empty()) return {End::kCrashed, "ended its process with exit code " + std::to_string(WEXITSTATUS(status))};
  return {text.front() == '=' ? End::kReturned : End::kThrew, text.substr(1)};
}

}  // namespace tenon
