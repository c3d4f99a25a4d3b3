// `tenon quantize` writes a model anew, with its matrices in another format.
#include "tenon/core/quantize.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "command.h"
#include "output_path.h"
#include "progress.h"
#include "spdlog/spdlog.h"
#include "tenon/core/engine.h"
#include "tenon/core/memory_plan.h"
#include "text_input.h"

namespace tenon::app {
namespace {

struct Args {
  std::string input, output, scheme;
  std::vector<std::string> overrides;
  std::vector<std::string> set;
  std::vector<std::filesystem::path> plugin_dirs, model_dirs;
  std::string group_size, text_file, device;
  uint32_t context = 512, max_windows = 128;
  bool force = false;
};

constexpr const char* kFooter = R"(Schemes, with bits a weight. OUT is a GGUF file for
  F32 32    F16 16     BF16 16
  Q8_0 8.5  blocks of 32; hard to tell from F16
  Q6_K 6.56 blocks of 256
  Q5_1 6    Q5_0 5.5   blocks of 32
  Q4_1 5    Q4_0 4.5   blocks of 32; small and fast
  Q5_K 5.5  Q4_K 4.5  Q3_K 3.44  Q2_K 2.63   blocks of 256, whose scales are searched for: slower to make
  IQ4_NL 4.5  IQ4_XS 4.25   blocks of 32 and of 256 whose codes choose out of sixteen numbers; scales likewise
and a new folder with safetensors, config.json and tokenizer for every quantization component that writes files, such as
  int8wo 8  one scale a row
  int8dq 8  the same, and x becomes int8 in each step; absmax and llm_int8 alike
  int4wo 4.5 groups of 64 with scale and zero point; 5, 4.25, 4.125 with --set group_size=32, 128, 256
  nf4    4.5 blocks of 64 with a scale; 4.13 with --set double_quantization=true; fp4 alike, for floats of 4 bits
  fp8    8   e4m3, one scale a row; with --set activations=static, meant for --calibrate, x becomes e4m3, too
  uintx  4.4 groups of 64 with scale and zero point, 1 to 8 bits with --set bits=N; any multiple of 8 as group_size
  fp6    6   e3m2 or, with --set format=NAME, e2m3 and, of 5 bits, e2m2 and e3m1; one scale a row
  gptq   4.2 groups of 128 with scale and zero point; --set bits=N: 2, 3, 4 or 8; meant for --calibrate
  sparse24 3.13 two of every four weights, in 4 bits with a scale for 128; 64, 32 or a row with --set group_size=N
which run with quantization.use = "auto", or the component's name. `tenon inspect` lists the components, those of others
too, and `tenon inspect quantization.NAME` the parameters that --set takes.

Matrices get the scheme, all but the routers of mixtures; tensors of one dimension (norms, biases) stay F32, in
safetensors as they are. A router, and a matrix whose rows are no whole number of blocks or that a component refuses, is
kept in F16.

With --calibrate a component chooses by what goes into its matrices while a text runs through the model: each layer is
quantized with what it sees after the layers that are quantized already. The text runs through every layer twice, as it
was and as it is stored. Layers, and the rows between them (4 bytes for each token and column of the model's width, two
times), are stored in OUT.calibrated until OUT is complete: after an interruption the same command goes on from them.
Without a text all weights are rounded by themselves.

Examples:
  tenon quantize model-f16.gguf model-q8_0.gguf --scheme Q8_0
  tenon quantize Llama-3.2-1B model-q4_0.gguf --scheme Q4_0        a Hugging Face folder, its tokenizer included
  tenon quantize Llama-3.2-1B Llama-3.2-1B-int4 --scheme int4wo --set group_size=32
  tenon generate Llama-3.2-1B-int4 --set quantization.use=auto
  tenon quantize Llama-3.2-1B small --scheme acme.mine --plugin-dir plugins --calibrate text.txt
  tenon quantize model-f16.gguf model-q4_0.gguf --scheme Q4_0 --override "output.weight=Q8_0" --override "token_embd*=Q8_0"
  tenon eval perplexity model-q4_0.gguf --text text.txt            what it cost
  tenon inspect --model model-f16.gguf                             the tensors' names

Exit codes: 0 done; 2 command line (also: OUT is there, an override matches nothing); 5 IN is no model that can be
translated or holds weights that cannot be stored (NaN, infinite, too large); 7 a file cannot be read or written; 130
interrupted by Ctrl-C. OUT appears when it is complete, or not at all.)";

// Splits "a=b" at the last "=".
std::pair<std::string, std::string> split(const char* option, const std::string& text, const char* form) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorCode::kUsage, fmt::format("{} {}: write {}", option, text, form));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// --set has parameters of schemes, and one key that means what it means for runs. Takes that one out of `set`.
std::vector<std::string> take_ignored_keys(std::vector<std::string>& set, Registry& registry) {
  const auto is_scheme = [](const std::string& text) { return !text.starts_with("model.ignore_unknown="); };
  const auto begin = std::stable_partition(set.begin(), set.end(), is_scheme);
  if (begin == set.end()) return {};
  RegistrySchemas schemas(registry);
  PipelineConfig config = resolve(load_config("", {begin, set.end()}), schemas, ModelPath::kOptional);
  set.erase(begin, set.end());
  return std::move(config.model.ignore_unknown);
}

