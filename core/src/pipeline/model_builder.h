// Records one model through the components that were negotiated for it. The model calls what StepBuilder declares
// (tenon/core/module.h); each call becomes the ops of a component, with what it claimed of the chains around it
// (negotiation.h), and what nobody claimed becomes ops of its own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chains.h"
#include "model_instance.h"
#include "tenon/core/module.h"
#include "tenon/core/program.h"
#include "tenon/sdk/live.h"

namespace tenon {

// These are the heads of Q, K and V, side by side in the rows of one tensor, as an attention layer takes them.
struct ReadHeads {
  const AttentionLayer* layer;
  tenon_tid tensor;
};

// Thread: the one that builds. Every function throws Error(kPlugin) with the component named when one fails to record.
class ModelBuilder : public StepBuilder {
 public:
  enum class Logits {
    kWanted,
    kBesideAllRows,  // they are wanted, and so are the final hidden states of all rows
    kUnwanted
  };
  // The recording has entered the bounds and the step state that the model runs with; `bounds` is the number of these
  // in the negotiation.
  ModelBuilder(ModelInstance& instance, StorageTable& storages, ProgramRecording& recording, size_t bounds,
               Logits logits = Logits::kWanted)
      : instance_(instance),
        components_(instance.components),
        declared_(*instance.declared),
        prefix_(storages, instance.name()),
        shape_(instance.shape_of(bounds, logits == Logits::kWanted)),
        picks_early_(shape_ != bounds || logits == Logits::kUnwanted),
        logits_(logits),
        rec_(recording),
        rows_(recording.bounds().rows) {}

  // The final hidden states of the model that is recorded next are pooled in this storage, f32[slots][2][width].
  void pool_in(uint32_t storage) { pooled_ = storage; }
  // The cache records first, then the model. The result is the logits; 0 where nobody wants them.
  tenon_tid record();
  // Lets the cache move the rows that survive to where they belong.
  void commit();

