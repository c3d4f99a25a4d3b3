// `tenon tune` finds for each set of matrices the scheme that costs least. For every candidate a pipeline holds all
// matrices by it, and the ops that stand at a site's path are timed in whole steps, as they run there (bench_ops.h), or
// taken at the bytes that they say. What a site loses is measured with a candidate at that site alone.
#include "tune.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "bench.h"
#include "bench_ops.h"
#include "divergence.h"
#include "eval.h"
#include "json_text.h"
#include "output_path.h"
#include "spdlog/spdlog.h"
#include "tenon/core/atomic_file.h"
#include "tenon/core/program.h"
#include "tune_choice.h"

namespace tenon::app {
namespace {

constexpr uint32_t kNewTokens = 28;  // bench_ops times 20 of these steps

struct Args {
  PipelineArgs pipeline;
  std::vector<std::string> candidates;
  std::vector<uint32_t> batches = {1};
  uint32_t prompt_tokens = 64, context = 256, max_windows = 2;
  std::string cost = "time", text_file, output;
  LossBounds bounds;
  bool json = false;
};

using SiteCosts = std::map<std::string, double>;  // by path

PipelineArgs with_settings(PipelineArgs args, const std::vector<std::string>& set) {
  args.set.insert(args.set.end(), set.begin(), set.end());
  return args;
}

// Puts the candidate at all products. An override does not inherit the parameters of the scheme that it stands in for.
std::string everywhere(const Candidate& c) {
  return "quantization.override=[{match = \"layers.*\", " + c.toml() + "}, {match = \"lm_head\", " + c.toml() + "}]";
}

std::unique_ptr<Engine> open(const PipelineArgs& args, uint32_t sequences) {
  return Engine::open({.config = args.config,
                       .set = args.overrides(),
                       .plugin_dirs = args.plugin_dirs,
                       .model_dirs = args.model_dirs,
                       .sequences = sequences});
}

// Returns the paths at which a product stands, with what all ops there cost.
SiteCosts at_sites(std::span<const profiler::OpGroup> groups, double (*cost)(const profiler::OpGroup&)) {
  SiteCosts sites;
  for (const profiler::OpGroup& g : groups) {
    const bool product = g.path.starts_with("layers.") || g.path == "lm_head";
    if (product && g.component.starts_with("quantization.")) sites[g.path] = 0;
  }
  for (const profiler::OpGroup& g : groups) {
    const auto site = sites.find(g.path);
    if (site != sites.end()) site->second += cost(g);
  }
  return sites;
}

// Returns the smallest program of decode steps of so many rows.
const Program& decode_program(const Pipeline& pipeline, uint32_t rows) {
  const Program* best = nullptr;
  for (const Program* p : pipeline.programs()) {
    if (p->bounds().rows < rows || p->bounds().out_rows < rows) continue;
    if (best == nullptr || p->bounds().rows < best->bounds().rows) best = p;
  }
  if (best == nullptr)
    throw Error(ErrorCode::kUsage, "--batch " + std::to_string(rows) + ": no program has so many rows");
  return *best;
}

class Tuning {
 public:
  explicit Tuning(const Args& args) : args_(args) {
    for (const std::string& text : args.candidates) report_.candidates.push_back(Candidate::parse(text));
    report_.batches = args.batches;
    report_.unit = args.cost == "time" ? "us a decode step" : "MB that a decode step reads and writes";
  }

  TuneReport run() {
    for (size_t c = 0; c < report_.candidates.size(); ++c) add_costs(c);
    if (report_.sites.empty()) {
      std::string why;
      for (const auto& [name, reason] : report_.refused) why += "\n  " + name + ": " + reason;
      throw Error(ErrorCode::kRequest, "the model runs with none of the candidates:" + why);
    }
    if (!args_.text_file.empty()) add_losses();
    choose(report_.sites, report_.candidates, args_.bounds);
    if (!args_.text_file.empty()) report_.loss = loss({"quantization.override=" + overrides_toml(report_)});
    write();
    return std::move(report_);
  }

