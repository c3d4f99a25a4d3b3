#include "tenon/core/quantize.h"

#include <fnmatch.h>

#include <algorithm>
#include <system_error>

#include "../tokenizer/gguf_vocabulary.h"
#include "folder_texts.h"
#include "gguf_metadata_copy.h"
#include "layout.h"
#include "model_writer.h"
#include "tenon/core/module.h"
#include "tenon/core/quantized_rows.h"
#include "tenon/core/weights.h"
#include "tensor_converter.h"

namespace tenon {
namespace {

using namespace weights;
namespace fs = std::filesystem;

constexpr QuantizeScheme kSchemes[] = {
    {"F32", TENON_F32, 0, true, true},          {"F16", TENON_F16, 1, true, true},
    {"BF16", TENON_BF16, 32, true, true},       {"Q8_0", TENON_Q8_0, 7, true, false},
    {"Q6_K", TENON_Q6_K, 18, true, false},      {"Q5_0", TENON_Q5_0, 8, true, false},
    {"Q5_1", TENON_Q5_1, 9, true, false},       {"Q4_0", TENON_Q4_0, 2, true, false},
    {"Q4_1", TENON_Q4_1, 3, true, false},       {"Q4_K", TENON_Q4_K, 14, true, false},
    {"int8wo", sdk::kInt8Rows, 0, false, true}, {"int4wo", sdk::int4_rows(64), 0, false, true}};

struct Planned {
  const WeightTensor* source;
  tenon_format format;
};

const QuantizeScheme& scheme_of(tenon_format format) {
  if (sdk::int4_group(format) != 0) format = sdk::int4_rows(64);
  return *std::find_if(std::begin(kSchemes), std::end(kSchemes), [&](const auto& s) { return s.format == format; });
}

void check_overrides(const Weights& model, const QuantizeOptions& options) {
  const bool folder = makes_folder(options.format);
  for (const QuantizeOverride& override : options.overrides) {
    const QuantizeScheme& scheme = scheme_of(override.format);
    if (folder ? !scheme.safetensors : !scheme.gguf) {
      throw Error(ErrorCode::kUsage, "override " + in_quotes(override.match) + ": " + std::string(scheme.name) +
                                         (folder ? " is a format of GGUF; in safetensors matrices can be int8wo, "
                                                   "int4wo, F32, F16 or BF16"
                                                 : " is no format of GGUF; give int8wo or int4wo as the scheme of "
                                                   "the whole model, then OUT is a folder"));
    }
    std::vector<std::string> names;
    for (const WeightTensor& t : model.tensors()) {
      if (is_matrix(t)) names.push_back(t.name);
    }
    const auto matches = [&](const std::string& name) { return fnmatch(override.match.c_str(), name.c_str(), 0) == 0; };
    if (std::any_of(names.begin(), names.end(), matches)) continue;
    const std::string nearest = nearest_name(override.match, names);
    throw Error(ErrorCode::kUsage, "override " + in_quotes(override.match) + " matches no matrix of the model" +
                                       (nearest.empty() ? "; names are those of " + std::string(model.convention()) +
                                                              ", such as " + in_quotes(names.empty() ? "" : names[0])
                                                        : "; did you mean " + in_quotes(nearest) + "?"));
  }
}

tenon_format wanted_format(const WeightTensor& t, const QuantizeOptions& options) {
  tenon_format format = options.format;
  for (const QuantizeOverride& override : options.overrides) {
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
      if (sdk::row_bytes(wanted, static_cast<uint64_t>(t.shape.back())) == 0) {
        format = TENON_F16;
        report.exceptions.push_back({t.name, wanted, t.shape.back()});
      }
      if (is_blocks(t.format) && t.format != format) ++report.requantized;
    } else if (!makes_folder(options.format) && (t.format == TENON_F16 || t.format == TENON_BF16)) {
      format = TENON_F32;
    }
    result.push_back({&t, format});
    ++report.tensors[format];
  }
  return result;
}

void check_output(const fs::path& output, const QuantizeOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(output, error);
  if (!fs::exists(status)) return;
  if (makes_folder(options.format)) {
    if (fs::is_directory(status) && fs::is_empty(output, error)) return;
    throw Error(ErrorCode::kUsage, {output.string()},
                "is there already; the output is a new folder, and one that is there is not replaced: remove it, or "
                "name another");
  }
  if (!options.replace) throw Error(ErrorCode::kUsage, {output.string()}, "is there already; --force replaces it");
}

void check_input(const Weights& model, const std::string& input) {
  if (model.files().empty()) {
    throw Error(ErrorCode::kModel, input +
                                       ": made-up weights have no file and no tokenizer; a GGUF file or a Hugging "
                                       "Face folder can be quantized");
  }
  for (const WeightTensor& t : model.tensors()) {
    if (!sdk::is_quantized_rows(t.format)) continue;
    throw Error(ErrorCode::kModel, {input},
                "is quantized already (" + in_quotes(t.name) + " is " + sdk::format_name(t.format) +
                    "); start from what it was made of");
  }
}

// The same model with the names and the description of the kind of file that is written.
struct Source {
  std::unique_ptr<Weights> opened;
  Translation translation;  // of a model of the other convention
  const Weights& weights() const { return translation.weights ? *translation.weights : *opened; }
  bool translated() const { return translation.weights != nullptr; }
};

Source open_source(const std::string& input, bool folder) {
  Source source{open_weights(input), {}};
  check_input(*source.opened, input);
  if (source.opened->convention() != (folder ? "huggingface" : "gguf")) {
    source.translation = model_kind_for(*source.opened).translate(*source.opened);
  }
  return source;
}

GgufPairs gguf_metadata(const Source& source, tenon_format mostly, bool blocks, uint64_t& alignment) {
  const uint32_t file_type = scheme_of(mostly).file_type;
  const fs::path& first = source.opened->files().front();
  if (!source.translated()) return copy_gguf_metadata(first, file_type, blocks, alignment);
  alignment = kGgufAlignment;
  const Weights& model = source.weights();
  GgufPairs pairs;
  for (const std::string& key : model.metadata_keys()) pairs.add(key, *model.metadata(key));
  const WeightTensor* embedding = model.find("token_embd.weight");
  const auto rows = static_cast<size_t>(embedding == nullptr ? 0 : embedding->shape.front());
  for (const auto& [key, value] : text::gguf_vocabulary(first.parent_path(), rows)) pairs.add(key, value);
  add_file_type(pairs, file_type, blocks);
  return pairs;
}

std::unique_ptr<ModelWriter> open_writer(const Source& source, const fs::path& output, const QuantizeOptions& options,
                                         std::vector<WeightTensor> targets, const QuantizeReport& report) {
  const fs::path& first = source.opened->files().front();
  if (makes_folder(options.format)) {
    std::map<std::string, std::string> texts;
    if (source.translated()) {
      uint64_t alignment = 0;
      std::vector<WeightTensor> none;
      texts[kGgufTokenizerName] = lay_out_gguf(copy_gguf_metadata(first, 0, false, alignment), alignment, none).header;
      texts["config.json"] = with_quantization(source.translation.config, options.format);
    } else {
      texts = folder_texts(first.parent_path());
      texts["config.json"] = with_quantization(texts.at("config.json"), options.format);
    }
    return write_safetensors_folder(output, std::move(targets), std::move(texts));
  }
  const auto is_block = [](const WeightTensor& t) { return is_blocks(t.format); };
  const bool blocks = std::any_of(targets.begin(), targets.end(), is_block);
  const tenon_format mostly = report.tensors.contains(options.format) ? options.format : tenon_format{TENON_F16};
  uint64_t alignment = 0;
  const GgufPairs metadata = gguf_metadata(source, mostly, blocks, alignment);
  return write_gguf(output, metadata, alignment, std::move(targets));
}

}  // namespace