  tenon_tid embed(LinearId id) override;
  tenon_tid handed_in(int64_t columns) override;
  tenon_tid tokens() override { return rec_.step(TENON_STEP_TOKEN); }
  tenon_tid linear(LinearId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override;
  tenon_tid joined(JoinedId id, tenon_tid x, const std::vector<tenon_tid>& rows, tenon_tid expert) override;
  tenon_tid row_ops(RowOpsId id, tenon_tid x, const std::vector<tenon_tid>& rows) override;
  tenon_tid repeat_rows(const RepeatedRows& how, tenon_tid x) override;
  void end_repeat() override;
  tenon_tid as_rows(tenon_tid x) override;
  tenon_tid experts_of(tenon_tid x) override;
  tenon_tid attention(LayerId id, tenon_tid x) override { return attend(id, x, false); }
  tenon_tid attention_of_out_rows(LayerId id, tenon_tid x) override;
  tenon_tid out_rows(tenon_tid x) override;
  bool picks_early() const override { return picks_early_; }

  const std::vector<ReadHeads>& read_heads() const { return read_heads_; }  // by layer, once the model is recorded

  // Ops that follow the model are recorded through these.
  ProgramRecording& recording() { return rec_; }
  void enter(const std::string& path, const std::string& component, int32_t layer) {
    rec_.scope(instance_.name() + path, component, layer);
    rec_.pick_rows(live_word_ == sdk::kLiveOutRows);
  }
  void record_step_op(tenon_fop& op, tenon_tid x, tenon_tid y);
  tenon_tid state_records(uint32_t storage, uint64_t record_bytes);
  // Makes an activation: [rows at hand][columns], between two products as in tenon/sdk/linked_rows.h. Repeated rows are
  // parts of a tensor of the rows that they were made of, so that whoever looks at rows sees all of them.
  tenon_tid new_rows(int64_t columns, const std::string& name, tenon_format format = TENON_F32);

 private:
  // A product multiplies the rows of x. A routed one takes the expert of each row, too.
  struct Input {
    tenon_tid x, expert;
  };
  // Traces, reports and messages say by this where an op stands.
  struct OpPlace {
    const std::string& path;
    int32_t layer;
  };
  // The groups of a product share this: x, the claimed ops before it, the rows that the module named for its ops, and, if
  // it leaves rows for a norm, their tensor and that norm.
  struct SharedInput {
    const Input& input;
    const ChainView& before;
    const std::vector<tenon_tid>& rows;
    tenon_tid normed;
    const tenon_fop* norm;
  };
  // These are columns [first, first + n) of y.
  struct Columns {
    tenon_tid y;
    int64_t first, n;
  };
  // The cache takes its stores in this form, which is valid as long as this object.
  struct CacheStores {
    std::vector<tenon_tid> ids;
    tenon_kv_stores stores;
  };

  tenon_tid store_tensor(uint32_t storage);
  std::vector<tenon_tid> stores_of(const SiteGroup& group);
  tenon_tid vector_tensor(VectorId id);
  // Returns the ops with their tensors filled in. The module named `rows` in this order.
  std::vector<tenon_fop> with_tensors(const OpChain& chain, const std::vector<tenon_tid>& rows);
  // If x is `ours`, nothing else reads it, and y may be x. An op that nobody claimed records itself; the result is y.
  tenon_tid record_unclaimed(const OpPlace& place, const ChainOp& op, const tenon_fop& with, tenon_tid x, bool ours);
  // Returns columns [first, first + n) of y.
  tenon_tid columns_of(tenon_tid y, int64_t first, int64_t n);

  // Records the op that picks the rows whose logits are wanted, in the place that the caller has entered.
  tenon_tid pick_rows(tenon_tid x);
  // Records the ops before the head over all rows, and what pools the result.
  void record_pool(const Site& head);

  // Records a site, and the ops after it.
  tenon_tid record_site(Site& site, const Input& input, const std::vector<tenon_tid>& rows);
  // Records the products of a site with what stands after each of them, and with what their schemes claimed of what
  // stands after the site.
  tenon_tid record_products(Site& site, Input input, const std::vector<tenon_tid>& rows);
  void record_observation(const Site& site, const Input& input);
  void record_group(const Site& site, SiteGroup& group, const SharedInput& shared, tenon_tid y);
  // A group's scheme has left some of the ops after each of its matrices. They run on their columns of y, in place.
  void record_unclaimed_of_group(const Site& site, const SiteGroup& group, tenon_tid y, int64_t column);
  // Records the ops of a chain from `first` on, in place.
  void record_in_place(const OpPlace& place, const OpChain& chain, size_t first, const Columns& on);
  static const std::string& path_of(const Site& site, const SiteGroup& group);

  // These are in model_builder_attention.cc.
  // If `only_out_rows`, only those are read of the result.
  tenon_tid attend(LayerId id, tenon_tid x, bool only_out_rows);
  // The cache is entered, and the stores are what its functions take.
  CacheStores enter_cache(const std::string& path, int32_t layer);
  tenon_kv_view cache_view(const AttentionDecl& d);
  void record_append(const AttentionDecl& d, tenon_tid y);
  void record_choice(const AttentionDecl& d, tenon_tid y);
  // Attention takes this: the heads and the view, and the ops that it claimed. For only_out_rows see attend().
  struct Attended {
    tenon_tid heads;
    tenon_kv_view view;
    const ChainView& pro;
    bool only_out_rows;
  };
  // The result is the mean of the values.
  tenon_tid record_attention(AttentionLayer& layer, Attended of);
  // Returns the view of a copy of the layer's cache that the attention can read; every step makes it.
  tenon_kv_view record_cache_copy(const AttentionLayer& layer);

  ModelInstance& instance_;
  Components& components_;
  Declared& declared_;
  StorageTable::Prefix prefix_;
  size_t shape_;
  bool picks_early_;
  Logits logits_;
  ProgramRecording& rec_;
  uint32_t rows_;              // The next tensor has so many rows.
  tenon_tid row_live_ = 0;     // It says how many of them are live; 0 stands for the step's rows.
  int32_t live_word_ = 0;      // the word of TENON_STEP_LIVE that has that number
  uint32_t times_ = 1;         // repeat_rows() made so many of each row that there was
  tenon_tid live_before_ = 0;  // row_live_ of those rows
  std::map<std::pair<tenon_tid, uint32_t>, tenon_tid> repeated_live_;  // by row_live_ of the rows before, and times
  std::map<tenon_tid, tenon_tid> normed_;  // by y, the rows beside it that the one product which takes it multiplies
  std::vector<ReadHeads> read_heads_;
  std::optional<uint32_t> pooled_;
  int32_t pick_layer_ = -1;  // the layer in which rows are picked early
  tenon_tid all_rows_ = 0;   // out_rows() was given this, until the head is recorded
};

}  // namespace tenon
