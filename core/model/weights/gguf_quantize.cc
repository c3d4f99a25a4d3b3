#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>

#include "gguf_encode.h"
#include "gguf_parser.h"
#include "gguf_writer.h"
#include "layout.h"
#include "mapped_file.h"
#include "output_file.h"
#include "tenon/core/quantize.h"
#include "tenon/core/weights.h"
#include "tenon/sdk/cpu/gguf_blocks.h"

namespace tenon {
namespace {

using namespace weights;

constexpr GgufScheme kSchemes[] = {{"F32", TENON_F32, 0},   {"F16", TENON_F16, 1},    {"BF16", TENON_BF16, 32},
                                   {"Q8_0", TENON_Q8_0, 7}, {"Q6_K", TENON_Q6_K, 18}, {"Q5_0", TENON_Q5_0, 8},
                                   {"Q5_1", TENON_Q5_1, 9}, {"Q4_0", TENON_Q4_0, 2},  {"Q4_1", TENON_Q4_1, 3},
                                   {"Q4_K", TENON_Q4_K, 14}};
constexpr uint32_t kQuantizationVersion = 2;  // of ggml's block formats
constexpr size_t kChunk = size_t{1} << 18;    // weights that a thread takes at a time; whole blocks of any format
constexpr size_t kMostThreads = 16;

bool is_blocks(tenon_format format) {
  return tenon_format_block(format).elements > 1;
}

struct Planned {
  const WeightTensor* source;
  tenon_format format;
};

// A matrix whose weights can be read.
bool is_matrix(const WeightTensor& t) {
  return t.shape.size() >= 2 && sdk::cpu::can_unpack(t.format);
}

void check_overrides(const Weights& model, const QuantizeOptions& options) {
  for (const GgufOverride& override : options.overrides) {
    std::vector<std::string> names;
    for (const WeightTensor& t : model.tensors()) {
      if (is_matrix(t)) names.push_back(t.name);
    }
    const auto matches = [&](const std::string& name) { return fnmatch(override.match.c_str(), name.c_str(), 0) == 0; };
    if (std::any_of(names.begin(), names.end(), matches)) continue;
    const std::string nearest = nearest_name(override.match, names);
    throw Error(ErrorCode::kUsage, "override " + in_quotes(override.match) + " matches no matrix of the model" +
                                       (nearest.empty() ? "; tenon inspect --model lists them"
                                                        : "; did you mean " + in_quotes(nearest) + "?"));
  }
}

tenon_format wanted_format(const WeightTensor& t, const QuantizeOptions& options) {
  tenon_format format = options.format;
  for (const GgufOverride& override : options.overrides) {
    if (fnmatch(override.match.c_str(), t.name.c_str(), 0) == 0) format = override.format;
  }
  return format;
}

std::vector<Planned> plan(const Weights& model, const QuantizeOptions& options, QuantizeReport& report) {
  std::vector<Planned> result;
  for (const WeightTensor& t : model.tensors()) {
    tenon_format format = t.format;
    if (is_matrix(t)) {
      const tenon_format wanted = format = wanted_format(t, options);
      if (t.shape.back() % tenon_format_block(wanted).elements != 0) {
        format = TENON_F16;
        report.exceptions.push_back({t.name, wanted, t.shape.back()});
      }
      if (is_blocks(t.format) && t.format != format) ++report.requantized;
    } else if (t.format == TENON_F16 || t.format == TENON_BF16) {
      format = TENON_F32;
    }
    result.push_back({&t, format});
    ++report.tensors[format];
  }
  return result;
}

GgufPairs copy_metadata(const std::filesystem::path& path, tenon_format mostly, bool blocks, uint64_t& alignment) {
  const MappedFile file(path);
  const GgufFile content = parse_gguf(file.bytes(), path.string());
  alignment = content.alignment;
  constexpr std::string_view kFileType = "general.file_type", kVersion = "general.quantization_version";
  const auto scheme =
      std::find_if(std::begin(kSchemes), std::end(kSchemes), [&](const auto& s) { return s.format == mostly; });
  GgufPairs pairs;
  for (const MetadataPair& pair : content.pairs) {
    if (pair.key.starts_with("split.")) continue;
    const auto raw = file.bytes().subspan(pair.begin, pair.end - pair.begin);
    if (pair.key == kFileType) {
      pairs.add_u32(kFileType, scheme->file_type);
    } else {
      pairs.add_raw({reinterpret_cast<const char*>(raw.data()), raw.size()});
    }
  }
  if (!content.metadata.contains(kFileType)) pairs.add_u32(kFileType, scheme->file_type);
  if (blocks && !content.metadata.contains(kVersion)) pairs.add_u32(kVersion, kQuantizationVersion);
  return pairs;
}

// Reads, converts and writes tensors a batch of chunks at a time, one chunk a thread.
class Converter {
 public:
  Converter(const Weights& model, OutputFile& out)
      : model_(model), out_(out), chunks_(std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads)) {
    for (Chunk& chunk : chunks_)
      chunk.weights.resize(kChunk);  // a thread that cannot have memory would end the process
  }

  // `advance` is told the bytes written.
  template <class Advance>
  void convert(const WeightTensor& source, tenon_format format, Advance&& advance) {
    const size_t elements = element_count(source), batch = kChunk * chunks_.size();
    for (size_t first = 0; first < elements; first += batch) {
      const size_t count = std::min(batch, elements - first);
      in_.resize(stored(source.format, count));
      model_.read(source, stored(source.format, first), std::as_writable_bytes(std::span(in_)));
      encoded_.resize(stored(format, count));
      convert_batch(source, format, first, count);
      out_.write(std::as_bytes(std::span(encoded_)));
      advance(encoded_.size());
    }
  }

