// `tenon bench` opens one engine a point, makes a few runs to warm up, and then the runs that count. All runs of a
// point give the same tokens, or it fails; only where sequences rested and rows are not independent of each other they
// may differ. An engine is gone before the next one is made.
#include "bench.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>

#include "bench_ops.h"
#include "command.h"
#include "output_path.h"
#include "progress.h"
#include "sha256.h"
#include "spdlog/spdlog.h"
#include "standard_output.h"
#include "tenon/core/atomic_file.h"
#include "traced_engine.h"

namespace tenon::app {
namespace {

struct Args {
  PipelineArgs pipeline;
  std::vector<uint32_t> prompt_tokens = {512}, new_tokens = {128}, batch = {1}, threads;
  uint32_t warmups = 2, runs = 5;
  bool ops = false;
  std::string format = "table", output;
};

// Makes t-2.json.gz of t.json.gz.
std::string numbered(const std::filesystem::path& path, uint32_t number) {
  std::string name = path.filename();
  name.insert(std::min(name.find('.', 1), name.size()), '-' + std::to_string(number));
  return path.parent_path() / name;
}

std::vector<BenchPoint> points_of(const Args& args) {
  std::vector<BenchPoint> points;
  for (const uint32_t threads : args.threads.empty() ? std::vector<uint32_t>{0} : args.threads) {
    for (const uint32_t batch : args.batch) {
      for (const uint32_t prompt : args.prompt_tokens) {
        for (const uint32_t fresh : args.new_tokens) points.push_back({prompt, fresh, batch, threads});
      }
    }
  }
  if (points.size() > 1) {
    for (size_t i = 0; i < points.size(); ++i) points[i].number = static_cast<uint32_t>(i + 1);
  }
  return points;
}

class Bench {
 public:
  explicit Bench(const Args& args) : args_(args) {
    const auto engine = Engine::open({.config = args.pipeline.config,
                                      .set = args.pipeline.overrides(),
                                      .plugin_dirs = args.pipeline.plugin_dirs,
                                      .model_dirs = args.pipeline.model_dirs});
    model_ = engine->config().model.path;
    capacity_ = engine->config().capacity;
    trace_ = engine->config().trace.path;
    const std::string& scheduler = engine->config().scheduler.name;
    if (scheduler != engine->default_config().scheduler.name && scheduler != kTogether) own_scheduler_ = scheduler;
  }

  const std::string& model() const { return model_; }
  // Returns the path of the point's trace; "" if it has none.
  std::string trace_of(const BenchPoint& point) const {
    return point.number > 0 && !trace_.empty() ? numbered(trace_, point.number) : trace_;
  }

  // Throws Interrupted and Error.
  BenchRow measure(const BenchPoint& point);

 private:
  PipelineArgs arguments(const BenchPoint& point) const;
  std::string line(const Engine& engine, const BenchPoint& point) const;
  // Returns the hash of what came out.
  std::string run(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t new_tokens,
                  RunStats& stats) const;
  const Bandwidth& bandwidth(const Pipeline& pipeline);

  // This scheduler runs several sequences, unless the configuration states another one.
  static constexpr const char* kTogether = "lockstep";

  bool runs_together(const BenchPoint& point) const { return point.batch > 1 && own_scheduler_.empty(); }

