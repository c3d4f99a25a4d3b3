// The commands share these: common options, exit codes, interruption.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "tenon/core/engine.h"
#include "tenon/core/error.h"

namespace tenon::app {

// `tenon --help` has these, too.
enum ExitCode {
  kOk = 0,
  kFailed = 1,    // it is for anything that has no number of its own
  kUsage = 2,     // the command line is wrong
  kConfig = 3,    // a pipeline file or an override is wrong
  kPlugin = 4,    // a plugin is wrong
  kModel = 5,     // weights, tokenizer or architecture are wrong
  kMemory = 6,    // the plan does not fit
  kIo = 7,        // a file cannot be read or written
  kRequest = 8,   // the prompt or a parameter of the request is wrong
  kCrashed = 9,   // a component crashed, ended the process or did not come back
  kShrunk = 10,   // a model's file became shorter, or unreadable, while it was in use
  kNumbers = 11,  // what the model computes is not finite
  // The process ends with what was made until then:
  kHungUp = 129,       // SIGHUP
  kInterrupted = 130,  // Ctrl-C
  kTerminated = 143    // SIGTERM
};
ExitCode exit_code(ErrorCode code);

// Every command that opens a pipeline has these options.
struct PipelineArgs {
  std::string config;  // a pipeline file, a model, or ""
  std::vector<std::string> set;
  std::vector<std::filesystem::path> plugin_dirs, model_dirs;
  int threads = 0;
  bool force = false;  // outputs that are there are replaced
  std::string seed, trace;

  // `positional` is the name of the argument that config is; "" means that there is none.
  void add_to(CLI::App& app, const std::string& positional = "CONFIG_OR_MODEL");
  // Returns the overrides, with the options that stand for overrides turned into them.
  std::vector<std::string> overrides() const;
};

struct Verbosity {
  bool quiet = false, verbose = false;
};
Verbosity& verbosity();  // this process has it; main sets it

// Prints messages of the host and of components to standard error, by level.
void log_message(uint32_t level, const std::string& message);

// The first Ctrl-C, SIGTERM or SIGHUP asks this token to stop; the second Ctrl-C or SIGTERM ends the process at once
// and names the components that ran. Throws Error(kIo) where the system has no room for that.
std::stop_token interruption();
// Makes the next Ctrl-C the first one again, for tokens taken from now on. After SIGTERM and SIGHUP it returns false
// and has no effect: the process is to end.
bool rearm_interruption();
// Returns the exit code of a process that was asked to stop.
ExitCode interrupted_code();

// This is thrown where work ends early that leaves nothing to show; the process ends with interrupted_code().
struct Interrupted {};

// Each adds its command; the returned function runs it if it was chosen.
using Run = std::function<int()>;
Run add_bench(CLI::App& app);
Run add_chat(CLI::App& app);
Run add_embed(CLI::App& app);
Run add_eval(CLI::App& app);
Run add_generate(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_model(CLI::App& app);
Run add_plan(CLI::App& app);
Run add_plugin(CLI::App& app);
Run add_quantize(CLI::App& app);
Run add_serve(CLI::App& app);  // only a build with TENON_SERVE has it
Run add_tokenize(CLI::App& app);
Run add_trace(CLI::App& app);

// Returns "tenon generate --set kv_cache.use=static model.gguf" or the like: words that a shell takes apart again.
std::string shell_line(const std::vector<std::string>& words);

}  // namespace tenon::app
