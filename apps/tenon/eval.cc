// `tenon eval perplexity` and `tenon eval kld` cut a text into windows and walk over them. Each window is read by
// itself, and only the tokens after its middle are scored.
#include "eval.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base_file.h"
#include "progress.h"
#include "report.h"
#include "sha256.h"
#include "text_input.h"

namespace tenon::app {
namespace {

constexpr uint32_t kScoreRows = 128;  // the logits of so many rows are held at once

PipelineArgs with_room(PipelineArgs pipeline, uint32_t context) {
  const bool stated = std::any_of(pipeline.set.begin(), pipeline.set.end(),
                                  [](const std::string& word) { return word.starts_with("kv_cache.capacity="); });
  if (!stated) pipeline.set.push_back("kv_cache.capacity=" + std::to_string(context));
  return pipeline;
}

}  // namespace

std::unique_ptr<TracedEngine> open_scoring(const PipelineArgs& args, uint32_t context) {
  EngineOptions options;
  options.score_rows = std::min(context, kScoreRows);
  return std::make_unique<TracedEngine>(with_room(args, context), std::move(options));
}

std::string eval_line(const Engine& engine, const PipelineArgs& args, const std::string& measure,
                      const std::vector<std::string>& words) {
  std::vector<std::string> all = reproducing_words(engine, "eval", args);
  all.insert(all.begin() + 2, measure);
  all.insert(all.end(), words.begin(), words.end());
  return shell_line(all);
}

ExitCode end_scoring(TracedEngine& traced_engine, bool complete) {
  const bool traced = traced_engine.finish_trace();
  if (!complete) return interrupted_code();
  return traced ? kOk : kIo;
}

std::vector<Positions> cut_positions(uint32_t context, uint32_t count) {
  const uint64_t scored = scored_tokens(context);
  const auto border = [&](uint64_t i) { return static_cast<uint32_t>(context - scored + i * scored / count); };
  std::vector<Positions> ranges;
  for (uint32_t i = 0; i < count; ++i) ranges.push_back({border(i), border(i + 1)});
  return ranges;
}

std::vector<double> values_at(std::span<const double> values, uint32_t context, Positions at) {
  const uint32_t scored = scored_tokens(context), first = context - scored;
  std::vector<double> found;
  for (size_t window = 0; window < values.size(); window += scored) {
    const std::span<const double> part = values.subspan(window + at.begin - first, at.end - at.begin);
    found.insert(found.end(), part.begin(), part.end());
  }
  return found;
}

void EvalArgs::add_to(CLI::App& command) {
  pipeline.add_to(command);
  command.add_option("--text", text_file, "The text, a file")->required();
  command.add_option("--max-windows", max_windows, "Score so many windows at most; 0 = all")->capture_default_str();
  command.add_option("--buckets", buckets,
                     "Also print so many lines by the place in the window, to see what a long context costs");
  command.add_flag("--json", json, "As JSON");
}

Windows::Windows(const Tokenizer& tokenizer, const std::string& text, uint32_t context) : window_(context) {
  tokens_ = tokenizer.encode(text, {.add_special = false});
  if (!tokenizer.info().adds_bos || !tokenizer.info().bos) return;
  bos_ = tokenizer.info().bos;
  tokens_.insert(tokens_.begin(), *bos_);
}

std::span<const int32_t> Windows::at(uint64_t index) {
  std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(index * window_.size()), window_.size(), window_.begin());
  if (bos_) window_.front() = *bos_;
  return window_;
}

std::string Windows::sha256(uint64_t count) {
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < count; ++i) {
    const std::span<const int32_t> window = at(i);
    ids.insert(ids.end(), window.begin(), window.end());
  }
  return sha256_hex(ids);
}

Evaluation::Evaluation(const EvalArgs& args) : args_(args) {
  interruption();
  if (args.buckets > scored_tokens(args.context)) {
    throw Error(ErrorCode::kUsage, "--buckets is " + std::to_string(args.buckets) + ", and a window of " +
                                       std::to_string(args.context) + " tokens scores " +
                                       std::to_string(scored_tokens(args.context)));
  }
  const std::string text = text_of_file(args.text_file);
  traced_engine_ = open_scoring(args.pipeline, args.context);
  windows_ = std::make_unique<Windows>(engine().tokenizer(), text, args.context);
  if (windows_->count() == 0) {
    throw Error(ErrorCode::kRequest, {args.text_file, 0, 0},
                "the text has " + std::to_string(windows_->tokens()) + " tokens; a window of " +
                    std::to_string(args.context) + " takes more; give a longer text or a smaller --context");
  }
  count_ = args.max_windows > 0 ? std::min<uint64_t>(args.max_windows, windows_->count()) : windows_->count();
}

Walk Evaluation::walk(const OnRow& on_row) {
  traced_engine_->load();
  Walk walk;
  Progress progress("windows");
  const std::stop_token cancel = interruption();
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count_ && !cancel.stop_requested(); ++i) {
    const std::span<const int32_t> window = windows_->at(i);
    const auto first = static_cast<uint32_t>(window.size() / 2);
    uint32_t scored = 0;
    engine().score(
        window.first(window.size() - 1), first,
        [&](uint32_t row, std::span<const float> logits) {
          on_row(logits, window[row + 1]);
          ++scored;
        },
        cancel);
    if (scored < scored_tokens(args_.context)) break;
    walk.scored += scored;
    walk.fed += window.size() - 1;
    ++walk.windows;
    progress.update(i + 1, count_);
  }
  walk.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return walk;
}

boost::json::object Evaluation::json(const Walk& walk) {
  return {{"model", engine().config().model.path},
          {"text", args_.text_file},
          {"context", args_.context},
          {"windows", walk.windows},
          {"tokens_scored", walk.scored},
          {"tok_per_s", per_second(static_cast<double>(walk.fed), walk.seconds)},
          {"memory", to_json(memory_use(engine().pipeline()))}};
}

std::string Evaluation::line(const std::string& measure, std::vector<std::string> words) {
  std::vector<std::string> all = {"--text", args_.text_file, "--context", std::to_string(args_.context)};
  if (args_.max_windows > 0) all.insert(all.end(), {"--max-windows", std::to_string(args_.max_windows)});
  if (args_.buckets > 0) all.insert(all.end(), {"--buckets", std::to_string(args_.buckets)});
  if (args_.json) all.push_back("--json");
  all.insert(all.end(), words.begin(), words.end());
  return eval_line(engine(), args_.pipeline, measure, all);
}

Run add_eval(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "Measure how well a pipeline does");
  eval->require_subcommand(1);
  return [measures = std::vector{add_perplexity(*eval), add_kld(*eval), add_choices(*eval), add_retrieval(*eval)}] {
    int code = -1;
    for (size_t i = 0; code < 0 && i < measures.size(); ++i) code = measures[i]();
    return code;
  };
}

}  // namespace tenon::app
