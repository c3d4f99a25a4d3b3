// `tenon generate` runs one request, prints its text as it comes, and ends with a line that repeats it. Standard output
// has the text, or JSON, and nothing else. A prompt of standard input is in the line if a command line has room for it.
#include <cstdio>
#include <optional>

#include "chat_args.h"
#include "command.h"
#include "fault_report.h"
#include "grammar_args.h"
#include "json_text.h"
#include "progress.h"
#include "report.h"
#include "session_args.h"
#include "sha256.h"
#include "spdlog/spdlog.h"
#include "standard_output.h"
#include "tensor_dump.h"
#include "text_input.h"
#include "traced_engine.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  DumpArgs dump;
  std::optional<std::string> prompt;
  std::string prompt_file;
  uint32_t max_new_tokens = 256;
  std::vector<std::string> stop;
  GrammarArgs grammar;
  ChatArgs chat_args;
  SessionArgs session;
  bool chat = false, json = false, ignore_end = false, parse_special = false;
  uint32_t logprobs = 0;
  double step_limit = 0;
  bool prompt_is_input = false;  // true: the prompt was read from standard input
};

constexpr const char* kGenerateFooter =
    "The last line on standard error ends with the command that gives the same text again, with every option that was\n"
    "given but --trace, --save-session, --force, --step-limit and what begins with --dump. A prompt has 64 MiB at "
    "most.";

// Puts a prompt that was read from standard input into the arguments, if a command line has room for it.
Args with_prompt(Args args) {
  constexpr size_t kOnACommandLine = size_t{64} << 10U;
  if (args.prompt || !args.prompt_file.empty()) return args;
  args.prompt = text_of_input(kPromptBytes);
  args.prompt_is_input = args.prompt->size() > kOnACommandLine || args.prompt->find('\0') != std::string::npos;
  return args;
}

Request make_request(const Args& args) {
  Request request;
  const std::string prompt = args.prompt ? *args.prompt : text_of_file(args.prompt_file, kPromptBytes);
  if (args.chat) {
    const std::string& system = args.chat_args.system;
    if (!system.empty()) request.chat.push_back({"system", system});
    request.chat.push_back({"user", prompt});
    request.chat_options = args.chat_args.options();
  } else {
    request.prompt = prompt;
  }
  request.parse_special = args.parse_special;
  request.max_new_tokens = args.max_new_tokens;
  request.stop = args.stop;
  request.ignore_end = args.ignore_end;
  request.logprobs = args.logprobs > 0;
  request.top_logprobs = args.logprobs;
  args.session.put_into(request);
  request.cancel = interruption();
  return request;
}

// Returns the command that gives the same text. A prompt of standard input that no command line can have is not in it.
std::vector<std::string> line_words(const Engine& engine, const Args& args) {
  std::vector<std::string> words = reproducing_words(engine, "generate", args.pipeline);
  const auto add = [&](const char* option, const std::string& value) {
    if (value.starts_with('-')) {  // option and value are one word, or the value would be taken for an option
      words.push_back(std::string(option) + '=' + value);
    } else {
      words.insert(words.end(), {option, value});
    }
  };
  if (args.chat) words.push_back("--chat");
  for (const auto& [option, value] : args.chat_args.words()) add(option, value);
  if (args.chat_args.hide_thoughts) words.push_back("--hide-thoughts");
  if (args.prompt && !args.prompt_is_input) add("--prompt", *args.prompt);
  if (!args.prompt_file.empty()) add("--prompt-file", args.prompt_file);
  if (!args.session.load.empty()) add("--load-session", args.session.load);
  if (args.parse_special) words.push_back("--parse-special");
  words.insert(words.end(), {"--max-new-tokens", std::to_string(args.max_new_tokens)});
  for (const std::string& stop : args.stop) add("--stop", stop);
  for (const auto& [option, value] : args.grammar.words()) add(option, value);
  if (args.ignore_end) words.push_back("--ignore-end");
  if (args.logprobs > 0) words.insert(words.end(), {"--logprobs", std::to_string(args.logprobs)});
  if (args.json) words.push_back("--json");
  return words;
}

std::string result_line(Engine& engine, const Args& args, const Result& result, const RunStats& s) {
  const MemoryUse memory = memory_use(engine.pipeline());
  std::string drafts, reused;
  const char* const from = args.session.load.empty() ? "cache" : "session";
  if (s.reused > 0) reused = fmt::format(", {} tok from the {}", s.reused, from);
  if (s.drafted > 0) drafts = fmt::format(", drafts {} of {} accepted", s.accepted, s.drafted);
  return fmt::format(
      "prompt {} tok {:.0f} tok/s{} | new {} tok {:.1f} tok/s {:.1f} GB/s{} | planned {} allocated {} resident {} | "
      "hash "
      "{} | {}",
      s.prompt_tokens, per_second(static_cast<double>(s.prompt_tokens), s.prompt_seconds), reused, s.new_tokens,
      per_second(static_cast<double>(s.decode_tokens), s.decode_seconds), decode_gbps(s), drafts,
      format_bytes(memory.planned), format_bytes(memory.allocated), format_bytes(memory.resident),
      output_hash(result.tokens), shell_line(line_words(engine, args)));
}