QuantizeOptions options_of(const Args& args, Registry& registry) {
  std::vector<std::string> names = {args.scheme};
  std::vector<std::string> set = args.set;
  std::vector<QuantizeSetting> settings;
  QuantizeOptions options;
  options.ignore_unknown = take_ignored_keys(set, registry);
  options.model_dirs = args.model_dirs;
  for (const std::string& text : args.overrides) {
    auto [match, name] = split("--override", text, "GLOB=SCHEME, as in \"output.weight=Q8_0\"");
    options.overrides.push_back({match, {}});
    names.push_back(name);
  }
  for (const std::string& text : set) settings.push_back(split("--set", text, "NAME=VALUE, as in group_size=32"));
  if (!args.group_size.empty()) settings.emplace_back("group_size", args.group_size);
  const std::vector<QuantizeTarget> targets = quantize_targets(names, settings, registry);
  options.target = targets.front();
  for (size_t i = 0; i < options.overrides.size(); ++i) options.overrides[i].target = targets[i + 1];
  options.replace = args.force;
  if (args.text_file.empty()) return options;
  QuantizeCalibration& calibration = options.calibration.emplace();
  calibration.text = text_of_file(args.text_file);
  calibration.context = args.context;
  calibration.windows = args.max_windows;
  if (!args.device.empty()) calibration.set.push_back("device.use=" + args.device);
  calibration.registry = &registry;
  return options;
}

// No option replaces a folder that is there: quantize_model() says so.
void check_out(const Args& args, const QuantizeTarget& target) {
  const std::string& output = args.output;
  const bool gguf = std::filesystem::path(output).extension() == ".gguf";
  if (gguf && !target.makes_folder()) check_output(output, std::vector{args.input, args.text_file}, args.force);
  if (gguf != target.makes_folder()) return;
  throw Error(ErrorCode::kUsage, {output},
              gguf
                  ? "OUT is a folder for " + target.name() + ", which GGUF has not; name one that does not end in .gguf"
                  : "OUT must end in .gguf; only quantization components make a folder");
}

void warn_of(const QuantizeReport& report) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> groups;
  for (const QuantizeException& e : report.exceptions) groups[{e.wanted, e.reason}].push_back(e.tensor);
  for (const auto& [kind, names] : groups) {
    const size_t shown = std::min<size_t>(names.size(), 4);
    spdlog::warn("{} kept as floats, not {}: {}: {}{}",
                 names.size() == 1 ? "one matrix is" : fmt::format("{} matrices are", names.size()), kind.first,
                 kind.second, fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                 shown < names.size() ? ", ..." : "");
  }
  if (const size_t count = report.unseen.size(); count > 0) {
    const size_t shown = std::min<size_t>(count, 4);
    spdlog::warn(
        "{} rounded as without a text: no row of it came to the expert, or the scheme does not observe experts "
        "on this device: {}{}",
        count == 1 ? "one matrix was" : fmt::format("{} matrices were", count),
        fmt::join(report.unseen.begin(), report.unseen.begin() + static_cast<ptrdiff_t>(shown), ", "),
        shown < count ? ", ..." : "");
  }
  if (report.requantized > 0) {
    spdlog::warn("{} matrices were quantized already; what they had lost stays lost. Start from F16, BF16 or F32",
                 report.requantized);
  }
}

