// The driver of a calibration. For each layer a pipeline is built over an overlay of the model: matrices that were encoded
// are there as they will be stored and held by their scheme, all others are plain floats. The texts run through it, the
// states are read back, and the pipeline goes. Nothing of a later layer ever has a part in what an earlier one sees.
#include "calibration.h"

#include <algorithm>

#include "../pipeline/read_text.h"
#include "model_listing.h"
#include "tenon/core/error.h"
#include "tenon/core/pipeline.h"

namespace tenon {
namespace {

std::vector<std::vector<int32_t>> windows_of(const Tokenizer& tokenizer, const QuantizeCalibration& options) {
  std::vector<int32_t> tokens = tokenizer.encode(options.text, {.add_special = false});
  const bool begins = tokenizer.info().adds_bos && tokenizer.info().bos;
  if (begins) tokens.insert(tokens.begin(), *tokenizer.info().bos);
  if (tokens.empty()) throw Error(ErrorCode::kUsage, "the text to calibrate with has no tokens");
  std::vector<std::vector<int32_t>> windows;
  for (size_t at = 0; at < tokens.size(); at += options.context) {
    if (options.windows != 0 && windows.size() == options.windows) break;
    const size_t end = std::min<size_t>(at + options.context, tokens.size());
    windows.emplace_back(tokens.begin() + static_cast<ptrdiff_t>(at), tokens.begin() + static_cast<ptrdiff_t>(end));
    if (begins) windows.back().front() = *tokenizer.info().bos;
  }
  return windows;
}

PipelineConfig base_config(const QuantizeCalibration& options) {
  std::vector<std::string> set = {"quantization.use=none"};
  set.insert(set.end(), options.set.begin(), options.set.end());
  set.push_back("kv_cache.capacity=" + std::to_string(options.context));
  RegistrySchemas schemas(*options.registry);
  PipelineConfig config = resolve(load_config("", set), schemas, ModelPath::kOptional);
  config.model.ignore_unknown = options.ignore_unknown;
  config.draft.reset();
  config.draft_model.reset();
  return config;
}

bool after_all_layers(const PlannedTensor& p) {
  return p.matrix.layer < 0 && p.matrix.product && p.matrix.known;
}

}  // namespace

Calibration::Calibration(const Weights& model, const Tokenizer& tokenizer, const QuantizeCalibration& options,
                         const QuantizePlan& plan, const SchemeEncoder& scheme)
    : model_(model),
      options_(options),
      plan_(plan),
      scheme_(scheme),
      matrices_(matrices_of(ModelListing(model, options.model_dirs))),
      base_(base_config(options)),
      windows_(windows_of(tokenizer, options)) {
  const auto observes = [](const PlannedTensor& p) { return p.scheme != nullptr && p.scheme->observes(); };
  if (std::any_of(plan.tensors.begin(), plan.tensors.end(), observes)) return;
  throw Error(ErrorCode::kUsage, "quantization." + scheme.name() +
                                     " does not look at texts: it has no observe(); leave out the calibration");
}

std::vector<std::vector<const PlannedTensor*>> Calibration::batches() const {
  std::map<int64_t, std::vector<const PlannedTensor*>> by_layer;
  for (const PlannedTensor& p : plan_.tensors) {
    if (p.by_layer()) by_layer[after_all_layers(p) ? INT32_MAX : p.matrix.layer].push_back(&p);
  }
  std::vector<std::vector<const PlannedTensor*>> batches;
  for (auto& [layer, matrices] : by_layer) batches.push_back(std::move(matrices));
  return batches;
}

// Every matrix that was kept is held by its scheme, all others are plain floats.
PipelineConfig Calibration::config_for(std::span<const PlannedTensor* const> batch) const {
  PipelineConfig config = base_;
  const int32_t layer = batch.front()->matrix.layer;
  config.model.layers = layer < 0 ? 0 : static_cast<uint32_t>(layer) + 1;
  const ComponentConfig plain = base_.quantization;
  config.quantization = scheme_.config();
  for (const PlannedTensor& p : plan_.tensors) {
    if (p.scheme == nullptr || !encoded_.contains(p.matrix.name)) continue;
    if (p.scheme != &scheme_) config.overrides.push_back({p.matrix.path, p.scheme->config()});
  }
  for (const auto& [name, matrix] : matrices_) {
    const bool there = layer < 0 || matrix.layer <= layer;
    if (there && !encoded_.contains(name)) config.overrides.push_back({matrix.path, plain});
  }
  return config;
}

void Calibration::observe(std::span<const PlannedTensor* const> batch, const Read& read) {
  states_.clear();
  std::map<const SchemeEncoder*, Observer> observers;
  for (const PlannedTensor* p : batch) {
    if (p->scheme == nullptr || !p->scheme->observes() || !p->matrix.known || !p->matrix.product) continue;
    Observer& observer = observers.try_emplace(p->scheme, Observer{p->scheme->config(), {}}).first->second;
    observer.matrices.push_back(p->matrix.path);
  }
  if (observers.empty()) return;
  const PipelineConfig config = config_for(batch);
  const EncodedWeights weights(model_, encoded_, plan_.description);
  PipelineOptions options;
  options.model_dirs = options_.model_dirs;
  for (auto& [scheme, observer] : observers) options.observers.push_back(std::move(observer));
  options.prefill_rows = std::min(options_.context, options.prefill_rows);
  // The head sees the rows whose logits are wanted; before it no logits are.
  const bool head = after_all_layers(*batch.front());
  options.score_rows = head ? options.prefill_rows : 1;
  const std::unique_ptr<Pipeline> pipeline = Pipeline::build(config, *options_.registry, weights, options);
  pipeline->load();
  for (uint32_t w = 0; w < windows_.size(); ++w) {
    const auto rows = static_cast<uint32_t>(windows_[w].size());
    read_text(*pipeline, windows_[w], {.first = head ? 0 : rows, .rows_a_step = options.prefill_rows}, {});
    if (read) read(w + 1, static_cast<uint32_t>(windows_.size()));
  }
  for (const PlannedTensor* p : batch) {
    if (p->scheme != nullptr) states_[p] = pipeline->observed(p->matrix.path);
  }
}

std::span<const std::byte> Calibration::observed(const PlannedTensor& p) const {
  const auto found = states_.find(&p);
  return found == states_.end() ? std::span<const std::byte>() : found->second;
}

void Calibration::keep(const PlannedTensor& p, size_t index, std::span<const std::byte> bytes) {
  std::vector<EncodedTensor>& tensors = encoded_[p.matrix.name];
  if (tensors.empty()) {
    for (size_t t = 0; t < p.described.tensors.size(); ++t) tensors.push_back({plan_.written[p.first + t], {}});
  }
  tensors[index].bytes = bytes;
}

std::vector<std::string> Calibration::asked() const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a of the tokens
  size_t count = 0;
  for (const std::vector<int32_t>& window : windows_) {
    count += window.size();
    for (const int32_t token : window) hash = (hash ^ static_cast<uint32_t>(token)) * 0x100000001b3;
  }
  std::vector<std::string> lines = {std::to_string(windows_.size()) + " windows of " +
                                    std::to_string(options_.context) + " tokens, " + std::to_string(count) +
                                    " in all, number " + std::to_string(hash)};
  for (const std::string& set : options_.set) lines.push_back("pipeline: " + set);
  return lines;
}

}  // namespace tenon
