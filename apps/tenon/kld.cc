// `tenon eval kld` measures how far a pipeline's distributions are from a baseline's over the same text. Says more than the
// difference of two perplexities, in which what got better hides what got worse.
#include <algorithm>

#include "base_file.h"
#include "divergence.h"
#include "eval.h"
#include "json_text.h"
#include "report.h"
#include "spdlog/spdlog.h"

namespace tenon::app {
namespace {

struct Args : EvalArgs {
  std::string base;
};

struct Comparison {
  std::vector<double> divergence, likelihood, base_likelihood;  // one for each position
  std::vector<bool> agrees;

  void resize(size_t positions) {
    for (std::vector<double>* values : {&divergence, &likelihood, &base_likelihood}) values->resize(positions);
    agrees.resize(positions);
  }
  double agreement() const {  // percent
    return 100.0 * static_cast<double>(std::count(agrees.begin(), agrees.end(), true)) /
           static_cast<double>(agrees.size());
  }
};

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
  const DivergenceSpread kld = spread(found.divergence);
  const Likelihood ours(found.likelihood), base(found.base_likelihood);
  const double ratio = ours.perplexity() / base.perplexity();
  const std::string line = evaluation.line("kld", {"--base", args.base});
  if (args.json) {
    boost::json::object out = evaluation.json(walk);
    out["base"] = args.base;
    out["kld"] = {{"mean", kld.mean}, {"median", kld.median}, {"p99", kld.p99}, {"max", kld.max}};
    out["top1_agreement_percent"] = found.agreement();
    out["perplexity"] = ours.perplexity();
    out["base_perplexity"] = base.perplexity();
    out["perplexity_ratio"] = ratio;
    out["line"] = line;
    fmt::print("{}\n", json_text(out));
    return;
  }
  fmt::print("KL divergence, nats  mean {:.4g}, median {:.4g}, p99 {:.4g}, max {:.4g}\n", kld.mean, kld.median, kld.p99,
             kld.max);
  fmt::print("same top token       {:.2f} %\n", found.agreement());
  fmt::print("perplexity           {:.4f}, of the baseline {:.4f}, ratio {:.5f}\n", ours.perplexity(),
             base.perplexity(), ratio);
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
    found.agrees.push_back(row.top == logits.top);
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
      "nats, how often both have the same likeliest token, both perplexities and their ratio.");
  auto args = std::make_shared<Args>();
  args->context = 0;
  args->add_to(*command);
  command->add_option("--base", args->base, "The baseline, a file")->required();
  command->add_option("--context", args->context, "Tokens of a window; if given, must be what the baseline has")
      ->check(CLI::Range(kLeastContext, 1U << 20));
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
