// On a terminal, a line on standard error shows how far long work is; elsewhere there is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tenon::app {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  // Prints at most ten times a second, and not before half a second. `detail` stands after the share.
  void update(uint64_t done, uint64_t total, const std::string& detail = "");
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  Clock::time_point start_ = Clock::now(), last_ = start_;
  bool enabled_, shown_ = false;
};

}  // namespace tenon::app