 private:
  void add_costs(size_t c) {
    const Candidate& candidate = report_.candidates[c];
    try {
      std::vector<SiteCosts> by_batch;
      for (const uint32_t batch : args_.batches) by_batch.push_back(costs(candidate, batch));
      for (const auto& [path, cost] : by_batch.front()) {
        SiteCost& site = site_at(path).candidates[c].emplace();
        for (const SiteCosts& costs : by_batch) site.cost.push_back(costs.at(path));
      }
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kUsage) throw;
      report_.refused.emplace_back(candidate.text, e.diagnostics().front().message);
    }
  }
  TunedSite& site_at(const std::string& path) {
    const auto found =
        std::find_if(report_.sites.begin(), report_.sites.end(), [&](const auto& s) { return s.path == path; });
    if (found != report_.sites.end()) return *found;
    return report_.sites.emplace_back(
        TunedSite{path, std::vector<std::optional<SiteCost>>(report_.candidates.size()), 0});
  }

  SiteCosts costs(const Candidate& candidate, uint32_t batch) {
    std::vector<std::string> set = {everywhere(candidate)};
    set.push_back("kv_cache.capacity=" + std::to_string(args_.prompt_tokens + kNewTokens + 1));
    const std::unique_ptr<Engine> engine = open(with_settings(args_.pipeline, set), batch);
    if (args_.cost == "bytes") {
      const Program& program = decode_program(engine->pipeline(), batch);
      profiler::OpTimes none;
      none.op_us.resize(program.ops().size());
      const auto groups =
          profiler::group_ops(program.ops(), none, batch, static_cast<double>(batch) * args_.prompt_tokens);
      return at_sites(groups, [](const profiler::OpGroup& g) { return g.bytes / 1e6; });
    }
    engine->load();
    const OpReport report = ops_.measure(*engine, {batch, args_.prompt_tokens, kNewTokens},
                                         [&](uint32_t length) { return make_prompts(*engine, batch, length); });
    if (!report.problem.empty()) throw Error(ErrorCode::kUsage, report.problem);
    return at_sites(report.groups, [](const profiler::OpGroup& g) { return g.us; });
  }

  // Returns what is lost against the pipeline as the arguments have it: the mean KL divergence
  // and, if there is a bound of it, the SQNR.
  Loss loss(const std::vector<std::string>& set) {
    EvalArgs eval;
    eval.pipeline = with_settings(args_.pipeline, set);
    eval.text_file = args_.text_file;
    eval.context = args_.context;
    eval.max_windows = args_.max_windows;
    Evaluation evaluation(eval);
    const bool first = base_.empty(), with_noise = args_.bounds.min_sqnr.has_value();
    double sum = 0;
    SignalToNoise ratio;
    size_t at = 0;
    const Walk walk = evaluation.walk([&](std::span<const float> values, int32_t token) {
      const Logits logits(values);
      if (first) {
        if (with_noise) base_logits_.emplace_back(values.begin(), values.end());
        return base_.emplace_back().assign(logits, token);
      }
      if (with_noise) ratio.add(base_logits_[at], values);
      sum += kl_divergence(base_[at++], logits);
    });
    if (walk.windows < evaluation.count()) throw Interrupted();
    Loss loss{.divergence = at == 0 ? 0 : sum / static_cast<double>(at), .sqnr = {}};
    if (with_noise) loss.sqnr = ratio.decibels();
    return loss;
  }
  void add_losses() {
    (void)loss({});  // this is the base
    for (TunedSite& site : report_.sites) {
      for (size_t c = 0; c < site.candidates.size(); ++c) {
        if (!site.candidates[c]) continue;
        site.candidates[c]->loss =
            loss({"quantization.override=[{match = \"" + site.path + "\", " + report_.candidates[c].toml() + "}]"});
      }
    }
  }

  // The file states the whole pipeline, so that it gives the same one whatever the defaults are by then.
  void write() {
    const PipelineArgs tuned = with_settings(args_.pipeline, {"quantization.override=" + overrides_toml(report_)});
    if (args_.output.empty()) return;
    const auto engine = open(tuned, 0);
    const std::string text = to_toml(engine->config());
    AtomicFile file(args_.output);
    const auto check = [&](std::error_code error) {
      if (error) throw Error(ErrorCode::kIo, {args_.output}, "cannot be written: " + error.message());
    };
    check(file.write_at(std::as_bytes(std::span(text)), 0));
    check(file.sync());
    check(file.commit());
    report_.file = args_.output;
  }

