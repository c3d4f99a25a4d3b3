// `tenon eval choices` measures how often a model takes the right ending for the likeliest: by the sum of the
// log-likelihoods of its tokens, and by that sum over the ending's bytes. All questions that do not fit are named at
// once, before any runs.
#include <algorithm>
#include <chrono>

#include "continuation.h"
#include "eval.h"
#include "interval.h"
#include "json_text.h"
#include "progress.h"
#include "questions.h"
#include "report.h"
#include "spdlog/spdlog.h"
#include "text_input.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  std::string file;
  uint32_t context = 2048, most = 0;
  bool json = false;
};

// This is one question with its endings as tokens.
struct Prepared {
  std::vector<Continuation> endings;
  std::vector<size_t> bytes;  // each ending has so many
  size_t answer = 0;
};

std::vector<Prepared> prepare(const std::vector<Question>& questions, Engine& engine, const Args& args) {
  std::vector<Prepared> all;
  std::vector<Diagnostic> findings;
  const uint64_t room = engine.pipeline().longest_sequence();
  for (const Question& q : questions) {
    Prepared prepared;
    prepared.answer = q.answer;
    try {
      for (const std::string& ending : q.endings) {
        prepared.endings.push_back(continuation(engine.tokenizer(), q.context, ending));
        prepared.bytes.push_back(ending.size());
        const size_t tokens = prepared.endings.back().tokens.size();
        if (tokens <= room) continue;
        throw Error(ErrorCode::kRequest, "takes " + std::to_string(tokens) +
                                             " tokens with an ending; there is room for " + std::to_string(room) +
                                             ": give a larger --context");
      }
    } catch (const Error& e) {
      Diagnostic& finding = findings.emplace_back();
      finding.where.file = args.file;
      finding.where.line = q.line;
      finding.message = e.diagnostics().front().message;
    }
    all.push_back(std::move(prepared));
  }
  if (!findings.empty()) throw Error(ErrorCode::kRequest, findings);
  return all;
}

struct Tally {
  uint64_t questions = 0, right = 0, right_by_length = 0, tokens = 0;
  double chance = 0;  // it is the sum of what guessing would have right
  double seconds = 0;

  void add(const Prepared& question, std::span<const double> log_likelihood) {
    std::vector<double> by_length(log_likelihood.begin(), log_likelihood.end());
    for (size_t i = 0; i < by_length.size(); ++i) by_length[i] /= static_cast<double>(question.bytes[i]);
    ++questions;
    right += best(log_likelihood) == question.answer ? 1 : 0;
    right_by_length += best(by_length) == question.answer ? 1 : 0;
    chance += 1 / static_cast<double>(by_length.size());
    for (const Continuation& ending : question.endings) tokens += ending.tokens.size();
  }
  double share(uint64_t hits) const { return static_cast<double>(hits) / static_cast<double>(questions); }

 private:
  static size_t best(std::span<const double> scores) {
    return static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  }
};

Tally ask(Engine& engine, const std::vector<Prepared>& questions) {
  Tally tally;
  Progress progress("questions");
  const std::stop_token cancel = interruption();
  const auto start = std::chrono::steady_clock::now();
  for (const Prepared& question : questions) {
    std::vector<double> log_likelihood;
    for (const Continuation& ending : question.endings) {
      log_likelihood.push_back(score(engine, ending, cancel).log_likelihood);
    }
    if (cancel.stop_requested()) break;
    tally.add(question, log_likelihood);
    progress.update(tally.questions, questions.size());
  }
  tally.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return tally;
}

boost::json::object to_json(const Tally& tally, uint64_t hits) {
  const Interval interval = interval_of_share(hits, tally.questions);
  return {{"share", tally.share(hits)}, {"interval_95", {interval.low, interval.high}}};
}

std::string percent(const Tally& tally, uint64_t hits) {
  const Interval share = interval_of_share(hits, tally.questions);
  return fmt::format("{:.2f} % {}", 100 * tally.share(hits), interval_text({100 * share.low, 100 * share.high}, 2));
}

void print(const Args& args, Engine& engine, const Tally& tally) {
  std::vector<std::string> words = {"--questions", args.file, "--context", std::to_string(args.context)};
  if (args.most > 0) words.insert(words.end(), {"--max-questions", std::to_string(args.most)});
  if (args.json) words.push_back("--json");
  const std::string line = eval_line(engine, args.pipeline, "choices", words);
  const double speed = per_second(static_cast<double>(tally.tokens), tally.seconds);
  const double chance = tally.chance / static_cast<double>(tally.questions);
  if (args.json) {
    fmt::print("{}\n", json_text(boost::json::object{{"model", engine.config().model.path},
                                                     {"file", args.file},
                                                     {"questions", tally.questions},
                                                     {"right", to_json(tally, tally.right)},
                                                     {"right_by_length", to_json(tally, tally.right_by_length)},
                                                     {"chance", chance},
                                                     {"tok_per_s", speed},
                                                     {"memory", to_json(memory_use(engine.pipeline()))},
                                                     {"line", line}}));
    return;
  }
  fmt::print("right                {}\nright by length      {}\nby chance            {:.2f} %\n",
             percent(tally, tally.right), percent(tally, tally.right_by_length), 100 * chance);
  fmt::print("over {} questions, {:.1f} tok/s\n{}\n", tally.questions, speed, line);
}

int run(const Args& args) {
  interruption();
  std::vector<Question> questions = read_questions(text_of_file(args.file), args.file);
  if (args.most > 0 && args.most < questions.size()) questions.resize(args.most);
  const std::unique_ptr<TracedEngine> traced_engine = open_scoring(args.pipeline, args.context);
  Engine& engine = traced_engine->engine();
  const std::vector<Prepared> prepared = prepare(questions, engine, args);
  traced_engine->load();
  const Tally tally = ask(engine, prepared);
  if (tally.questions > 0) print(args, engine, tally);
  return end_scoring(*traced_engine, tally.questions == prepared.size());
}

}  // namespace

Run add_choices(CLI::App& eval) {
  CLI::App* command = eval.add_subcommand(
      "choices",
      "Multiple choice. Each ending of a question is given after its context, and the one whose tokens are likeliest "
      "is "
      "the model's answer; by length: whose log-likelihood is largest for each of its bytes. The file has one JSON "
      "object "
      "a line, or a list of them, as HellaSwag (ctx, endings, label) or MMLU (question, choices, answer) publish them. "
      "Printed: how often the answer was right, with Wilson's interval of 95 %, and how often guessing would be.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  command->add_option("--questions", args->file, "The questions, a file")->required();
  command
      ->add_option("--context", args->context,
                   "Tokens of the longest question; also kv_cache.capacity unless --set says it")
      ->check(CLI::Range(2U, 1U << 20))
      ->capture_default_str();
  command->add_option("--max-questions", args->most, "Ask so many at most; 0 = all")->capture_default_str();
  command->add_flag("--json", args->json, "As JSON");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