  const Args& args_;
  std::string model_, trace_;
  std::string own_scheduler_;  // "" = the configuration leaves it open
  uint32_t capacity_ = 0;      // 0 = the configuration leaves it open
  std::map<uint32_t, Bandwidth> bandwidths_;
  OpBench ops_{interruption()};
};

PipelineArgs Bench::arguments(const BenchPoint& point) const {
  PipelineArgs args = args_.pipeline;
  if (point.threads > 0) args.threads = static_cast<int>(point.threads);
  if (point.number > 0) args.trace = trace_of(point);
  if (capacity_ == 0) {
    const uint64_t tokens = (uint64_t{point.prompt_tokens} + point.new_tokens + 7) / 8 * 8;
    args.set.push_back("kv_cache.capacity=" + std::to_string(tokens));
  }
  if (runs_together(point)) {
    args.set.push_back(std::string("scheduler.use=") + kTogether);
    args.set.push_back("scheduler.sequences=" + std::to_string(point.batch));
  }
  return args;
}

std::string Bench::line(const Engine& engine, const BenchPoint& point) const {
  const std::vector<std::string> all = reproducing_words(engine, "bench", args_.pipeline);
  std::vector<std::string> words = {all.begin(), all.begin() + 3};
  for (size_t i = 3; i + 1 < all.size(); i += 2) {  // takes all keys but those that follow from the point
    const std::string& value = all[i + 1];
    const bool implied = value.starts_with("device.threads=") ||
                         (capacity_ == 0 && value.starts_with("kv_cache.capacity=")) ||
                         (runs_together(point) && value.starts_with("scheduler."));
    if (!implied) words.insert(words.end(), {all[i], value});
  }
  words.insert(words.end(), {"--prompt-tokens", std::to_string(point.prompt_tokens), "--new-tokens",
                             std::to_string(point.new_tokens), "--batch", std::to_string(point.batch)});
  if ((engine.pipeline().device().flags & TENON_DEVICE_WALKS) != 0) {
    words.insert(words.end(), {"--threads", std::to_string(engine.pipeline().threads())});
  }
  if (args_.warmups != 2) words.insert(words.end(), {"--warmups", std::to_string(args_.warmups)});
  if (args_.runs != 5) words.insert(words.end(), {"--runs", std::to_string(args_.runs)});
  if (args_.ops) words.push_back("--ops");
  if (args_.format != "table") words.insert(words.end(), {"--format", args_.format});
  return shell_line(words);
}

std::string Bench::run(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, uint32_t new_tokens,
                       RunStats& stats) const {
  std::vector<Request> requests(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests[i].tokens = prompts[i];
    requests[i].max_new_tokens = new_tokens;
    requests[i].ignore_end = true;
    requests[i].cancel = interruption();
  }
  std::vector<int32_t> tokens;
  for (const Result& result : engine.generate(requests, &stats)) {
    if (result.error) std::rethrow_exception(result.error);
    if (result.finish == FinishReason::kCancelled) throw Interrupted();
    if (result.tokens.size() != new_tokens) {
      throw Error(ErrorCode::kRequest, "a sequence ended after " + std::to_string(result.tokens.size()) + " of " +
                                           std::to_string(new_tokens) + " tokens: " + to_string(result.finish));
    }
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
  }
  return output_hash(tokens);
}

const Bandwidth& Bench::bandwidth(const Pipeline& pipeline) {
  const auto known = bandwidths_.find(pipeline.threads());
  if (known != bandwidths_.end()) return known->second;
  return bandwidths_.emplace(pipeline.threads(), read_bandwidth(pipeline)).first->second;
}

BenchRow Bench::measure(const BenchPoint& point) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak of the process begins anew if the system allows it
  BenchRow row{.point = point, .scheduler = own_scheduler_};
  TracedEngine traced_engine(arguments(point));
  Engine& engine = traced_engine.engine();
  const std::vector<std::vector<int32_t>> prompts = make_prompts(engine, point.batch, point.prompt_tokens);
  traced_engine.load();
  std::vector<double> prefill, decode, gbps, all;
  bool repeats = true;  // all runs run the same steps, or a row's result does not depend on them
  Progress progress("runs");
  const uint32_t total = args_.warmups + args_.runs;
  for (uint32_t i = 0; i < total; ++i) {
    RunStats stats;
    const auto begin = std::chrono::steady_clock::now();
    const std::string hash = run(engine, prompts, point.new_tokens, stats);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (stats.rested > 0 && engine.pipeline().row_invariant_max() < UINT32_MAX) repeats = false;
    if (!row.hash.empty() && row.hash != hash && repeats) {
      throw Error(ErrorCode::kInternal, "two runs gave different tokens: hash " + row.hash + " and " + hash);
    }
    row.hash = hash;
    progress.update(i + 1, total);
    if (i < args_.warmups) continue;
    prefill.push_back(per_second(static_cast<double>(stats.prompt_tokens), stats.prompt_seconds));
    decode.push_back(per_second(static_cast<double>(stats.decode_tokens), stats.decode_seconds));
    gbps.push_back(decode_gbps(stats));
    all.push_back(per_second(static_cast<double>(stats.new_tokens), seconds.count()));
    row.drafted = stats.drafted;
    row.accepted = stats.accepted;
    row.reused = stats.reused;
  }
  progress.finish();
  row.prefill = spread_of(prefill);
  row.decode = spread_of(decode);
  row.gbps = spread_of(gbps);
  row.all = spread_of(all);
  row.point.threads = engine.pipeline().threads();
  row.memory = memory_use(engine.pipeline());
  row.weight_bytes = engine.pipeline().step_weight_bytes(point.batch);
  row.line = line(engine, point);
  const bool kernels = (engine.pipeline().device().flags & TENON_DEVICE_WALKS) == 0;
  if (args_.ops && kernels && !engine.config().trace.path.empty()) {
    row.ops = OpReport{.problem = "--ops and a trace cannot both record a device's kernels; leave out one of them"};
  } else if (args_.ops) {
    row.ops = ops_.measure(engine, {point.batch, point.prompt_tokens, point.new_tokens},
                           [&](uint32_t length) { return make_prompts(engine, point.batch, length); });
    row.ops->unrecorded_tok_per_s = row.decode.median;
  }
  if (!traced_engine.finish_trace()) throw Error(ErrorCode::kIo, "the trace could not be written");
  row.bandwidth = bandwidth(engine.pipeline());
  return row;
}

// The rows go to standard output, to something that is no regular file, or to a file that has its name when it is
// whole. Until then its name ends in ".part", and it can be read while it grows.
class BenchFile {
 public:
  BenchFile(const std::string& path, bool replace) : path_(path), part_path_(path), replace_(replace) {
    if (path_.empty()) return;
    std::error_code unknown;
    const auto type = std::filesystem::status(path_, unknown).type();
    if (type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::regular) {
      part_path_ += ".part";
    }
    file_.reset(std::fopen(part_path_.c_str(), "wbe"));
    if (!file_) fail({errno, std::generic_category()});
    if (part_path_ != path_) unfinished_output = part_path_.c_str();
  }
  ~BenchFile() {
    unfinished_output = nullptr;
    if (!whole_ && part_path_ != path_) ::unlink(part_path_.c_str());
  }
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;

