// Signal handlers here call nothing but what POSIX allows in them: they write texts that were there before and end.
#include "fault_report.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "command.h"

namespace tenon::app {
namespace {

pid_t process = 0;  // this process asked for the reports; one that it forks may do otherwise

template <class... Texts>
void say(Texts... texts) noexcept {
  for (const char* text : {static_cast<const char*>(texts)...}) {
    if (text != nullptr) static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text)));
  }
}

// Writes a line such as "layers.3.mlp: quantization.none CRASHED in gemv".
void say_place(const Whereabouts& at, const char* verb) noexcept {
  const bool module = at.module != nullptr && *at.module != '\0';
  say(module ? at.module : "", module ? ": " : "", at.component, verb, at.function);
}

const char* name_of(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "SIGSEGV";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    case SIGABRT:
      return "SIGABRT";
    case SIGSYS:
      return "SIGSYS";
    default:
      return "a signal";
  }
}

void report_mapping(const MappedPlace& file) noexcept {
  struct stat now {};
  const bool shorter = fstat(file.descriptor, &now) == 0 && static_cast<uint64_t>(now.st_size) < file.size;
  say("\n", file.path, ": error: ",
      shorter ? "the file was made shorter while it was in use; what it held is gone\n"
              : "the file can no longer be read: its disk or its network failed\n");
}

std::atomic<pid_t> reporter = 0;  // this thread reports the fault that ends the process

void on_fault(int signal, siginfo_t* info, void*) {
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  pid_t first = 0;
  const bool reports = reporter.compare_exchange_strong(first, self);
  while (!reports && first != self) pause();  // several threads read one file: the first one that faults ends them all
  if (reports && getpid() == process) {
    if (signal == SIGBUS) {
      const MappedPlace file = mapped_file_at(info->si_addr);
      if (file.path != nullptr) {
        report_mapping(file);
        leave(kShrunk);
      }
    }
    const Whereabouts at = whereabouts();
    if (at.component != nullptr) {
      say("\nerror: ");
      say_place(at, " crashed in ");
      say(" (", name_of(signal), ")\n");
      leave(kCrashed);
    }
  }
  std::signal(signal, SIG_DFL);
  raise(signal);  // this kills the process
}

void refuse_exit() noexcept {
  const Whereabouts at = getpid() == process ? whereabouts() : Whereabouts();
  if (at.component == nullptr) return;
  say("\nerror: ");
  say_place(at, " ended the process in ");
  say("\n");
  leave(kCrashed);
}

}  // namespace

void leave(int code) noexcept {
  syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

void install_fault_reports() {
  static const SignalStack kStack;
  process = getpid();
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS}) {
    struct sigaction before {};
    if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;  // a sanitizer has it
    struct sigaction ours {};
    ours.sa_sigaction = &on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(signal, &ours, nullptr);
  }
  std::atexit(&refuse_exit);
  at_quick_exit(&refuse_exit);
}

void say_what_runs() noexcept {
  Whereabouts all[16];
  const size_t count = threads_in_components(all);
  for (size_t i = 0; i < count; ++i) {
    bool said = false;
    for (size_t j = 0; j < i; ++j)
      said = said || (all[j].module == all[i].module && all[j].function == all[i].function);
    if (said) continue;
    say("running: ");
    say_place(all[i], " in ");
    say("\n");
  }
}

void add_step_limit(CLI::App& command, double& seconds) {
  command
      .add_option("--step-limit", seconds,
                  "Seconds that a step may take, for components that might not come back; then the process ends and "
                  "names what ran. 0 = no limit")
      ->check(CLI::NonNegativeNumber);
}

StepLimit::StepLimit(double seconds) : seconds_(seconds) {
  if (seconds > 0) watcher_ = std::thread([this] { watch(); });
}

StepLimit::~StepLimit() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  watcher_.join();
}

void StepLimit::beat() {
  if (seconds_ <= 0) return;
  {
    const std::lock_guard lock(mutex_);
    ++beats_;
  }
  changed_.notify_one();
}

void StepLimit::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const uint64_t before = beats_;
    const auto over = [&] { return ended_ || beats_ != before; };
    if (changed_.wait_for(lock, std::chrono::duration<double>(seconds_), over)) continue;
    say("\nerror: a step took longer than --step-limit allows\n");
    say_what_runs();
    leave(kCrashed);
  }
}

}  // namespace tenon::app

// A component that ends the process by these would leave without a word and perhaps with the code of success. The
// definitions of a program come before those of the C library for all that it loads.
extern "C" {
[[gnu::noreturn, gnu::visibility("default")]] void _exit(int code) {
  tenon::app::refuse_exit();
  tenon::app::leave(code);
}
[[gnu::noreturn, gnu::visibility("default")]] void _Exit(int code) {
  _exit(code);
}
}
