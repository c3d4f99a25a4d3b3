// This drives a calibration. The rows that enter a layer are kept in a file. For each layer two pipelines of that layer
// alone are built over an overlay of the model, one after the other, and the texts' rows run through them: first with
// the layer's matrices as plain floats, and what goes into its products is observed; then, once these are encoded, as
// they will be stored, held by their scheme, and what leaves it is kept as the next layer's input. Nothing of a later
// layer ever has a part in what an earlier one sees. The first rows are those of the embedding, and the head is
// observed like a layer. All that is handed on is f32, as between the layers of one pipeline, so a layer sees what it
// would see in a pipeline of all before it.
#include "calibration.h"

#include <algorithm>

#include "../pipeline/read_text.h"
#include "model_listing.h"
#include "tenon/core/error.h"

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
      base_(base_config(options)),
      windows_(windows_of(tokenizer, options)) {
  const ModelListing listing(model, options.model_dirs);
  matrices_ = matrices_of(listing);
  if (listing.model() != nullptr) {
    layers_ = listing.model()->info().layers;
    width_ = listing.model()->info().width;
  }
  for (const AttentionDecl& a : listing.attentions()) {
    if (!a.cache_of) continue;
    throw Error(ErrorCode::kModel, a.path + " reads the cache of " + listing.attentions()[*a.cache_of].path +
                                       ", and a calibration computes one layer after the other; leave it out");
  }
  const auto observes = [](const PlannedTensor& p) { return p.scheme != nullptr && p.scheme->observes(p.matrix); };
  if (std::any_of(plan.tensors.begin(), plan.tensors.end(), observes)) return;
  const char* const why = scheme.observes() ? "with these parameters it wants none" : "it has no observe()";
  throw Error(ErrorCode::kUsage,
              "quantization." + scheme.name() + " does not look at texts: " + why + "; leave out the calibration");
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
PipelineConfig Calibration::config_now() const {
  PipelineConfig config = base_;
  const ComponentConfig plain = base_.quantization;
  config.quantization = scheme_.config();
  for (const PlannedTensor& p : plan_.tensors) {
    if (p.scheme == nullptr || !encoded_.contains(p.matrix.name)) continue;
    if (p.scheme != &scheme_) config.overrides.push_back({p.matrix.path, p.scheme->config()});
  }
  for (const auto& [name, matrix] : matrices_) {
    if (!encoded_.contains(name)) config.overrides.push_back({matrix.path, plain});
  }
  return config;
}

void Calibration::run(const Run& r, const std::function<void(Pipeline&)>& ended) {
  const EncodedWeights weights(model_, encoded_, plan_.description);
  PipelineOptions options;
  options.model_dirs = options_.model_dirs;
  options.range = r.range;
  options.observers = r.observers;
  options.prefill_rows = std::min(options_.context, options.prefill_rows);
  // Where nobody wants what comes out, there is one row of it and no step has it.
  const bool all_rows = r.on_row || r.range.head;
  options.score_rows = all_rows ? options.prefill_rows : 1;
  const std::unique_ptr<Pipeline> pipeline = Pipeline::build(config_now(), *options_.registry, weights, options);
  pipeline->load();
  uint64_t at = 0;
  for (const std::vector<int32_t>& window : windows_) {
    const auto rows = static_cast<uint32_t>(window.size());
    TextReading reading{.first = all_rows ? 0 : rows, .rows_a_step = options.prefill_rows};
    if (!r.range.embeds) reading.handed_in = kept_->rows(r.range.first, at, rows);
    std::function<void(uint32_t, std::span<const float>)> on_row;
    if (r.on_row) on_row = [&](uint32_t, std::span<const float> row) { r.on_row(row); };
    read_text(*pipeline, window, reading, on_row);
    at += rows;
    r.read();
  }
  if (ended) ended(*pipeline);
}

void Calibration::keep_rows_in(const std::filesystem::path& folder) {
  uint64_t rows = 0;
  for (const std::vector<int32_t>& window : windows_) rows += window.size();
  kept_.emplace(folder, rows, width_);
}

// The rows that enter a layer are those that leave the one before it as that is stored now.
void Calibration::advance_to(uint32_t layer, const std::function<void()>& read) {
  const auto pass = [&](uint32_t enters, const LayerRange& range) {
    kept_->begin(enters);
    run({.range = range,
         .observers = {},
         .on_row = [&](std::span<const float> row) { kept_->put(row); },
         .read = read});
    kept_->end();
  };
  std::optional<uint32_t> at = kept_->last_up_to(layer);
  if (!at) {
    pass(0, {.first = 0, .layers = 0, .embeds = true, .head = false});
    at = 0;
  }
  for (uint32_t l = *at; l < layer; ++l) pass(l + 1, {.first = l, .layers = 1, .embeds = false, .head = false});
}

void Calibration::observe(std::span<const PlannedTensor* const> batch, const Read& read) {
  states_.clear();
  std::map<const SchemeEncoder*, Observer> by_scheme;
  for (const PlannedTensor* p : batch) {
    if (p->scheme == nullptr || !p->scheme->observes() || !p->matrix.known || !p->matrix.product) continue;
    Observer& observer = by_scheme.try_emplace(p->scheme, Observer{p->scheme->config(), {}}).first->second;
    observer.matrices.push_back(p->matrix.path);
  }
  if (by_scheme.empty()) return;
  std::vector<Observer> observers;
  for (auto& [scheme, observer] : by_scheme) observers.push_back(std::move(observer));
  const bool head = after_all_layers(*batch.front());
  const uint32_t layer = head ? layers_ : static_cast<uint32_t>(batch.front()->matrix.layer);
  const std::optional<uint32_t> kept = kept_->last_up_to(layer);
  const uint32_t passes = kept ? layer - *kept + 1 : layer + 2,
                 windows = passes * static_cast<uint32_t>(windows_.size());
  uint32_t window = 0;
  const auto read_one = [&] {
    if (read) read(++window, windows);
  };
  advance_to(layer, read_one);
  run({.range = {.first = layer, .layers = head ? 0U : 1U, .embeds = false, .head = head},
       .observers = std::move(observers),
       .on_row = {},
       .read = read_one},
      [&](const Pipeline& pipeline) {
        for (const PlannedTensor* p : batch) {
          if (p->scheme == nullptr) continue;
          std::vector<std::byte> state = pipeline.observed(p->matrix.path, p->matrix.expert.value_or(0));
          // The state of an expert is of zeros until a row goes to it.
          const auto told = [](std::byte b) { return b != std::byte{0}; };
          if (!p->matrix.expert || std::ranges::any_of(state, told)) states_[p] = std::move(state);
        }
      });
}

bool Calibration::unseen(const PlannedTensor& p) const {
  return observed(p).empty() && p.scheme != nullptr && p.matrix.known && p.matrix.product &&
         p.scheme->observes(p.matrix);
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