  std::FILE* stream() const { return file_ ? file_.get() : stdout; }
  // Gives the file its name. Returns false, and has said why, where rows were not written; other faults are thrown.
  bool finish() {
    if (!file_) return true;  // whatever ends the process flushes standard output
    if (!flush_file(file_.get(), path_)) return false;
    if (std::fclose(file_.release()) != 0) fail({errno, std::generic_category()});
    if (part_path_ == path_) return whole_ = true;
    if (const std::error_code error = give_name(part_path_, path_, replace_)) fail(error);
    return whole_ = true;
  }

 private:
  [[noreturn]] void fail(std::error_code error) const {
    throw Error(ErrorCode::kIo, {path_, 0, 0}, "cannot be written: " + error.message());
  }
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_, part_path_;
  bool replace_, whole_ = false;
  std::unique_ptr<std::FILE, Close> file_;
};

int run(const Args& args) {
  interruption();
  Bench bench(args);
  const std::vector<std::string> inputs = {args.pipeline.config, bench.model()};
  check_output(args.output, inputs, args.pipeline.force);
  for (const BenchPoint& point : points_of(args)) check_output(bench.trace_of(point), inputs, args.pipeline.force);
  BenchFile file(args.output, args.pipeline.force);
  const auto output = make_bench_output(args.format, file.stream(), {bench.model(), args.warmups, args.runs, args.ops});
  int code = kOk;
  for (const BenchPoint& point : points_of(args)) {
    if (interruption().stop_requested()) break;
    try {
      const BenchRow row = bench.measure(point);
      if (row.ops && !row.ops->problem.empty()) code = kFailed;
      output->row(row);
    } catch (const Interrupted&) {
      break;
    } catch (const Error& e) {
      const std::string& why = e.diagnostics().front().message;
      spdlog::error("{}", e.what());
      output->row({.point = point, .error = why.substr(0, why.find('\n'))});
      code = kFailed;
    } catch (const std::bad_alloc&) {
      spdlog::error("out of memory");
      output->row({.point = point, .error = "out of host memory"});
      code = kFailed;
    }
  }
  output->end();
  if (!file.finish()) return kIo;
  return interruption().stop_requested() ? interrupted_code() : code;
}

}  // namespace

