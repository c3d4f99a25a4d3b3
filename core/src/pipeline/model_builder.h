// Records one model through the components that were negotiated for it.
#pragma once

#include <string>
#include <vector>

#include "chains.h"
#include "model_instance.h"
#include "tenon/core/module.h"
#include "tenon/core/program.h"

namespace tenon {

// The heads of Q, K and V, side by side in the rows of one tensor, as an attention layer takes them.
struct ReadHeads {
  const AttentionLayer* layer;
  tenon_tid tensor;
};

// Thread: the one that builds. Every function throws Error(kPlugin) with the component named when one fails to record.
class ModelBuilder : public StepBuilder {
 public:
  enum class Logits { kWanted, kUnwanted };
  // The recording has entered the bounds and the step state that the model runs with. shape: the index of the bounds in
  // the negotiation.
  ModelBuilder(ModelInstance& instance, StorageTable& storages, ProgramRecording& recording, size_t shape,
               Logits logits = Logits::kWanted)
      : instance_(instance),
        parts_(instance.components),
        declared_(*instance.declared),
        prefix_(storages, instance.name()),
        shape_(shape),
        logits_(logits),
        rec_(recording),
        rows_(recording.bounds().rows) {}

  // The cache records first, then the model. The result is the logits; 0 where nobody wants them.
  tenon_tid record();
  // The cache moves the rows that survive to where they belong.
  void commit();

  tenon_tid embed(LinearId id) override;
  tenon_tid tokens() override { return rec_.step(TENON_STEP_TOKEN); }
  tenon_tid linear(LinearId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override;
  tenon_tid joined(JoinedId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override;
  tenon_tid attention(LayerId id, tenon_tid x) override;
  tenon_tid out_rows(tenon_tid x) override;

  const std::vector<ReadHeads>& read_heads() const { return read_heads_; }  // by layer, once the model is recorded

  // What follows the model is recorded through these.
  ProgramRecording& recording() { return rec_; }
  void enter(const std::string& path, const std::string& component, int32_t layer) {
    rec_.scope(instance_.name() + path, component, layer);
  }
  void record_step_op(tenon_fop op, tenon_tid x, tenon_tid y);
  tenon_tid state_records(uint32_t storage, uint64_t record_bytes);

 private:
  // A product multiplies the rows of x. A routed one takes the expert of each row, too.
  struct Input {
    tenon_tid x, expert;
  };
  // The cache takes its stores in this form, which is valid as long as this object.
  struct CacheStores {
    std::vector<tenon_tid> ids;
    tenon_kv_stores stores;
  };

  tenon_tid rows_of(int64_t columns, const std::string& name);
  tenon_tid bytes_of(uint32_t storage);
  std::vector<tenon_tid> stores_of(const SiteGroup& group);
  tenon_tid vector_of(VectorId id);
  // The result has the ops with their tensors. rows: record() named them, in this order.
  std::vector<tenon_fop> filled(const OpChain& chain, const std::vector<tenon_tid>& rows);
  // An op that nobody claimed records itself. ours: nothing else reads x, so that y may be x.
  tenon_tid visible(const std::string& path, int32_t layer, const ChainOp& op, const tenon_fop& with, tenon_tid x,
                    bool ours);
  // Columns [first, first + n) of y.
  tenon_tid columns_of(tenon_tid y, int64_t first, int64_t n);

  tenon_tid product_and_rest(Site& site, const Input& input, const std::vector<tenon_tid>& rows);
  // The products of a site are recorded with what stands after each of them, and with what their schemes claimed of
  // what stands after the site.
  tenon_tid product(Site& site, Input input, const std::vector<tenon_tid>& rows);
  void observe(const Site& site, const Input& input);
  void multiply(const Site& site, SiteGroup& group, const std::string& path, const Input& input, tenon_tid y,
                const ChainView& before, const std::vector<tenon_tid>& rows);
  // A group's scheme has left some of the ops after each of its matrices. They run on their columns of y, in place.
  void ops_behind_each(const Site& site, const SiteGroup& group, const std::string& path, tenon_tid y, int64_t column);

  // The cache is entered, and the stores are what its functions take.
  CacheStores enter_cache(const std::string& path, int32_t layer);
  tenon_kv_view cache_view(const AttentionDecl& d);
  void append(const AttentionDecl& d, tenon_tid y);
  tenon_tid record_attention(AttentionLayer& layer, tenon_tid y, tenon_kv_view view, const ChainView& pro);
  tenon_kv_view dequantized(const AttentionLayer& layer);

  ModelInstance& instance_;
  Components& parts_;
  Declared& declared_;
  StorageTable::Prefix prefix_;
  size_t shape_;
  Logits logits_;
  ProgramRecording& rec_;
  uint32_t rows_;           // The next tensor has so many rows.
  tenon_tid row_live_ = 0;  // It says how many of them are live; 0 stands for the step's rows.
  int32_t live_word_ = 0;   // That number is this word of TENON_STEP_LIVE.
  std::vector<ReadHeads> read_heads_;
};

}  // namespace tenon
