// `tenon quantize`: a GGUF file written anew with its matrices in another format.
#include "tenon/core/quantize.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "command.h"
#include "progress.h"
#include "spdlog/spdlog.h"
#include "tenon/core/memory_plan.h"

namespace tenon::app {
namespace {

struct Args {
  std::string input, output, scheme;
  std::vector<std::string> overrides;
  bool force = false;
};

constexpr const char* kFooter = R"(Schemes, with bits a weight:
  F32 32    F16 16     BF16 16
  Q8_0 8.5  blocks of 32; hard to tell from F16
  Q6_K 6.56 blocks of 256
  Q5_1 6    Q5_0 5.5   blocks of 32
  Q4_1 5    Q4_0 4.5   blocks of 32; small and fast
  Q4_K 4.5  blocks of 256

Matrices get the scheme, all of them; tensors of one dimension (norms, biases) stay F32. A matrix whose rows are no whole
number of blocks is kept in F16. All weights are rounded to the nearest, without calibration.

Examples:
  tenon quantize model-f16.gguf model-q8_0.gguf --scheme Q8_0
  tenon quantize model-f16.gguf model-q4_0.gguf --scheme Q4_0 --override "output.weight=Q8_0" --override "token_embd*=Q8_0"
  tenon eval perplexity model-q4_0.gguf --text-file text.txt       what it cost
  tenon inspect --model model-f16.gguf                             the tensors' names

Exit codes: 0 done; 2 command line (also: OUT is there, an override matches nothing); 5 IN is no GGUF model or holds
weights that cannot be stored (NaN, infinite, too large); 7 a file cannot be read or written; 130 interrupted by Ctrl-C.
OUT appears when it is complete, or not at all.)";

GgufOverride parse_override(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorCode::kUsage, "--override " + text + ": write GLOB=SCHEME, as in \"output.weight=Q8_0\"");
  }
  return {text.substr(0, equals), gguf_scheme(text.substr(equals + 1)).format};
}

void check_output(const std::string& output) {
  if (std::filesystem::path(output).extension() == ".gguf") return;
  throw Error(ErrorCode::kUsage, {output}, "OUT must end in .gguf; other kinds of file are not written");
}

void warn_of(const QuantizeReport& report) {
  std::map<std::pair<tenon_format, int64_t>, std::vector<std::string>> groups;
  for (const QuantizeException& e : report.exceptions) groups[{e.wanted, e.width}].push_back(e.tensor);
  for (const auto& [kind, names] : groups) {
    const auto [wanted, width] = kind;
    const size_t shown = std::min<size_t>(names.size(), 4);
    spdlog::warn("{} kept in f16: rows of {} weights are no whole number of {}'s blocks of {}: {}{}",
                 names.size() == 1 ? "one matrix is" : fmt::format("{} matrices are", names.size()), width,
                 tenon_format_name(wanted), tenon_format_block(wanted).elements,
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
    formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", count, tenon_format_name(format));
  const double bits =
      8.0 * static_cast<double>(report.bytes_written) / std::max(1.0, static_cast<double>(report.weights));
  return fmt::format("{}: {} from {} | {:.2f} bits a weight | tensors: {} | {:.1f} s", args.output,
                     format_bytes(report.file_bytes), format_bytes(report.input_bytes), bits, formats, seconds);
}

int run(const Args& args) {
  check_output(args.output);
  QuantizeOptions options;
  options.format = gguf_scheme(args.scheme).format;
  options.replace = args.force;
  for (const std::string& text : args.overrides) options.overrides.push_back(parse_override(text));
  const std::stop_token cancel = interruption();
  Progress progress("quantizing");
  options.progress = [&](const QuantizeProgress& p) {
    progress.update(p.done, p.total,
                    fmt::format("tensor {} of {} ({}), {} of {}", p.tensor, p.tensors, p.name, format_bytes(p.done),
                                format_bytes(p.total)));
    if (cancel.stop_requested()) throw Interrupted();
  };
  const auto start = std::chrono::steady_clock::now();
  const QuantizeReport report = quantize_gguf(args.input, args.output, options);
  progress.finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  warn_of(report);
  if (!verbosity().quiet) std::fprintf(stderr, "%s\n", result_line(args, report, took.count()).c_str());
  return kOk;
}

}  // namespace

Run add_quantize(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("quantize", "Write a GGUF file anew with its matrices in a smaller (or larger) format.");
  auto args = std::make_shared<Args>();
  command->add_option("IN", args->input, "A GGUF file; of a split one any part")->required();
  command->add_option("OUT", args->output, "The file to write; ends in .gguf")->required();
  command->add_option("--scheme", args->scheme, "What matrices are stored as, such as Q8_0; see below")->required();
  command
      ->add_option("--override", args->overrides,
                   "GLOB=SCHEME: another scheme for the matrices whose names match (repeatable; the last that matches "
                   "holds)")
      ->allow_extra_args(false);
  command->add_flag("--force", args->force, "Replace OUT if it is there");
  command->footer(kFooter);
  return [command, args] { return command->parsed() ? run(*args) : -1; };
}

}  // namespace tenon::app