// Returns ids that are text, drawn by splitmix64 (Steele, Lea, Flood 2014): the same for every pipeline of a model.
std::vector<std::vector<int32_t>> make_prompts(const Engine& engine, uint32_t sequences, uint32_t length) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::vector<int32_t>& ends = tokenizer.info().end_of_generation;
  const int32_t vocab = std::min(tokenizer.info().vocab_size, static_cast<int32_t>(engine.pipeline().model().vocab));
  std::vector<int32_t> plain;
  for (int32_t id = 0; id < vocab; ++id) {
    if (!tokenizer.is_control(id) && !std::binary_search(ends.begin(), ends.end(), id)) plain.push_back(id);
  }
  if (plain.empty()) throw Error(ErrorCode::kModel, "the vocabulary has no token that is text");
  std::vector<std::vector<int32_t>> prompts(sequences);
  uint64_t state = 0;
  for (std::vector<int32_t>& prompt : prompts) {
    for (uint32_t i = 0; i < length; ++i) {
      uint64_t z = state += 0x9E3779B97F4A7C15U;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
      prompt.push_back(plain[(z ^ (z >> 31)) % plain.size()]);
    }
  }
  return prompts;
}

Run add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure prefill and decode over all combinations of the lists given. Each point has an engine of its own, whose "
      "kv_cache.capacity is the prompt and the new tokens unless the configuration states one; prompts are fixed "
      "pseudo-random tokens. A point that fails does not stop the others; the exit code is then 1. With several "
      "points, "
      "each writes a trace of its own: --trace t.json makes t-1.json, t-2.json, ...");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  command->remove_option(command->get_option("--threads"));
  const auto list = [command](const char* name, std::vector<uint32_t>& values, const char* doc) {
    return command->add_option(name, values, doc)->delimiter(',')->check(CLI::Range(1, 1 << 20));
  };
  list("--prompt-tokens", args->prompt_tokens, "Lengths of the prompt: 128,512")->capture_default_str();
  list("--new-tokens", args->new_tokens, "Tokens to generate")->capture_default_str();
  list("--batch", args->batch,
       "Sequences that run in step (scheduler.lockstep if more than one). If the configuration states another "
       "scheduler, they are requests that all come at once")
      ->capture_default_str();
  list("--threads", args->threads, "Threads that compute (device.threads)");
  command->add_option("--warmups", args->warmups, "Runs before those that count")->capture_default_str();
  command->add_option("--runs", args->runs, "Runs that count")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_flag("--ops", args->ops,
                    "Then time the ops of some more decode steps. On a CUDA device CUPTI records their kernels, the "
                    "graph's own where there is one; an op's time is what it adds to the step, from the end of the op "
                    "before it to its own");
  command->add_option("--format", args->format, "table, csv or json")
      ->check(CLI::IsMember({"table", "csv", "json"}))
      ->capture_default_str();
  command->add_option("-o,--output", args->output, "Write to this file instead of standard output");
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
