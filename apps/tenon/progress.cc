#include "progress.h"

#include <unistd.h>

#include <cstdio>

#include "command.h"

namespace tenon::app {

Progress::Progress(std::string what)
    : what_(std::move(what)), enabled_(isatty(STDERR_FILENO) != 0 && !verbosity().quiet) {}

Progress::~Progress() {
  finish();
}

void Progress::update(uint64_t done, uint64_t total, const std::string& detail) {
  const Clock::time_point now = Clock::now();
  if (!enabled_ || total == 0 || now - start_ < std::chrono::milliseconds(500)) return;
  if (shown_ && done < total && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  std::fprintf(stderr, "\r%s %3.0f %%%s%s\033[K", what_.c_str(),
               100.0 * static_cast<double>(done) / static_cast<double>(total), detail.empty() ? "" : "  ",
               detail.c_str());
  std::fflush(stderr);
}

void Progress::finish() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace tenon::app
