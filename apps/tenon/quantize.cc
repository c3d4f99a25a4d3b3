// `tenon quantize`: a model written anew with its matrices in another format.
#include "tenon/core/quantize.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "command.h"
#include "progress.h"
#include "spdlog/spdlog.h"
#include "tenon/core/memory_plan.h"
#include "tenon/core/quantized_rows.h"

namespace tenon::app {
namespace {

struct Args {
  std::string input, output, scheme;
  std::vector<std::string> overrides;
  uint32_t group_size = 64;
  bool force = false;
};

constexpr const char* kFooter = R"(Schemes, with bits a weight. OUT is a GGUF file for
  F32 32    F16 16     BF16 16
  Q8_0 8.5  blocks of 32; hard to tell from F16
  Q6_K 6.56 blocks of 256
  Q5_1 6    Q5_0 5.5   blocks of 32
  Q4_1 5    Q4_0 4.5   blocks of 32; small and fast
  Q4_K 4.5  blocks of 256
and a new folder with safetensors, config.json and tokenizer for
  int8wo 8  one scale a row
  int4wo 4.5 groups of 64 with scale and zero point; 5, 4.25, 4.125 with --group-size 32, 128, 256
which run with quantization.use = "int8wo" or "int4wo".

Matrices get the scheme, all of them; tensors of one dimension (norms, biases) stay F32, in safetensors as they are. A
matrix whose rows are no whole number of blocks is kept in F16. All weights are rounded to the nearest, without
calibration.

Examples:
  tenon quantize model-f16.gguf model-q8_0.gguf --scheme Q8_0
  tenon quantize Llama-3.2-1B model-q4_0.gguf --scheme Q4_0        a Hugging Face folder, its tokenizer included
  tenon quantize Llama-3.2-1B Llama-3.2-1B-int4 --scheme int4wo --group-size 32
  tenon generate Llama-3.2-1B-int4 --set quantization.use=int4wo
  tenon quantize model-f16.gguf model-q4_0.gguf --scheme Q4_0 --override "output.weight=Q8_0" --override "token_embd*=Q8_0"
  tenon eval perplexity model-q4_0.gguf --text text.txt            what it cost
  tenon inspect --model model-f16.gguf                             the tensors' names

Exit codes: 0 done; 2 command line (also: OUT is there, an override matches nothing); 5 IN is no model that can be
translated or holds weights that cannot be stored (NaN, infinite, too large); 7 a file cannot be read or written; 130
interrupted by Ctrl-C. OUT appears when it is complete, or not at all.)";

QuantizeOverride parse_override(const std::string& text, uint32_t group_size) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorCode::kUsage, "--override " + text + ": write GLOB=SCHEME, as in \"output.weight=Q8_0\"");
  }
  return {text.substr(0, equals), quantize_format(text.substr(equals + 1), group_size)};
}

void check_output(const std::string& output, tenon_format format) {
  const bool gguf = std::filesystem::path(output).extension() == ".gguf";
  if (gguf != makes_folder(format)) return;
  throw Error(ErrorCode::kUsage, {output},
              gguf ? "OUT is a folder for int8wo and int4wo, which GGUF has not; name one that does not end in .gguf"
                   : "OUT must end in .gguf; only int8wo and int4wo make a folder");
}

void warn_of(const QuantizeReport& report) {
  std::map<std::pair<tenon_format, int64_t>, std::vector<std::string>> groups;
  for (const QuantizeException& e : report.exceptions) groups[{e.wanted, e.width}].push_back(e.tensor);
  for (const auto& [kind, names] : groups) {
    const auto [wanted, width] = kind;
    const size_t shown = std::min<size_t>(names.size(), 4);
    spdlog::warn("{} kept in f16: rows of {} weights are no whole number of {}'s blocks of {}: {}{}",
                 names.size() == 1 ? "one matrix is" : fmt::format("{} matrices are", names.size()), width,
                 sdk::format_name(wanted), tenon_format_block(wanted).elements,
                 fmt::join(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", "),
                 shown < names.size() ? ", ..." : "");
  }
  if (report.requantized > 0) {
    spdlog::warn("{} matrices were quantized already; what they had lost stays lost. Start from F16, BF16 or F32",
                 report.requantized);
  }
}

std::string result_line(const Args& args, const QuantizeReport& report, double seconds) {
  std::string formats;
  for (const auto& [format, count] : report.tensors)
    formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", count, sdk::format_name(format));
  const double bits =
      8.0 * static_cast<double>(report.bytes_written) / std::max(1.0, static_cast<double>(report.weights));
  return fmt::format("{}: {} from {} | {:.2f} bits a weight | tensors: {} | {:.1f} s", args.output,
                     format_bytes(report.file_bytes), format_bytes(report.input_bytes), bits, formats, seconds);
}

int run(const Args& args) {
  QuantizeOptions options;
  options.format = quantize_format(args.scheme, args.group_size);
  options.replace = args.force;
  check_output(args.output, options.format);
  for (const std::string& text : args.overrides) options.overrides.push_back(parse_override(text, args.group_size));
  const std::stop_token cancel = interruption();
  Progress progress("quantizing");
  options.progress = [&](const QuantizeProgress& p) {
    progress.update(p.done, p.total,
                    fmt::format("tensor {} of {} ({}), {} of {}", p.tensor, p.tensors, p.name, format_bytes(p.done),
                                format_bytes(p.total)));
    if (cancel.stop_requested()) throw Interrupted();
  };
  const auto start = std::chrono::steady_clock::now();
  const QuantizeReport report = quantize_model(args.input, args.output, options);
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
  command->add_option("OUT", args->output, "The file to write, which ends in .gguf; for int8wo and int4wo a new folder")
      ->required();
  command->add_option("--scheme", args->scheme, "What matrices are stored as, such as Q8_0; see below")->required();
  command
      ->add_option("--override", args->overrides,
                   "GLOB=SCHEME: another scheme for the matrices whose names in OUT match (repeatable; the last "
                   "that matches holds)")
      ->allow_extra_args(false);
  command->add_option("--group-size", args->group_size, "Of int4wo: weights that share a scale: 32, 64, 128 or 256")
      ->capture_default_str();
  command->add_flag("--force", args->force, "Replace OUT if it is a file that is there");
  command->footer(kFooter);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
