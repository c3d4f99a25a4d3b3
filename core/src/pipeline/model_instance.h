// A model instance is one model on a context: its weights under their schemes, its cache and attention, and what was
// negotiated for them. A pipeline has one that gives the text, and may have a second that drafts for it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "components.h"
#include "declared.h"
#include "negotiation.h"
#include "observation.h"
#include "tenon/core/pipeline.h"
#include "weight_loader.h"

namespace tenon {

// This is the model that an instance is made of. Everything that is referred to outlives the instance.
struct ModelSource {
  const ModelInstanceConfig& config;
  bool strict;  // the pipeline's
  const Weights& weights;
  std::shared_ptr<const ModelKind> kind;  // the architecture
  std::optional<LayerRange> range = {};   // it is made of this range alone
  std::string name = "";  // what the paths of modules and the names of storages begin with, such as "draft/"
};

class ModelInstance {
 public:
  ModelInstance(const ModelSource& source, Context& context, StorageTable& storages);
  ~ModelInstance();
  ModelInstance(const ModelInstance&) = delete;
  ModelInstance& operator=(const ModelInstance&) = delete;

  // Says what the model is, which is known before it is declared.
  ModelInfo describe() const { return kind_->describe(weights_); }
  // Says, before negotiate(), who sees what goes into products. Throws Error(kPlugin).
  void observe(const std::vector<Observer>& observers) { observation_.watch(observers); }
  // These are the steps of building, in this order. Nothing is allocated on the device.
  void declare(uint32_t capacity);
  // Programs of this model have these bounds. Unless modules work on `all_rows`, those with fewer out rows than rows are
  // negotiated as programs that pick early (StepBuilder), too. Throws Error with every refusal.
  void negotiate(const std::vector<tenon_bounds>& bounds, bool all_rows);
  // Claims go by this number: that of the bounds, for a program that picks early another one where there is one.
  size_t shape_of(size_t bounds, bool picks_early) const { return picks_early ? early_[bounds] : bounds; }
  void add_stores();
  // The rows that are handed in to a range are in this storage, f32 (rows, width).
  uint32_t handed_in() const { return *handed_in_; }
  bool has_head() const { return !range_ || range_->head; }
  uint32_t out_columns() const { return has_head() ? info_.vocab : info_.width; }  // see Pipeline

  // Loading calls these in this order; the storages have their addresses when load() and attach() are called.
  void map_weights();
  void load(std::byte* scratch, const LoadProgress& progress) { loader_->load(scratch, progress); }
  void attach();

  const ModelInstanceConfig& config() const { return config_; }
  const std::string& name() const { return name_; }
  StorageTable& storages() const { return storages_; }
  const Weights& weights() const { return weights_; }
  const ModelInfo& info() const { return info_; }
  const Model& model() const { return *model_; }
  const std::vector<uint32_t>& kv_stores() const { return kv_stores_; }  // storages of the cache
  Negotiation& negotiation() { return *negotiation_; }
  const Observation& observation() const { return observation_; }
  uint64_t load_scratch() const { return loader_->scratch_bytes(); }
  uint64_t load_total() const { return loader_->total_bytes(); }
  uint32_t row_invariant_max() const;               // see tenon_quantization
  uint64_t weight_bytes() const;                    // the matrices as they are multiplied have so many
  uint64_t step_weight_bytes(uint32_t rows) const;  // see Pipeline

  // These call the cache, by slot; see tenon_kv_cache.
  bool endless() const { return endless_; }  // sequences of any length fit
  Status reserve(uint32_t slot, uint32_t kv_len) const;
  void truncate(uint32_t slot, uint32_t kv_len) const;
  Status publish() const;
  uint32_t free_pages(uint32_t& page_tokens) const;  // both are 0 where slots do not share pages
  bool finds() const;                                // the next three may be called
  uint32_t find(std::span<const int32_t> tokens, uint32_t& held) const;
  uint32_t adopt(uint32_t slot, std::span<const int32_t> tokens) const;
  void share(uint32_t slot, std::span<const int32_t> tokens) const;
  // Appends the cells of the slot's first tokens to `to`.
  void export_sequence(uint32_t slot, uint32_t kv_len, std::vector<std::byte>& to) const;
  void import_sequence(uint32_t slot, uint32_t kv_len, std::span<const std::byte> cells) const;
  uint64_t kv_used_bytes(uint32_t kv_len) const;
  uint64_t kv_used_blocks(uint32_t kv_len) const;

  const tenon_kv_cache& cache() const { return components.kv_cache.table<tenon_kv_cache>(); }

  Components components;
  std::unique_ptr<Declared> declared;

 private:
  void check_overrides() const;
  void plan_cache();
  uint64_t site_bytes(const Site& site) const;

  const ModelInstanceConfig config_;
  const std::optional<LayerRange> range_;
  bool strict_, endless_ = false;
  const std::shared_ptr<const ModelKind> kind_;
  const std::unique_ptr<Weights> view_;
  const Weights& weights_;
  StorageTable& storages_;
  std::string name_;
  std::unique_ptr<Model> model_;
  ModelInfo info_;
  std::vector<ProgramShape> shapes_;
  std::vector<size_t> early_;  // by number of bounds, the shape that picks early, or that number again
  Observation observation_;
  std::unique_ptr<Negotiation> negotiation_;
  std::unique_ptr<WeightLoader> loader_;
  std::vector<uint32_t> kv_stores_;
  std::optional<uint32_t> handed_in_;
};

}  // namespace tenon
