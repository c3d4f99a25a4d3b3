// `tenon eval perplexity`: how well a pipeline predicts a text. Lower is better; what is quantized is measured by the
// difference to what it was made of.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "command.h"
#include "progress.h"
#include "report.h"
#include "spdlog/spdlog.h"

namespace tenon::app {
namespace {

constexpr uint32_t kScoreRows = 128;  // whose logits are held at once

struct Args {
  PipelineArgs pipeline;
  std::string text_file;
  uint32_t context = 512, max_windows = 0;
  bool json = false;
};

struct Score {
  uint64_t windows = 0, scored = 0, fed = 0;
  double sum = 0, sum_of_squares = 0;  // of the negative log-likelihoods, natural
  double seconds = 0;

  double mean() const { return sum / static_cast<double>(scored); }
  double perplexity() const { return std::exp(mean()); }
  // Of the perplexity, as if tokens were independent of each other: that of the mean, carried through exp.
  double standard_error() const {
    const auto n = static_cast<double>(scored);
    const double variance = n > 1 ? std::max(0.0, (sum_of_squares - sum * sum / n) / (n - 1)) : 0;
    return perplexity() * std::sqrt(variance / n);
  }
};

double negative_log_likelihood(std::span<const float> logits, int32_t token) {
  float most = logits[0];
  for (const float value : logits) most = std::max(most, value);
  double sum = 0;
  for (const float value : logits) sum += std::exp(value - most);
  return std::log(sum) + most - logits[static_cast<size_t>(token)];
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) throw Error(ErrorCode::kIo, {path, 0, 0}, "cannot be read");
  return text;
}

PipelineArgs arguments(const Args& args) {
  PipelineArgs pipeline = args.pipeline;
  const bool stated = std::any_of(pipeline.set.begin(), pipeline.set.end(),
                                  [](const std::string& word) { return word.starts_with("kv_cache.capacity="); });
  if (!stated) pipeline.set.push_back("kv_cache.capacity=" + std::to_string(args.context));
  return pipeline;
}

// Windows of the text's tokens, each `context` long with the token that begins a text where the model has one.
class Windows {
 public:
  Windows(const Tokenizer& tokenizer, const std::string& text, uint32_t context) : window_(context) {
    if (tokenizer.info().adds_bos && tokenizer.info().bos) {
      window_[0] = *tokenizer.info().bos;
      begin_ = 1;
    }
    tokens_ = tokenizer.encode(text, {.add_special = false});
  }
  uint64_t tokens() const { return tokens_.size(); }
  uint64_t count() const { return tokens_.size() / fresh(); }
  uint64_t fresh() const { return window_.size() - begin_; }
  std::span<const int32_t> at(uint64_t index) {
    std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(index * fresh()), fresh(),
                window_.begin() + static_cast<std::ptrdiff_t>(begin_));
    return window_;
  }

 private:
  std::vector<int32_t> tokens_, window_;
  size_t begin_ = 0;
};

Score evaluate(Engine& engine, Windows& windows, uint64_t count) {
  Score score;
  Progress progress("windows");
  const std::stop_token cancel = interruption();
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count && !cancel.stop_requested(); ++i) {
    const std::span<const int32_t> window = windows.at(i);
    const auto first = static_cast<uint32_t>(window.size() / 2 - 1);
    Score whole = score;  // counts only if the window is not cut short
    engine.score(
        window.first(window.size() - 1), first,
        [&](uint32_t row, std::span<const float> logits) {
          const double value = negative_log_likelihood(logits, window[row + 1]);
          whole.sum += value;
          whole.sum_of_squares += value * value;
          ++whole.scored;
        },
        cancel);
    if (whole.scored - score.scored < window.size() - window.size() / 2) break;
    whole.fed += window.size() - 1;
    ++whole.windows;
    score = whole;
    progress.update(i + 1, count);
  }
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return score;
}

void print(const Args& args, Engine& engine, const Score& s) {
  std::vector<std::string> words = reproducing_words(engine, "eval");
  words.insert(words.begin() + 2, "perplexity");
  words.insert(words.end(), {"--text", args.text_file, "--context", std::to_string(args.context)});
  if (args.max_windows > 0) words.insert(words.end(), {"--max-windows", std::to_string(args.max_windows)});
  const double speed = per_second(static_cast<double>(s.fed), s.seconds);
  if (args.json) {
    const boost::json::object out = {{"model", engine.config().model.path},
                                     {"text", args.text_file},
                                     {"context", args.context},
                                     {"windows", s.windows},
                                     {"tokens_scored", s.scored},
                                     {"mean_negative_log_likelihood", s.mean()},
                                     {"perplexity", s.perplexity()},
                                     {"standard_error", s.standard_error()},
                                     {"tok_per_s", speed},
                                     {"memory", to_json(memory_use(engine.pipeline()))},
                                     {"line", shell_line(words)}};
    fmt::print("{}\n", boost::json::serialize(out));
  } else {
    fmt::print("perplexity {:.4f} +- {:.4f} over {} tokens in {} windows of {}, {:.1f} tok/s\n{}\n", s.perplexity(),
               s.standard_error(), s.scored, s.windows, args.context, speed, shell_line(words));
  }
}

int run(const Args& args) {
  interruption();
  const std::string text = read_text(args.text_file);
  Session session(arguments(args), std::min(args.context, kScoreRows));
  Windows windows(session.engine().tokenizer(), text, args.context);
  if (windows.count() == 0) {
    throw Error(ErrorCode::kRequest, {args.text_file, 0, 0},
                "the text has " + std::to_string(windows.tokens()) + " tokens; a window of " +
                    std::to_string(args.context) + " takes " + std::to_string(windows.fresh()) +
                    "; give a longer text or a smaller --context");
  }
  session.load();
  const uint64_t count = args.max_windows > 0 ? std::min<uint64_t>(args.max_windows, windows.count()) : windows.count();
  const Score score = evaluate(session.engine(), windows, count);
  if (score.windows > 0) print(args, session.engine(), score);
  const bool written = std::fflush(stdout) == 0;
  const bool traced = session.finish_trace();
  if (score.windows < count) return kInterrupted;
  return written && traced ? kOk : kIo;
}

}  // namespace

Run add_eval(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "Measure how well a pipeline does");
  eval->require_subcommand(1);
  CLI::App* command = eval->add_subcommand(
      "perplexity",
      "Perplexity over a text. The whole text is turned into tokens at once, without special ones, and cut into "
      "consecutive windows of N tokens that do not overlap; where the model begins texts with BOS, it takes the first "
      "of "
      "the N places in each. A window is read by itself, and the tokens at its places N/2 to N-1, counted from 0, are "
      "scored, each given all before it in the window. What is left at the end and fills no window is not used. "
      "Printed: exp of the mean negative log-likelihood, and its standard error as if tokens were independent.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  command->add_option("--text", args->text_file, "The text, a file")->required();
  command->add_option("--context", args->context, "Tokens of a window; also kv_cache.capacity unless --set says it")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-windows", args->max_windows, "Score so many windows at most; 0 = all")
      ->capture_default_str();
  command->add_flag("--json", args->json, "As JSON");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
