// `tenon chat` holds a conversation, line by line. Only the answers go to standard output. A message that the engine
// refuses is taken out of the conversation again; an answer that is interrupted stays in it as far as it came.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "chat_args.h"
#include "command.h"
#include "fault_report.h"
#include "progress.h"
#include "report.h"
#include "spdlog/spdlog.h"
#include "standard_output.h"
#include "text_input.h"
#include "traced_engine.h"

namespace tenon::app {
namespace {

constexpr const char* kHelp =
    "/exit          end (so do Ctrl-D, and Ctrl-C between answers)\n"
    "/reset         forget the conversation; the system message stays\n"
    "/trace         write the newest steps to the trace ([trace] keep_steps); so does the signal USR1, at any time\n"
    "/system TEXT   set the system message and forget the conversation; without TEXT, none\n"
    "/help          this\n"
    "Ctrl-C ends an answer; what there is of it stays in the conversation.\n";

struct Args {
  PipelineArgs pipeline;
  ChatArgs chat;
  uint32_t max_new_tokens = 1024;
  bool parse_special = false;
  double step_limit = 0;
};

// This reads lines of standard input; waiting for one ends with an interruption.
class LineReader {
 public:
  // Returns a line without its end, or nullopt at the end of the input or if interrupted. Throws Error(kRequest) for a
  // line that is too long.
  std::optional<std::string> next() {
    while (true) {
      const size_t end = waiting_.find('\n', searched_);
      searched_ = end == std::string::npos ? waiting_.size() : 0;
      if (end != std::string::npos) return take(end, end + 1);
      if (ended_) return waiting_.empty() ? std::nullopt : std::optional(take(waiting_.size(), waiting_.size()));
      if (waiting_.size() > kPromptBytes) {
        throw Error(ErrorCode::kRequest, {"standard input", 0, 0},
                    "has a line of more than " + in_mebibytes(kPromptBytes) + ", the most that a message may have");
      }
      if (!fill()) return std::nullopt;
    }
  }

 private:
  std::string take(size_t length, size_t used) {
    std::string line = waiting_.substr(0, length);
    waiting_.erase(0, used);
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

  bool fill() {
    constexpr int kPollMs = 100;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (poll(&input, 1, kPollMs) <= 0) {
      if (interruption().stop_requested()) return false;
    }
    char bytes[65536];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) return true;
    if (count < 0)
      throw Error(ErrorCode::kIo, {"standard input"}, std::string("cannot be read: ") + std::strerror(errno));
    if (count <= 0) ended_ = true;
    if (count > 0) waiting_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  std::string waiting_;
  size_t searched_ = 0;  // so much of what waits has no end of a line
  bool ended_ = false;
};

class Conversation {
 public:
  Conversation(TracedEngine& traced_engine, const Args& args)
      : traced_engine_(traced_engine), engine_(traced_engine.engine()), args_(args) {
    set_system(args.chat.system);
    options_ = args.chat.options();
  }

  void set_system(const std::string& text) {
    system_ = text;
    reset();
  }
  void reset() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back({"system", system_});
  }
  // Returns false if standard output is gone.
  bool answer(const std::string& line);

  void trace() { traced_engine_.capture(); }

 private:
  TracedEngine& traced_engine_;
  Engine& engine_;
  const Args& args_;
  std::string system_;
  ChatOptions options_;
  std::vector<ChatMessage> messages_;
};

bool Conversation::answer(const std::string& line) {
  messages_.push_back({"user", line});
  Progress progress("prompt");
  bool written = true;
  Request request;
  request.chat = messages_;
  request.chat_options = options_;
  request.max_new_tokens = args_.max_new_tokens;
  request.cancel = interruption();
  StepLimit limit(args_.step_limit);
  request.parse_special = args_.parse_special;
  request.on_prompt = [&](uint32_t done, uint32_t total) {
    limit.beat();
    progress.update(done, total);
    if (done >= total) progress.finish();
  };
  try {
    ShownAnswer answer = args_.chat.shown_answer(engine_, request);
    request.on_token = [&](const Token& token) {
      limit.beat();
      return print_now(answer.add(token.text, false));
    };
    RunStats stats;
    const Result result = engine_.generate(request, &stats);
    messages_.push_back({"assistant", answer.said(result.text)});
    written = print_now(answer.add("", true) + "\n");
    spdlog::debug("prompt {} tok {:.0f} tok/s, new {} tok {:.1f} tok/s, {}", stats.prompt_tokens,
                  per_second(static_cast<double>(stats.prompt_tokens), stats.prompt_seconds), stats.new_tokens,
                  per_second(static_cast<double>(stats.decode_tokens), stats.decode_seconds), to_string(result.finish));
    if (result.finish == FinishReason::kCapacity) spdlog::warn("the cache is full; /reset begins anew");
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kRequest) throw;
    messages_.pop_back();
    spdlog::error("{}; /reset begins anew", e.what());
  }
  return written;
}

// Returns nullopt if the chat goes on.
std::optional<int> handle(Conversation& conversation, const std::string& line) {
  const std::string command = line.substr(0, line.find(' '));
  if (command == "/exit") return kOk;
  if (command == "/reset") {
    conversation.reset();
  } else if (command == "/system") {
    const size_t text = line.find_first_not_of(' ', command.size());
    conversation.set_system(text == std::string::npos ? "" : line.substr(text));
  } else if (command == "/trace") {
    conversation.trace();
  } else if (command == "/help") {
    std::fputs(kHelp, stderr);
  } else if (command.starts_with('/')) {
    spdlog::error("there is no command {}; /help lists them", command);
  } else if (line.find_first_not_of(" \t") != std::string::npos) {
    const bool written = conversation.answer(line);
    if (!written && !interruption().stop_requested()) return kIo;
    if (interruption().stop_requested() && !rearm_interruption()) return interrupted_code();
  }
  return std::nullopt;
}

int converse(Conversation& conversation) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  LineReader lines;
  while (true) {
    if (terminal) std::fputs("> ", stderr);
    const std::optional<std::string> line = lines.next();
    if (!line) {
      if (terminal) std::fputc('\n', stderr);
      return interruption().stop_requested() ? interrupted_code() : kOk;
    }
    if (const std::optional<int> code = handle(conversation, *line)) return *code;
  }
}

int run(const Args& args) {
  interruption();
  TracedEngine traced_engine(args.pipeline);
  Engine& engine = traced_engine.engine();
  if (engine.chat_template() == nullptr) {
    throw Error(ErrorCode::kModel, {engine.config().model.path, 0, 0},
                engine.chat_problem() + "; `tenon generate` continues plain text");
  }
  traced_engine.load();
  Conversation conversation(traced_engine, args);
  const int code = converse(conversation);
  const bool traced = traced_engine.finish_trace();
  return code == kOk && !traced ? kIo : code;
}

}  // namespace

Run add_chat(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "chat", "Talk to a model, a line at a time. /help lists what else a line can be. Ctrl-C ends an answer.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  args->chat.add_to(*command);
  command->add_option("-n,--max-new-tokens", args->max_new_tokens, "Tokens of an answer at most")
      ->capture_default_str();
  command->add_flag("--parse-special", args->parse_special,
                    "Names of special tokens in messages mean those tokens; else they are text");
  add_step_limit(*command, args->step_limit);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
