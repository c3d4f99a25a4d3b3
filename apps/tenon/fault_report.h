// Faults of components, of mapped files and of steps without end: a message that names them, and an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "tenon/core/fault.h"

namespace tenon::app {

// Main calls this once. From then on a signal that would kill the process, and exit() within a component, end it with a
// message: with kCrashed if a thread is in a component, with kShrunk if pages of a mapped file are gone. A signal
// elsewhere kills the process as ever, and so does one in a process that was forked.
void install_fault_reports();

// Names on standard error the components that threads are in, if there are any. Async-signal-safe.
void say_what_runs() noexcept;

// Ends the process, wherever its threads are. _exit() would take it for a component's. Async-signal-safe.
[[noreturn]] void leave(int code) noexcept;

// Adds the option --step-limit of a command that generates.
void add_step_limit(CLI::App& command, double& seconds);

// Ends the process with kCrashed and the names of what runs when a step takes too long. It does nothing without a
// limit.
class StepLimit {
 public:
  explicit StepLimit(double seconds);  // 0 = no limit
  ~StepLimit();
  StepLimit(const StepLimit&) = delete;
  StepLimit& operator=(const StepLimit&) = delete;

  void beat();  // a step has ended

 private:
  void watch();

  double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t beats_ = 0;
  bool ended_ = false;
  std::thread watcher_;
};

}  // namespace tenon::app