boost::json::object result_json(Engine& engine, const Args& args, const Result& result, const RunStats& stats) {
  boost::json::object out = {{"text", result.text},
                             {"finish", to_string(result.finish)},
                             {"prompt_tokens", boost::json::value_from(result.prompt_tokens)},
                             {"tokens", boost::json::value_from(result.tokens)},
                             {"hash", output_hash(result.tokens)},
                             {"model", engine.config().model.path},
                             {"seed", engine.config().seed},
                             {"stats", to_json(stats)},
                             {"memory", to_json(memory_use(engine.pipeline()))},
                             {"plan", to_json(engine.pipeline().plan())}};
  if (boost::json::value session = args.session.to_json(result); !session.is_null())
    out["session"] = std::move(session);
  if (args.logprobs > 0) {
    boost::json::array logprobs;
    for (const Logprob& l : result.logprobs)
      logprobs.push_back(boost::json::object{{"id", l.id}, {"logprob", l.value}});
    out["logprobs"] = std::move(logprobs);
  }
  return out;
}

EngineOptions engine_options(const Args& args, bool grammars) {
  EngineOptions options;
  options.grammars = grammars;
  args.session.allow(options);
  options.all_rows = !args.dump.tensors.empty();
  return options;
}

int run(const Args& given) {
  Args args = with_prompt(given);
  args.session.open(std::vector{args.pipeline.config, args.prompt_file}, args.pipeline.force);
  Request request = make_request(args);
  TensorDump dump(args.dump, args.pipeline.force);
  const std::optional<GrammarText> grammar = args.grammar.text();
  TracedEngine traced_engine(args.pipeline, engine_options(args, grammar.has_value()));
  if (grammar) request.grammar = traced_engine.engine().compile(*grammar);
  args.session.check(traced_engine.engine(), args.pipeline.force);
  dump.attach(traced_engine.engine().pipeline());
  traced_engine.load();
  Progress progress("prompt");
  StepLimit limit(args.step_limit);
  request.on_prompt = [&](uint32_t done, uint32_t total) {
    limit.beat();
    progress.update(done, total);
    if (done >= total) progress.finish();
  };
  ShownAnswer answer = args.chat_args.shown_answer(traced_engine.engine(), request);
  request.on_token = [&](const Token& token) {
    limit.beat();
    return args.json || print_now(answer.add(token.text, false));
  };
  RunStats stats;
  Result result = traced_engine.engine().generate(request, &stats);
  result.text = answer.whole(result.text);
  const bool written = print_now(
      (args.json ? json_text(result_json(traced_engine.engine(), args, result, stats)) : answer.add("", true)) + "\n");
  args.session.finish(result, args.pipeline.force);
  if (!verbosity().quiet)
    std::fprintf(stderr, "%s\n", result_line(traced_engine.engine(), args, result, stats).c_str());
  const bool traced = traced_engine.finish_trace();
  if (!interruption().stop_requested()) dump.finish();
  if (interruption().stop_requested()) return interrupted_code();
  return written && traced ? kOk : kIo;
}

}  // namespace

Run add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Continue a prompt. Only the text goes to standard output.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  auto* prompt =
      command->add_option("-p,--prompt", args->prompt, "The prompt; without it and --prompt-file, standard input");
  command->add_option("-f,--prompt-file", args->prompt_file, "Read the prompt from a file")->excludes(prompt);
  command->add_option("-n,--max-new-tokens", args->max_new_tokens, "Tokens to generate at most")->capture_default_str();
  command->add_option("--stop", args->stop, "End before this text appears (repeatable)")->allow_extra_args(false);
  args->grammar.add_to(*command);
  command->add_flag("--parse-special", args->parse_special,
                    "Names of special tokens in the prompt mean those tokens; else they are text");
  command->add_flag("--ignore-end", args->ignore_end, "Go on past end-of-text tokens");
  auto* chat =
      command->add_flag("--chat", args->chat, "Put the prompt as a user's message into the model's chat template");
  for (CLI::Option* option : args->chat_args.add_to(*command)) option->needs(chat);
  command->add_option("--logprobs", args->logprobs, "With --json: log probabilities, of so many likeliest tokens")
      ->check(CLI::Range(0, 64));
  command->add_flag("--json", args->json, "One JSON object instead of the text");
  args->session.add_to(*command);
  args->dump.add_to(*command);
  add_step_limit(*command, args->step_limit);
  command->footer(kGenerateFooter);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
