// `tenon eval perplexity` measures how well a pipeline predicts a text. Lower is better; what is quantized is measured
// by the difference to what it was made of. The file of --save-logits is there only if all windows were scored.
#include <optional>

#include "base_file.h"
#include "divergence.h"
#include "eval.h"
#include "interval.h"
#include "json_text.h"
#include "output_path.h"
#include "report.h"
#include "spdlog/spdlog.h"
#include "table.h"

namespace tenon::app {
namespace {

struct Args : EvalArgs {
  std::string save_logits;
};

BaseHeader base_header(Evaluation& evaluation, const Args& args) {
  BaseHeader header;
  header.vocab = evaluation.engine().pipeline().model().vocab;
  header.context = args.context;
  header.positions = evaluation.count() * scored_tokens(args.context);
  evaluation.windows().sha256(evaluation.count()).copy(header.sha256.data(), header.sha256.size());
  return header;
}

boost::json::array buckets_json(const Args& args, std::span<const double> values) {
  boost::json::array out;
  for (const Positions& at : cut_positions(args.context, args.buckets)) {
    const Likelihood score(values_at(values, args.context, at));
    const Interval interval = interval_of_perplexity(score);
    out.push_back({{"begin", at.begin},
                   {"end", at.end},
                   {"perplexity", score.perplexity()},
                   {"interval_95", {interval.low, interval.high}}});
  }
  return out;
}

void print_buckets(const Args& args, std::span<const double> values) {
  Table table({"tokens", "perplexity", "95 %"}, 1);
  for (const Positions& at : cut_positions(args.context, args.buckets)) {
    const Likelihood score(values_at(values, args.context, at));
    const Interval interval = interval_of_perplexity(score);
    table.row({fmt::format("{} to {}", at.begin, at.end - 1), fmt::format("{:.4f}", score.perplexity()),
               fmt::format("{:.4f} to {:.4f}", interval.low, interval.high)});
  }
  fmt::print("{}", table.text());
}

void print(const Args& args, Evaluation& evaluation, const Walk& walk, std::span<const double> values) {
  const Likelihood score(values);
  std::vector<std::string> words;
  if (!args.save_logits.empty()) words = {"--save-logits", args.save_logits};
  if (args.pipeline.force) words.push_back("--force");
  const std::string line = evaluation.line("perplexity", words);
  const Interval interval = interval_of_perplexity(score);
  if (args.json) {
    boost::json::object out = evaluation.json(walk);
    out["mean_negative_log_likelihood"] = score.mean;
    out["perplexity"] = score.perplexity();
    out["standard_error"] = score.standard_error();
    out["interval_95"] = {interval.low, interval.high};
    if (args.buckets > 0) out["buckets"] = buckets_json(args, values);
    out["line"] = line;
    fmt::print("{}\n", json_text(out));
  } else {
    if (args.buckets > 0) print_buckets(args, values);
    fmt::print("perplexity {:.4f} +- {:.4f} {} over {} tokens in {} windows of {}, {:.1f} tok/s\n{}\n",
               score.perplexity(), score.standard_error(), interval_text(interval, 4), walk.scored, walk.windows,
               args.context, per_second(static_cast<double>(walk.fed), walk.seconds), line);
  }
}

int run(const Args& args) {
  check_output(args.save_logits, std::vector{args.pipeline.config, args.text_file}, args.pipeline.force);
  Evaluation evaluation(args);
  check_output(args.save_logits, std::vector{evaluation.engine().config().model.path}, args.pipeline.force);
  std::optional<BaseWriter> base;
  if (!args.save_logits.empty()) base.emplace(args.save_logits, base_header(evaluation, args), args.pipeline.force);
  CodedRow row;
  std::vector<double> values;
  const Walk walk = evaluation.walk([&](std::span<const float> of_vocab, int32_t token) {
    const Logits logits(of_vocab);
    values.push_back(logits.negative_log_likelihood(token));
    if (base) {
      row.assign(logits, token);
      base->add(row);
    }
  });
  values.resize(walk.scored);
  if (walk.windows > 0) print(args, evaluation, walk, values);
  if (base && walk.windows == evaluation.count()) {
    base->finish();
  } else if (base) {
    spdlog::warn("{} was not written: not all windows were scored", args.save_logits);
  }
  return evaluation.end(walk);
}

}  // namespace

Run add_perplexity(CLI::App& eval) {
  CLI::App* command = eval.add_subcommand(
      "perplexity",
      "Perplexity over a text. The whole text is turned into tokens at once, without special ones, and cut into "
      "consecutive windows of N tokens that do not overlap; where the model begins texts with BOS, it comes before the "
      "text and replaces the first token of each window. A window is read by itself, and the tokens after its place "
      "N/2, counted from 0, are scored, each given all before it in the window. What is left at the end and fills no "
      "window is not used. All this is as llama.cpp's llama-perplexity does. Printed: exp of the mean negative "
      "log-likelihood, its standard error and its interval of 95 %, as if tokens were independent.");
  auto args = std::make_shared<Args>();
  args->add_to(*command);
  command->add_option("--context", args->context, "Tokens of a window; also kv_cache.capacity unless --set says it")
      ->check(CLI::Range(kLeastContext, 1U << 20))
      ->capture_default_str();
  command->add_option("--save-logits", args->save_logits,
                      "Also write the distributions over the vocabulary at the scored tokens to this file, for `tenon "
                      "eval kld`: 2 bytes for each token of the vocabulary and place");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
