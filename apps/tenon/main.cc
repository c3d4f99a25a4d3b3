// The program runs one command. Around every command stand the log, what signals do, and an exit code for each way to
// end, which `tenon --help` lists. Where memory has run out, nothing allocates any more.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "command.h"
#include "fault_report.h"
#include "output_path.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"
#include "standard_output.h"
#include "tune.h"

namespace {

constexpr const char* kFooter = R"(Examples:
  tenon generate models/SmolLM2-135M-Instruct.Q4_1.gguf --chat -p "Why is the sky blue?"
  tenon plan configs/smollm2.toml
  tenon bench synthetic:llama-3.2-1b --set quantization.use=int8wo

Exit codes: 0 done; 1 failed otherwise; 2 command line; 3 configuration; 4 plugin; 5 model; 6 memory; 7 file;
8 request (prompt, parameters); 9 a component crashed, ended the process or did not come back; 10 a model's file
became shorter while it was in use; 11 numbers that are not finite; with what was made until then: 129 hung up,
130 interrupted by Ctrl-C, 143 terminated.)";

constexpr const char* kOutOfMemory = "error: out of memory\n";

void set_up_log() {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("tenon", sink);
  logger->set_pattern("%l: %v");
  spdlog::set_default_logger(logger);
}

void set_level() {
  const tenon::app::Verbosity& v = tenon::app::verbosity();
  spdlog::set_level(v.quiet ? spdlog::level::warn : v.verbose ? spdlog::level::debug : spdlog::level::info);
}

// Writing fails instead, and is named: to a pipe that nobody reads, beyond the size that files may have.
void take_signals_as_errors() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

// Returns the exit code of a command that has ended with `code`: what it printed has to have arrived.
int ended(int code) {
  using namespace tenon::app;
  const bool stopped = code == kInterrupted || code == kTerminated || code == kHungUp;
  return flush_output() || stopped ? code : kIo;
}

std::terminate_handler end_otherwise = nullptr;

// The parsers of options and of TOML allocate in functions that let no exception out.
void end_without_memory() {
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      std::fputs(kOutOfMemory, stderr);
      if (const char* const file = tenon::app::unfinished_output) unlink(file);
      std::_Exit(tenon::app::kMemory);
    } catch (...) {
    }
  }
  end_otherwise();
}

int run_command(int argc, char** argv) {
  using namespace tenon::app;
  set_up_log();
  CLI::App app("Tenon: language models as pipelines of exchangeable parts.", "tenon");
  app.footer(kFooter);
  app.set_version_flag("--version", TENON_VERSION);
  app.require_subcommand(0, 1);
  app.add_flag("-q,--quiet", verbosity().quiet, "Warnings and errors only");
  app.add_flag("-v,--verbose", verbosity().verbose, "Say more");
  app.fallthrough();
  std::vector<Run> commands = {add_generate(app), add_chat(app),  add_bench(app),   add_eval(app),
                               add_embed(app),    add_plan(app),  add_inspect(app), add_quantize(app),
                               add_tokenize(app), add_trace(app), add_plugin(app),  add_model(app),
                               add_tune(app)};
#ifdef TENON_SERVE
  commands.push_back(add_serve(app));
#endif
  try {
    app.parse(argc, argv);  // a word that is no command is named so; requiring one would hide it
    if (app.get_subcommands().empty()) throw CLI::RequiredError::Subcommand(1);
    set_level();
    for (const Run& run : commands) {
      const int code = run();
      if (code >= 0) return ended(code);
    }
    return kUsage;
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? ended(kOk) : kUsage;
  } catch (const Interrupted&) {
    return interrupted_code();
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tenon::app;
  hold_standard_descriptors();
  take_signals_as_errors();
  install_fault_reports();
  end_otherwise = std::set_terminate(end_without_memory);
  // Nothing from here on allocates: memory may be what there is none of.
  try {
    return run_command(argc, argv);
  } catch (const tenon::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return exit_code(e.code());
  } catch (const std::bad_alloc&) {
    std::fputs(kOutOfMemory, stderr);
    return kMemory;
  } catch (const std::system_error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return e.code() == std::errc::not_enough_memory ? kMemory : kIo;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return kFailed;
  }
}
