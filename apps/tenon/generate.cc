#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "command.h"
#include "json_text.h"
#include "progress.h"
#include "report.h"
#include "session.h"
#include "sha256.h"
#include "spdlog/spdlog.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  std::string prompt, prompt_file, system;
  uint32_t max_new_tokens = 256;
  std::vector<std::string> stop;
  bool chat = false, json = false, ignore_end = false;
  uint32_t logprobs = 0;
};

std::string read_prompt(const Args& args) {
  if (!args.prompt.empty()) return args.prompt;
  if (args.prompt_file.empty()) return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(args.prompt_file, std::ios::binary);
  if (!file) throw Error(ErrorCode::kIo, {args.prompt_file, 0, 0}, "cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

Request make_request(const Args& args) {
  Request request;
  const std::string prompt = read_prompt(args);
  if (args.chat) {
    if (!args.system.empty()) request.chat.push_back({"system", args.system});
    request.chat.push_back({"user", prompt});
  } else {
    request.prompt = prompt;
  }
  request.max_new_tokens = args.max_new_tokens;
  request.stop = args.stop;
  request.ignore_end = args.ignore_end;
  request.logprobs = args.logprobs > 0;
  request.top_logprobs = args.logprobs;
  request.cancel = interruption();
  return request;
}

std::string result_line(Engine& engine, const Args& args, const Result& result, const RunStats& s) {
  const MemoryUse memory = memory_use(engine.pipeline());
  std::vector<std::string> words = reproducing_words(engine, "generate");
  if (args.chat) words.push_back("--chat");
  if (!args.system.empty()) words.insert(words.end(), {"--system", args.system});
  if (!args.prompt.empty()) words.insert(words.end(), {"--prompt", args.prompt});
  if (!args.prompt_file.empty()) words.insert(words.end(), {"--prompt-file", args.prompt_file});
  words.insert(words.end(), {"--max-new-tokens", std::to_string(args.max_new_tokens)});
  std::string drafts;
  if (s.drafted > 0) drafts = fmt::format(", drafts {} of {} accepted", s.accepted, s.drafted);
  return fmt::format(
      "prompt {} tok {:.0f} tok/s | new {} tok {:.1f} tok/s {:.1f} GB/s{} | planned {} allocated {} resident {} | hash "
      "{} | {}",
      s.prompt_tokens, per_second(static_cast<double>(s.prompt_tokens), s.prompt_seconds), s.new_tokens,
      per_second(static_cast<double>(s.decode_tokens), s.decode_seconds), decode_gbps(s), drafts,
      format_bytes(memory.planned), format_bytes(memory.allocated), format_bytes(memory.resident),
      output_hash(result.tokens), shell_line(words));
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
  if (args.logprobs > 0) {
    boost::json::array logprobs;
    for (const Logprob& l : result.logprobs)
      logprobs.push_back(boost::json::object{{"id", l.id}, {"logprob", l.value}});
    out["logprobs"] = std::move(logprobs);
  }
  return out;
}

int run(const Args& args) {
  Request request = make_request(args);
  Session session(args.pipeline);
  session.load();
  Progress progress("prompt");
  request.on_prompt = [&](uint32_t done, uint32_t total) {
    progress.update(done, total);
    if (done >= total) progress.finish();
  };
  bool written = true;
  if (!args.json) {
    request.on_token = [&](const Token& token) {
      written =
          std::fwrite(token.text.data(), 1, token.text.size(), stdout) == token.text.size() && std::fflush(stdout) == 0;
      return written;
    };
  }
  RunStats stats;
  const Result result = session.engine().generate(request, &stats);
  if (args.json) {
    const std::string text = json_text(result_json(session.engine(), args, result, stats)) + "\n";
    written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  } else {
    written = written && std::fputc('\n', stdout) != EOF && std::fflush(stdout) == 0;
  }
  if (!verbosity().quiet) std::fprintf(stderr, "%s\n", result_line(session.engine(), args, result, stats).c_str());
  const bool traced = session.finish_trace();
  if (result.finish == FinishReason::kCancelled) return kInterrupted;
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
  command->add_flag("--ignore-end", args->ignore_end, "Go on past end-of-text tokens");
  command->add_flag("--chat", args->chat, "Take the prompt as a user's message in the model's chat format");
  command->add_option("--system", args->system, "System message for --chat");
  command->add_option("--logprobs", args->logprobs, "With --json: log probabilities, of so many likeliest tokens")
      ->check(CLI::Range(0, 64));
  command->add_flag("--json", args->json, "One JSON object instead of the text");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
