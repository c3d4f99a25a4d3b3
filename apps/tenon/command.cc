// The commands share this. A signal handler sets a flag and writes a byte to a pipe; a thread that waits there does
// everything else.
#include "command.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include "fault_report.h"
#include "output_path.h"

namespace tenon::app {
namespace {

struct StopState {
  std::mutex mutex;
  std::stop_source source;
};
StopState& stop_state() {
  static auto* state = new StopState;  // the thread that waits outlives main
  return *state;
}
// Any thread may be the one that a signal interrupts.
std::atomic<uint32_t> interrupts = 0;
std::atomic<int> ending = 0;  // the process ends with this signal; Ctrl-C may be for an answer alone
static_assert(decltype(interrupts)::is_always_lock_free && decltype(ending)::is_always_lock_free);

// request_stop() is not for signal handlers: a thread waits for the pipe.
int interrupt_pipe[2] = {-1, -1};

void on_interrupt(int signal) {
  // A terminal that goes away tells it more than once: by itself, and through the shell.
  if (signal == SIGHUP && interrupts > 0 && ending == SIGHUP) return;
  if (signal != SIGINT) ending = signal;
  if (++interrupts > 1) {
    say_what_runs();
    leave(128 + signal);
  }
  const char byte = 1;
  static_cast<void>(!write(interrupt_pipe[1], &byte, 1));
}

}  // namespace

ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return kUsage;
    case ErrorCode::kConfig:
      return kConfig;
    case ErrorCode::kPlugin:
      return kPlugin;
    case ErrorCode::kModel:
      return kModel;
    case ErrorCode::kMemory:
      return kMemory;
    case ErrorCode::kIo:
      return kIo;
    case ErrorCode::kRequest:
      return kRequest;
    case ErrorCode::kNumbers:
      return kNumbers;
    case ErrorCode::kInternal:
      return kFailed;
  }
  return kFailed;
}

void PipelineArgs::add_to(CLI::App& app, const std::string& positional) {
  if (!positional.empty()) {
    app.add_option(positional, config,
                   "A pipeline file (.toml), a .gguf or .safetensors file, a Hugging Face folder, or "
                   "synthetic:NAME");
  }
  app.add_option("--set", set, "Override a value of the configuration: --set kv_cache.capacity=4096 (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--plugin-dir", plugin_dirs, "Search this folder for plugins first (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--model-dir", model_dirs, "Search this folder for model families first (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--threads", threads, "Threads that compute (device.threads)")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "Seed of the sampler (sampler.seed)");
  app.add_option("--trace", trace, "Write a trace for Perfetto; .gz compresses it (trace.path)");
  add_force(app, force);
}

std::vector<std::string> PipelineArgs::overrides() const {
  std::vector<std::string> all = set;
  if (threads > 0) all.push_back("device.threads=" + std::to_string(threads));
  if (!seed.empty()) all.push_back("sampler.seed=" + seed);
  if (!trace.empty()) all.push_back("trace.path=" + trace);
  return all;
}

Verbosity& verbosity() {
  static Verbosity value;
  return value;
}

void log_message(uint32_t level, const std::string& message) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                          spdlog::level::warn, spdlog::level::err};
  spdlog::log(kLevels[level < 4 ? level : 3], message);
}

std::stop_token interruption() {
  StopState& state = stop_state();
  static const bool installed = [&state] {
    if (pipe2(interrupt_pipe, O_CLOEXEC) != 0) {
      throw Error(ErrorCode::kIo, std::string("a pipe for signals cannot be made: ") + std::strerror(errno));
    }
    try {
      std::thread([&state] {
        for (char byte = 0; read(interrupt_pipe[0], &byte, 1) == 1;) {
          const std::lock_guard lock(state.mutex);
          state.source.request_stop();
        }
      }).detach();
    } catch (const std::system_error& e) {
      throw Error(ErrorCode::kInternal, "the thread that waits for signals cannot be started: " + e.code().message());
    }
    std::signal(SIGINT, on_interrupt);
    std::signal(SIGTERM, on_interrupt);
    if (std::signal(SIGHUP, on_interrupt) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // it is so under nohup
    return true;
  }();
  static_cast<void>(installed);
  const std::lock_guard lock(state.mutex);
  return state.source.get_token();
}

bool rearm_interruption() {
  if (ending != 0) return false;
  const std::lock_guard lock(stop_state().mutex);
  stop_state().source = std::stop_source();
  interrupts = 0;
  return true;
}

ExitCode interrupted_code() {
  const int signal = ending;
  return signal == SIGTERM ? kTerminated : signal == SIGHUP ? kHungUp : kInterrupted;
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-./=:,+@%") == std::string::npos;
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace tenon::app