  static size_t element_count(const WeightTensor& t) {
    size_t count = 1;
    for (const int64_t dim : t.shape) count *= static_cast<size_t>(dim);
    return count;
  }

 private:
  struct Chunk {
    std::vector<float> weights;
    std::optional<BadWeight> bad;
  };

  static size_t stored(tenon_format format, size_t elements) {
    const tenon_block block = tenon_format_block(format);
    return elements / block.elements * block.bytes;
  }

  void convert_batch(const WeightTensor& source, tenon_format format, size_t first, size_t count) {
    const auto work = [&](size_t index) {
      const size_t begin = index * kChunk, n = std::min(kChunk, count - begin);
      convert_chunk(source.format, format, begin, n, chunks_[index]);
    };
    const size_t used = (count + kChunk - 1) / kChunk;
    {
      std::vector<std::jthread> others;
      for (size_t i = 1; i < used; ++i) others.emplace_back(work, i);
      work(0);
    }
    for (size_t i = 0; i < used; ++i) {
      if (chunks_[i].bad) refuse(source, first + i * kChunk + chunks_[i].bad->index, chunks_[i].bad->why);
    }
  }

  void convert_chunk(tenon_format from, tenon_format to, size_t begin, size_t n, Chunk& chunk) {
    const uint8_t* in = in_.data() + stored(from, begin);
    uint8_t* out = encoded_.data() + stored(to, begin);
    chunk.bad.reset();
    if (sdk::cpu::can_unpack(from)) {
      sdk::cpu::unpack_row(from, in, n, chunk.weights.data());
      chunk.bad = from == to ? find_not_finite(chunk.weights.data(), n) : encode_row(to, chunk.weights.data(), n, out);
    }
    if (from == to) std::copy_n(in, stored(from, n), out);
  }

  [[noreturn]] void refuse(const WeightTensor& t, size_t index, const char* why) const {
    std::string place = "weight " + std::to_string(index);
    if (t.shape.size() >= 2) {
      const auto width = static_cast<size_t>(t.shape.back());
      place += " (column " + std::to_string(index % width) + " of row " + std::to_string(index / width) + ")";
    }
    throw Error(ErrorCode::kModel, {model_.files().at(t.file).string()},
                "tensor " + in_quotes(t.name) + ": " + place + " " + why);
  }

  const Weights& model_;
  OutputFile& out_;
  std::vector<uint8_t> in_, encoded_;
  std::vector<Chunk> chunks_;
};

void check_output(const std::filesystem::path& output, bool replace) {
  std::error_code error;
  if (replace || !std::filesystem::exists(std::filesystem::symlink_status(output, error))) return;
  throw Error(ErrorCode::kUsage, {output.string()}, "is there already; --force replaces it");
}

void check_input(const Weights& model, const std::string& input) {
  if (model.convention() == "gguf") return;
  throw Error(ErrorCode::kModel, {input},
              "a GGUF file is made from a GGUF file, whose metadata and tokenizer it takes over; this model has other "
              "ones. Convert it first with llama.cpp's convert_hf_to_gguf.py --outtype bf16, or let Tenon quantize "
              "while it loads: tenon generate " +
                  input + " --set quantization.use=int8wo");
}

}  // namespace

std::span<const GgufScheme> gguf_schemes() {
  return kSchemes;
}

const GgufScheme& gguf_scheme(std::string_view name) {
  std::string upper(name), known;
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  for (const GgufScheme& scheme : kSchemes) {
    if (scheme.name == upper) return scheme;
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  }
  throw Error(ErrorCode::kUsage, in_quotes(name) + " is no scheme; there are " + known);
}

QuantizeReport quantize_gguf(const std::string& input, const std::filesystem::path& output,
                             const QuantizeOptions& options) {
  check_output(output, options.replace);
  const std::unique_ptr<Weights> model = open_weights(input);
  check_input(*model, input);
  check_overrides(*model, options);

  QuantizeReport report;
  const std::vector<Planned> planned = plan(*model, options, report);
  std::vector<WeightTensor> targets;
  bool blocks = false;
  for (const Planned& p : planned) {
    targets.push_back(*p.source);
    targets.back().format = p.format;
    blocks = blocks || is_blocks(p.format);
    report.weights += Converter::element_count(*p.source);
  }
  for (const std::filesystem::path& part : model->files()) report.input_bytes += std::filesystem::file_size(part);
  uint64_t alignment = 0;
  const tenon_format mostly = report.tensors.contains(options.format) ? options.format : tenon_format{TENON_F16};
  const GgufPairs metadata = copy_metadata(model->files().front(), mostly, blocks, alignment);
  const GgufLayout layout = lay_out_gguf(metadata, alignment, targets);
  for (const WeightTensor& t : targets) report.bytes_written += t.bytes;
  report.file_bytes = layout.file_bytes;

  OutputFile file(output, layout.file_bytes);
  file.write(std::as_bytes(std::span(layout.header)));
  Converter converter(*model, file);
  uint64_t at = layout.header.size(), done = 0;
  const std::vector<std::byte> zeros(alignment);
  for (size_t i = 0; i < planned.size(); ++i) {
    const WeightTensor& target = targets[i];
    file.write(std::span(zeros).first(target.offset - at));
    at = target.offset + target.bytes;
    const auto advance = [&](uint64_t bytes) {
      done += bytes;
      if (options.progress) options.progress({i + 1, targets.size(), target.name, done, report.bytes_written});
    };
    if (i + 1 < planned.size()) model->prefetch(*planned[i + 1].source);
    converter.convert(*planned[i].source, target.format, advance);
  }
  file.commit();
  return report;
}

}  // namespace tenon
