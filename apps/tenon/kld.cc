// `tenon eval kld` measures how far a pipeline's distributions are from a baseline's over the same text. Says more than
// the difference of two perplexities, in which what got better hides what got worse.
#include <algorithm>

#include "base_file.h"
#include "divergence.h"
#include "eval.h"
#include "interval.h"
#include "json_text.h"
#include "report.h"
#include "spdlog/spdlog.h"
#include "table.h"

namespace tenon::app {
namespace {

struct Args : EvalArgs {
  std::string base;
};

struct Comparison {
  std::vector<double> divergence, likelihood, base_likelihood, agrees;  // one for each position; agrees: 0 or 1

  void resize(size_t positions) {
    for (std::vector<double>* values : {&divergence, &likelihood, &base_likelihood, &agrees}) values->resize(positions);
  }
  // Returns what was found at these tokens of every window.
  Comparison at(uint32_t context, Positions where) const {
    return {values_at(divergence, context, where), values_at(likelihood, context, where),
            values_at(base_likelihood, context, where), values_at(agrees, context, where)};
  }
  double agreement() const { return 100 * Likelihood(agrees).mean; }  // percent
  // Returns the interval of the ratio of the perplexities, which is that of the mean difference, carried through exp.
  // Tokens are paired, so it is far narrower than the intervals of the two.
  Interval ratio_interval() const {
    std::vector<double> difference(likelihood);
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= base_likelihood[i];
    return interval_of_perplexity(Likelihood(difference));
  }
  double ratio() const { return Likelihood(likelihood).perplexity() / Likelihood(base_likelihood).perplexity(); }
};

boost::json::object to_json(const Comparison& found) {
  const DivergenceSpread kld = spread(found.divergence);
  const Interval mean = interval_of_mean(Likelihood(found.divergence)), ratio = found.ratio_interval();
  const uint64_t same = static_cast<uint64_t>(std::count(found.agrees.begin(), found.agrees.end(), 1.0));
  const Interval agreement = interval_of_share(same, found.agrees.size());
  return {{"kld",
           {{"mean", kld.mean},
            {"interval_95", {mean.low, mean.high}},
            {"median", kld.median},
            {"p99", kld.p99},
            {"max", kld.max}}},
          {"top1_agreement_percent", found.agreement()},
          {"top1_agreement_interval_95", {100 * agreement.low, 100 * agreement.high}},
          {"perplexity", Likelihood(found.likelihood).perplexity()},
          {"base_perplexity", Likelihood(found.base_likelihood).perplexity()},
          {"perplexity_ratio", found.ratio()},
          {"perplexity_ratio_interval_95", {ratio.low, ratio.high}}};
}

boost::json::array buckets_json(uint32_t context, uint32_t buckets, const Comparison& found) {
  boost::json::array out;
  for (const Positions& where : cut_positions(context, buckets)) {
    boost::json::object bucket = {{"begin", where.begin}, {"end", where.end}};
    for (const auto& member : to_json(found.at(context, where))) bucket.insert(member);
    out.push_back(bucket);
  }
  return out;
}

void print_buckets(uint32_t context, uint32_t buckets, const Comparison& found) {
  Table table({"tokens", "mean KLD", "95 %", "p99", "same top", "ratio of perplexities"}, 1);
  for (const Positions& where : cut_positions(context, buckets)) {
    const Comparison here = found.at(context, where);
    const Interval mean = interval_of_mean(Likelihood(here.divergence));
    table.row({fmt::format("{} to {}", where.begin, where.end - 1),
               fmt::format("{:.4g}", Likelihood(here.divergence).mean),
               fmt::format("{:.4g} to {:.4g}", mean.low, mean.high), fmt::format("{:.4g}", spread(here.divergence).p99),
               fmt::format("{:.2f} %", here.agreement()), fmt::format("{:.5f}", here.ratio())});
  }
  fmt::print("{}", table.text());
}

[[noreturn]] void refuse(const Args& args, const std::string& message) {
  throw Error(ErrorCode::kRequest, {args.base, 0, 0}, message);
}

void check_same_text(const Args& args, const BaseHeader& base, Evaluation& evaluation) {
  const uint32_t vocab = evaluation.engine().pipeline().model().vocab;
  if (base.vocab != vocab) {
    refuse(args, "was saved from a vocabulary of " + std::to_string(base.vocab) + " tokens; " +
                     evaluation.engine().config().model.path + " has " + std::to_string(vocab));
  }
  Windows& windows = evaluation.windows();
  if (windows.count() < base.windows()) {
    refuse(args, "holds " + std::to_string(base.windows()) + " windows of " + std::to_string(base.context) +
                     " tokens; " + args.text_file + " fills " + std::to_string(windows.count()) +
                     "; give the text that it was saved from");
  }
  const std::string expected(base.sha256.data(), base.sha256.size()), found = windows.sha256(base.windows());
  if (found != expected) {
    refuse(args, "was saved from another text or tokenizer: SHA-256 of its token ids " + expected + ", of those of " +
                     args.text_file + " " + found);
  }
}

void print(const Args& args, Evaluation& evaluation, const Walk& walk, const Comparison& found) {
  const std::string line = evaluation.line("kld", {"--base", args.base});
  if (args.json) {
    boost::json::object out = evaluation.json(walk);
    out["base"] = args.base;
    for (const auto& member : to_json(found)) out.insert(member);
    if (args.buckets > 0) out["buckets"] = buckets_json(args.context, args.buckets, found);
    out["line"] = line;
    fmt::print("{}\n", json_text(out));
    return;
  }
  const DivergenceSpread kld = spread(found.divergence);
  if (args.buckets > 0) print_buckets(args.context, args.buckets, found);
  const Interval mean = interval_of_mean(Likelihood(found.divergence));
  fmt::print("KL divergence, nats  mean {:.4g} (95 %: {:.4g} to {:.4g}), median {:.4g}, p99 {:.4g}, max {:.4g}\n",
             kld.mean, mean.low, mean.high, kld.median, kld.p99, kld.max);
  fmt::print("same top token       {:.2f} %\n", found.agreement());
  fmt::print("perplexity           {:.4f}, of the baseline {:.4f}, ratio {:.5f} {}\n",
             Likelihood(found.likelihood).perplexity(), Likelihood(found.base_likelihood).perplexity(), found.ratio(),
             interval_text(found.ratio_interval(), 5));
  fmt::print("over {} tokens in {} windows of {}, {:.1f} tok/s\n{}\n", walk.scored, walk.windows, args.context,
             per_second(static_cast<double>(walk.fed), walk.seconds), line);
}

int run(Args args) {
  BaseReader base(args.base);
  const BaseHeader& header = base.header();
  if (args.context != 0 && args.context != header.context) {
    refuse(args, "was saved with windows of " + std::to_string(header.context) + " tokens; --context says " +
                     std::to_string(args.context));
  }
  args.context = header.context;
  args.max_windows =
      static_cast<uint32_t>(std::min<uint64_t>(args.max_windows > 0 ? args.max_windows : UINT32_MAX, header.windows()));
  Evaluation evaluation(args);
  check_same_text(args, header, evaluation);
  CodedRow row;
  Comparison found;
  const Walk walk = evaluation.walk([&](std::span<const float> of_vocab, int32_t token) {
    const Logits logits(of_vocab);
    base.next(row);
    found.divergence.push_back(kl_divergence(row, logits));
    found.likelihood.push_back(logits.negative_log_likelihood(token));
    found.base_likelihood.push_back(row.negative_log_likelihood);
    found.agrees.push_back(row.top == logits.top ? 1 : 0);
  });
  found.resize(walk.scored);
  if (walk.windows > 0) print(args, evaluation, walk, found);
  return evaluation.end(walk);
}

}  // namespace

Run add_kld(CLI::App& eval) {
  CLI::App* command = eval.add_subcommand(
      "kld",
      "KL divergence of a pipeline from a baseline over a text. `tenon eval perplexity --save-logits BASE` saves the "
      "baseline; the same windows of the same text are read, and at every scored token the two distributions over the "
      "whole vocabulary are compared. Printed: mean, median, 99th percentile and maximum of KL(baseline || pipeline) "
      "in "
      "nats, how often both have the same likeliest token, both perplexities and their ratio, with intervals of 95 % "
      "as "
      "if tokens were independent.");
  auto args = std::make_shared<Args>();
  args->context = 0;
  args->add_to(*command);
  command->add_option("--base", args->base, "The baseline, a file")->required();
  command->add_option("--context", args->context, "Tokens of a window; if given, must be what the baseline has")
      ->check(CLI::Range(kLeastContext, 1U << 20));
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
