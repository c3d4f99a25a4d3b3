// A model is opened, translated if the other kind of file is wanted, planned and written. The file has its place and
// size before the first tensor is converted, and its name after the last.
#include "tenon/core/quantize.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "../../model/tokenizer/gguf_vocabulary.h"
#include "../../model/weights/folder_texts.h"
#include "../../model/weights/gguf_metadata_copy.h"
#include "../../model/weights/metadata_ledger.h"
#include "../../model/weights/model_writer.h"
#include "../../model/weights/tensor_converter.h"
#include "calibration.h"
#include "layer_factors.h"
#include "matrix_encoding.h"
#include "matrix_plan.h"
#include "stored_layers.h"
#include "tenon/core/module.h"
#include "tenon/core/weights.h"
#include "tenon/sdk/gguf_blocks.h"

namespace tenon {
namespace {

using namespace weights;
namespace fs = std::filesystem;

void check_output(const fs::path& output, const QuantizeOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(output, error);
  if (!fs::exists(status)) return;
  if (options.target.makes_folder()) {
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
  if (model.metadata("quantization_config") == nullptr) return;
  throw Error(ErrorCode::kModel, {input},
              "is quantized already: its description has a quantization_config; start from what it was made of");
}

// This is the model with the names and the description of the kind of file that is written.
struct Source {
  std::unique_ptr<Weights> opened, view;  // the family sees the view, where it differs
  Translation translation;                // it is there if the model is of the other convention
  const Weights& weights() const { return translation.weights ? *translation.weights : view ? *view : *opened; }
  bool translated() const { return translation.weights != nullptr; }
};

// Returns how the family of the weights sees them; nullptr: as they are, or they are of no
// known family, and are written all the same.
std::unique_ptr<Weights> view_of(const Weights& weights, const std::vector<fs::path>& model_dirs) {
  std::shared_ptr<const ModelKind> kind;
  try {
    kind = model_kind_for(weights, model_dirs);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kModel) throw;
    return nullptr;
  }
  return kind->view ? kind->view(weights) : nullptr;
}

Source open_source(const std::string& input, bool folder, const QuantizeOptions& options) {
  const std::vector<std::string>& ignored = options.ignore_unknown;
  Source source{open_weights(input), {}, {}};
  check_input(*source.opened, input);
  if (source.opened->convention() != (folder ? "huggingface" : "gguf")) {
    source.translation = model_kind_for(*source.opened, options.model_dirs)->translate(*source.opened, ignored);
  } else if (!ignored.empty()) {
    // They are copied, whatever they say: a name to ignore must at least be that of a key.
    std::vector<Diagnostic> needless =
        MetadataLedger(*source.opened)
            .needlessly_ignored(model_kind_for(*source.opened, options.model_dirs)->harmless_keys, ignored);
    if (!needless.empty()) throw Error(ErrorCode::kModel, std::move(needless));
  }
  if (!source.translated()) source.view = view_of(*source.opened, options.model_dirs);
  return source;
}

uint32_t file_type_of(tenon_format format) {
  const auto formats = quantize_formats();
  return std::find_if(formats.begin(), formats.end(), [&](const auto& f) { return f.format == format; })->file_type;
}

GgufPairs gguf_metadata(const Source& source, tenon_format mostly, bool blocks, uint64_t& alignment) {
  const uint32_t file_type = file_type_of(mostly);
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

std::unique_ptr<ModelWriter> open_folder(const Source& source, const fs::path& output, const QuantizePlan& plan) {
  const fs::path& first = source.opened->files().front();
  std::map<std::string, std::string> texts;
  if (source.translated()) {
    uint64_t alignment = 0;
    std::vector<WeightTensor> none;
    texts[kGgufTokenizerName] = lay_out_gguf(copy_gguf_metadata(first, 0, false, alignment), alignment, none).header;
    texts["config.json"] = source.translation.config;
  } else {
    texts = folder_texts(first.parent_path());
  }
  if (!plan.description.empty()) {
    texts["config.json"] = with_quantization(texts.at("config.json"), plan.description);
  }
  return write_safetensors_folder(output, plan.written, std::move(texts));
}

std::unique_ptr<ModelWriter> open_gguf(const Source& source, const fs::path& output, const QuantizePlan& plan,
                                       tenon_format wanted, bool replace) {
  const auto is_block = [](const WeightTensor& t) { return is_blocks(t.format); };
  const bool blocks = std::any_of(plan.written.begin(), plan.written.end(), is_block);
  const bool any =
      std::any_of(plan.written.begin(), plan.written.end(), [&](const auto& t) { return t.format == wanted; });
  uint64_t alignment = 0;
  const GgufPairs metadata = gguf_metadata(source, any ? wanted : tenon_format{TENON_F16}, blocks, alignment);
  return write_gguf(output, metadata, alignment, plan.written, replace);
}

// A calibration says this of layers, as QuantizeReport has it.
struct CalibratedLayers {
  size_t resumed = 0;
  std::vector<std::string> unseen;
};

// This writes the tensors of a plan into the file, with progress.
class Writing {
 public:
  Writing(const Weights& model, const QuantizePlan& plan, const QuantizeOptions& options, ModelWriter& writer)
      : model_(model), plan_(plan), options_(options), writer_(writer) {
    now_.tensors = plan.tensors.size();
    for (const WeightTensor& t : plan.written) now_.total += t.bytes;
  }

  // Converts the tensors that no scheme encodes.
  void convert_others() {
    TensorConverter converter(model_);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& p = plan_.tensors[i];
      if (p.by_layer()) continue;
      if (i + 1 < plan_.tensors.size()) model_.prefetch(*plan_.tensors[i + 1].source);
      converter.convert(*p.source, p.format, [&](std::span<const std::byte> bytes) { put(p, 0, bytes); });
    }
  }
  void encode(std::span<const PlannedTensor* const> matrices) {
    encode_matrices(
        model_, matrices, [](const PlannedTensor&) { return MatrixInput(); },
        [this](const PlannedTensor& p, size_t index, std::span<const std::byte> bytes) { put(p, index, bytes); });
  }
  CalibratedLayers encode(Calibration& calibration, StoredLayers& stored) {
    size_t number = 0;
    CalibratedLayers layers;
    for (const std::vector<const PlannedTensor*>& batch : calibration.batches()) {
      const bool done = stored.find(number, batch);
      if (!done) {
        stored.make_folder();
        observe(calibration, batch);
        for (const PlannedTensor* p : batch) {
          if (calibration.unseen(*p)) layers.unseen.push_back(p->source->name);
        }
        stored.begin(number, batch);
        encode(calibration, batch, [&](const PlannedTensor& p, size_t index, std::span<const std::byte> bytes) {
          stored.put(p, index, bytes);
          put(p, index, bytes);
        });
        stored.end();
      }
      for (const PlannedTensor* p : batch) {
        for (size_t t = 0; t < p->described.tensors.size(); ++t) {
          calibration.keep(*p, t, stored.tensor(*p, t));
          if (done) put(*p, t, stored.tensor(*p, t));
        }
      }
      ++number;
      layers.resumed += done ? 1 : 0;
    }
    return layers;
  }

 private:
  // Encodes a layer whose inputs were observed.
  void encode(const Calibration& calibration, std::span<const PlannedTensor* const> batch, const PutEncoded& put_both) {
    std::vector<const PlannedTensor*> matrices;
    for (const PlannedTensor* p : batch) {
      if (p->scheme != nullptr) matrices.push_back(p);
    }
    try {
      const LayerFactors factors(model_, plan_, calibration, batch.front()->matrix.layer);
      encode_matrices(
          model_, matrices,
          [&](const PlannedTensor& p) {
            return MatrixInput{calibration.observed(p), factors.of(p)};
          },
          put_both);
      for (const auto& [p, numbers] : factors.plain()) put_both(*p, 0, std::as_bytes(std::span(numbers)));
    } catch (const Error& e) {
      // A scheme knows that x was not finite, and the file may know why.
      if (e.code() == ErrorCode::kPlugin) need_finite_weights();
      throw;
    }
  }
  // Throws Error(kModel) with the first tensor of the model that has a weight which is not finite. Formats that are not
  // read here are passed over.
  void need_finite_weights() const {
    constexpr int64_t kWeightsAtOnce = int64_t{1} << 20;
    for (const PlannedTensor& p : plan_.tensors) {
      const WeightTensor& t = *p.source;
      if (!sdk::can_unpack(t.format) || t.shape.empty()) continue;
      const int64_t columns = t.shape.back(), all = static_cast<int64_t>(weights::element_count(t)) / columns,
                    at_once = std::clamp<int64_t>(kWeightsAtOnce / columns, 1, all);
      if (columns % tenon_format_block(t.format).elements != 0) continue;
      std::vector<float> w(static_cast<size_t>(at_once * columns));
      for (int64_t row = 0; row < all; row += at_once) {
        const int64_t rows = std::min(at_once, all - row);
        read_weights(model_, t, static_cast<uint64_t>(row), static_cast<uint64_t>(rows),
                     std::span(w).first(static_cast<size_t>(rows * columns)));
      }
    }
  }
  void observe(Calibration& calibration, std::span<const PlannedTensor* const> batch) {
    const std::string& path = batch.front()->matrix.path;
    const int32_t layer = batch.front()->matrix.layer;
    const std::string name = layer < 0 ? path : path.substr(0, path.find('.', path.find('.') + 1));
    calibration.observe(batch, [&](uint32_t window, uint32_t windows) {
      QuantizeProgress progress = now_;
      progress.name = name;
      progress.window = window;
      progress.windows = windows;
      if (options_.progress) options_.progress(progress);
    });
  }
  void put(const PlannedTensor& p, size_t index, std::span<const std::byte> bytes) {
    writer_.put(p.first + index, bytes);
    now_.done += bytes.size();
    begun_.insert(&p);
    now_.tensor = begun_.size();
    now_.name = p.source->name;
    if (options_.progress) options_.progress(now_);
  }

  const Weights& model_;
  const QuantizePlan& plan_;
  const QuantizeOptions& options_;
  ModelWriter& writer_;
  QuantizeProgress now_;
  std::set<const PlannedTensor*> begun_;
};

// Names what the layers of a calibration depend on: files, schemes with their parameters, and the calibration's own.
std::vector<std::string> asked_of(const Source& source, const QuantizePlan& plan, const Calibration& calibration) {
  std::vector<std::string> lines;
  for (const fs::path& file : source.opened->files()) {
    lines.push_back(fs::absolute(file).string() + " of " + std::to_string(fs::file_size(file)) + " bytes, changed " +
                    std::to_string(fs::last_write_time(file).time_since_epoch().count()));
  }
  std::set<const SchemeEncoder*> schemes;
  for (const PlannedTensor& p : plan.tensors) {
    if (p.scheme == nullptr) continue;
    lines.push_back(p.matrix.name + " by " + p.scheme->name());
    if (!schemes.insert(p.scheme).second) continue;
    const ParamValues& params = p.scheme->config().params;
    const std::vector<std::string> names = param_names(params.schema());
    for (size_t i = 0; i < names.size(); ++i) {
      lines.push_back(p.scheme->name() + "." + names[i] + " = " + value_text(params.get(i)));
    }
  }
  const std::vector<std::string> more = calibration.asked();
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

CalibratedLayers write_calibrated(const Source& source, const QuantizePlan& plan, const QuantizeOptions& options,
                                  const fs::path& output, ModelWriter& writer) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(*source.opened);
  QuantizeCalibration with_keys = *options.calibration;
  with_keys.model_dirs = options.model_dirs;
  if (!source.translated()) with_keys.ignore_unknown = options.ignore_unknown;
  Calibration calibration(source.weights(), *tokenizer, with_keys, plan, *options.target.scheme);
  StoredLayers stored(output, asked_of(source, plan, calibration));
  calibration.keep_rows_in(stored.folder());
  Writing writing(source.weights(), plan, options, writer);
  writing.convert_others();
  CalibratedLayers layers = writing.encode(calibration, stored);
  writer.commit();
  stored.remove();
  return layers;
}

void write_tensors(const Source& source, const QuantizePlan& plan, const QuantizeOptions& options,
                   ModelWriter& writer) {
  const Weights& model = source.weights();
  Writing writing(model, plan, options, writer);
  writing.convert_others();
  std::vector<const PlannedTensor*> matrices;
  for (const PlannedTensor& p : plan.tensors) {
    if (p.scheme != nullptr) matrices.push_back(&p);
  }
  if (!matrices.empty()) writing.encode(matrices);
  writer.commit();
}

}  // namespace

QuantizeReport quantize_model(const std::string& input, const fs::path& given_output, const QuantizeOptions& options) {
  const fs::path output = given_output.has_filename() ? given_output : given_output.parent_path();
  const bool folder = options.target.makes_folder();
  check_output(output, options);
  if (options.calibration && !folder) {
    throw Error(ErrorCode::kUsage, options.target.name() + " is written without a calibration: no text changes it");
  }
  const Source source = open_source(input, folder, options);
  check_overrides(source.weights(), options);
  QuantizeReport report;
  const QuantizePlan plan = plan_tensors(source.weights(), options, report);
  for (const fs::path& part : source.opened->files()) report.input_bytes += fs::file_size(part);
  const std::unique_ptr<ModelWriter> writer =
      folder ? open_folder(source, output, plan)
             : open_gguf(source, output, plan, options.target.format, options.replace);
  report.file_bytes = writer->file_bytes();
  if (options.calibration) {
    CalibratedLayers layers = write_calibrated(source, plan, options, output, *writer);
    report.resumed = layers.resumed;
    report.unseen = std::move(layers.unseen);
  } else {
    write_tensors(source, plan, options, *writer);
  }
  return report;
}

}  // namespace tenon