  const Args& args_;
  TuneReport report_;
  OpBench ops_{interruption()};
  std::vector<CodedRow> base_;                   // by scored token
  std::vector<std::vector<float>> base_logits_;  // it has the same, in f32; empty: nobody asked for the SQNR
};

// A name that no installed component has is a mistake of the command, not a scheme that does not fit.
void check_known(const Args& args) {
  const std::unique_ptr<Registry> registry = make_registry(args.pipeline.plugin_dirs);
  std::vector<std::string> known = registry->names("quantization", "cpu");
  const std::vector<std::string> on_gpu = registry->names("quantization", "cuda");
  known.insert(known.end(), on_gpu.begin(), on_gpu.end());
  for (const std::string& text : args.candidates) {
    const std::string name = Candidate::parse(text).scheme;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    throw Error(ErrorCode::kUsage, "--candidates: there is no quantization component \"" + name + "\"" +
                                       (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }
}

int run(const Args& args) {
  check_output(args.output, std::vector{args.pipeline.config, args.text_file}, args.pipeline.force);
  if (args.text_file.empty() && (args.bounds.max_divergence || args.bounds.min_sqnr)) {
    throw Error(ErrorCode::kUsage, std::string(args.bounds.max_divergence ? "--max-divergence" : "--min-sqnr") +
                                       " needs --text, over which it is measured");
  }
  check_known(args);
  const TuneReport report = Tuning(args).run();
  std::printf("%s", args.json ? (json_text(to_json(report)) + "\n").c_str() : tune_table(report).c_str());
  return kOk;
}

constexpr const char* kFooter =
    R"(A candidate is the name of a quantization component, with parameters as a pipeline file has them:
int4wo, int4wo:group_size=32, uintx:bits=6. For each set of matrices the one is chosen whose ops take the least time over
the decode steps of all batches, with what stands beside them (norms that a scheme does not claim), in whole steps as they
run; a captured step is replayed as such. --cost bytes takes what the ops say that they read and write instead, and
loads no weights.

With --text the divergence of each candidate at each set is measured, from the pipeline as CONFIG_OR_MODEL and --set have
it; --max-divergence leaves out what is worse, and the divergence of all that was chosen together is printed. --min-sqnr
does the same by the ratio of signal to noise in the logits.

Examples:
  tenon tune model-f16.gguf --candidates int8wo,int4wo:group_size=32,none --output tuned.toml
  tenon tune model-f16.gguf --candidates int8wo,int4wo --text text.txt --max-divergence 0.02 --output tuned.toml
  tenon generate tuned.toml -p "Once upon a time"

Exit codes: 0 done; 2 command line; 8 the model runs with none of the candidates, or none is within the bounds.)";

}  // namespace

Run add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tune", "Find the scheme for each set of matrices that costs least.");
  auto args = std::make_shared<Args>();
  args->pipeline.add_to(*command);
  command->add_option("--candidates", args->candidates, "Schemes to choose among, by commas; of equals the first")
      ->delimiter(',')
      ->required();
  command->add_option("--batch", args->batches, "Sequences of a decode step; several by commas, each counts the same")
      ->delimiter(',')
      ->check(CLI::Range(1U, 4096U))
      ->capture_default_str();
  command->add_option("--prompt-tokens", args->prompt_tokens, "Tokens before the steps")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  command->add_option("--cost", args->cost, "time, or bytes: what the ops say")
      ->check(CLI::IsMember({"time", "bytes"}))
      ->capture_default_str();
  command->add_option("--text", args->text_file, "A text over which divergences are measured");
  command
      ->add_option("--max-divergence", args->bounds.max_divergence,
                   "Mean KL divergence that a candidate may have at a set, nats")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--min-sqnr", args->bounds.min_sqnr,
                      "Signal to noise that a candidate must leave in the logits at a set, dB");
  command->add_option("--context", args->context, "Tokens of a window of the text")
      ->check(CLI::Range(4U, 1U << 20))
      ->capture_default_str();
  command->add_option("--max-windows", args->max_windows, "Windows of the text to read at most; 0 = all")
      ->capture_default_str();
  command->add_option("--output", args->output, "A pipeline file to write, with the overrides");
  command->add_flag("--json", args->json, "Print JSON");
  command->footer(kFooter);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