std::string progress_line(const QuantizeProgress& p) {
  if (p.windows > 0) return fmt::format("{}: window {} of {} read", p.name, p.window, p.windows);
  return fmt::format("tensor {} of {} ({}), {} of {}", p.tensor, p.tensors, p.name, format_bytes(p.done),
                     format_bytes(p.total));
}

std::string result_line(const Args& args, const QuantizeReport& report, double seconds) {
  std::string formats;
  for (const auto& [format, count] : report.tensors)
    formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", count, format);
  const double bits =
      8.0 * static_cast<double>(report.bytes_written) / std::max(1.0, static_cast<double>(report.weights));
  return fmt::format("{}: {} from {} | {:.2f} bits a weight | tensors: {} | {:.1f} s", args.output,
                     format_bytes(report.file_bytes), format_bytes(report.input_bytes), bits, formats, seconds);
}

int run(const Args& args) {
  const std::unique_ptr<Registry> registry = make_registry(args.plugin_dirs);
  for (const ScanNotice& notice : registry->notices()) {
    if (notice.refused) spdlog::warn("refused: {}", notice.message);
  }
  QuantizeOptions options = options_of(args, *registry);
  check_out(args, options.target);
  const std::stop_token cancel = interruption();
  Progress progress("quantizing");
  options.progress = [&](const QuantizeProgress& p) {
    progress.update(p.done, p.total, progress_line(p));
    if (cancel.stop_requested()) throw Interrupted();
  };
  const auto start = std::chrono::steady_clock::now();
  const QuantizeReport report = quantize_model(args.input, args.output, options);
  if (report.resumed > 0) spdlog::info("{} layers were taken as an earlier run had stored them", report.resumed);
  progress.finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  warn_of(report);
  if (!verbosity().quiet) std::fprintf(stderr, "%s\n", result_line(args, report, took.count()).c_str());
  return kOk;
}

}  // namespace

Run add_quantize(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("quantize", "Write a model anew with its matrices in a smaller (or larger) format.");
  auto args = std::make_shared<Args>();
  command->add_option("IN", args->input, "A GGUF file (of a split one any part), or a Hugging Face folder")->required();
  command
      ->add_option("OUT", args->output,
                   "The file to write, which ends in .gguf; for a quantization component a new folder")
      ->required();
  command->add_option("--scheme", args->scheme, "What matrices are stored as, such as Q8_0; see below")->required();
  command
      ->add_option("--override", args->overrides,
                   "GLOB=SCHEME: another scheme for the matrices whose names in OUT match (repeatable; the last "
                   "that matches holds)")
      ->allow_extra_args(false);
  command
      ->add_option("--set", args->set,
                   "NAME=VALUE: a parameter of the quantization components that have it, or COMPONENT.NAME=VALUE; "
                   "model.ignore_unknown=[...] as for runs (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--group-size", args->group_size, "The same as --set group_size=N");
  command->add_option("--calibrate", args->text_file, "A text that runs through the model for schemes that observe");
  command->add_option("--context", args->context, "Tokens of a window of the text")
      ->check(CLI::Range(1U, 1U << 20))
      ->capture_default_str();
  command->add_option("--max-windows", args->max_windows, "Windows of the text to read at most; 0 = all")
      ->capture_default_str();
  command->add_option("--device", args->device, "Where the text runs: cpu, cuda; else as pipelines do by default");
  command->add_option("--plugin-dir", args->plugin_dirs, "Search this folder for plugins first (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--model-dir", args->model_dirs, "Search this folder for model families first (repeatable)")
      ->allow_extra_args(false);
  add_force(*command, args->force);
  command->footer(kFooter);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