std::span<const QuantizeScheme> quantize_schemes() {
  return kSchemes;
}

tenon_format quantize_format(std::string_view name, uint32_t group) {
  const auto upper = [](std::string_view text) {
    std::string result(text);
    for (char& c : result) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return result;
  };
  std::string known;
  for (const QuantizeScheme& scheme : kSchemes) {
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
    if (upper(scheme.name) != upper(name)) continue;
    if (sdk::int4_group(scheme.format) == 0) return scheme.format;
    if (sdk::int4_group(sdk::int4_rows(group)) != 0) return sdk::int4_rows(group);
    throw Error(ErrorCode::kUsage, "groups of " + std::to_string(group) + " weights; int4wo has 32, 64, 128 and 256");
  }
  throw Error(ErrorCode::kUsage, in_quotes(name) + " is no scheme; there are " + known);
}

bool makes_folder(tenon_format format) {
  return sdk::is_quantized_rows(format);
}

QuantizeReport quantize_model(const std::string& input, const fs::path& given_output, const QuantizeOptions& options) {
  const fs::path output = given_output.has_filename() ? given_output : given_output.parent_path();
  check_output(output, options);
  const Source source = open_source(input, makes_folder(options.format));
  const Weights& model = source.weights();
  check_overrides(model, options);

  QuantizeReport report;
  const std::vector<Planned> planned = plan(model, options, report);
  std::vector<WeightTensor> targets;
  for (const Planned& p : planned) {
    WeightTensor& t = targets.emplace_back(*p.source);
    t.format = p.format;
    report.weights += element_count(t);
    const size_t width = t.shape.empty() ? 1 : static_cast<size_t>(t.shape.back());
    t.bytes = width == 0 ? 0 : element_count(t) / width * sdk::row_bytes(t.format, width);
    report.bytes_written += t.bytes;
  }
  for (const fs::path& part : source.opened->files()) report.input_bytes += fs::file_size(part);
  const std::unique_ptr<ModelWriter> writer = open_writer(source, output, options, targets, report);
  report.file_bytes = writer->file_bytes();

  TensorConverter converter(model);
  uint64_t done = 0;
  for (size_t i = 0; i < planned.size(); ++i) {
    if (i + 1 < planned.size()) model.prefetch(*planned[i + 1].source);
    converter.convert(*planned[i].source, targets[i].format, [&](std::span<const std::byte> bytes) {
      writer->put(i, bytes);
      done += bytes.size();
      if (options.progress) options.progress({i + 1, targets.size(), targets[i].name, done, report.bytes_written});
    });
  }
  writer->commit();
  return report;
}

}  // namespace tenon
