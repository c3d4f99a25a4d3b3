// Everything is kept, and of a long text only the pages are read whose keys may matter most to the row's query. See
// Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", arXiv:2406.10774.
//
// A layer that chooses has, beside the cells of a cache in one page a slot, summaries of its pages in store 2. Store 3
// says to which length they can be relied on, i32 (slots, heads) a layer; store 4 has what is chosen for the step's
// rows in the layer at hand. The rule, and when summaries are made, stand in choose.h. Whatever happens to a sequence
// between steps, at most the number in store 3 is set back, and the next step makes the summaries anew from the cells.
#include <algorithm>
#include <string>
#include <vector>

#include "../common/ops.h"
#include "../common/slot_cache.h"
#include "choose.h"

namespace tenon::quest {

class Quest : public sdk::KvCache<Quest>, public slot_cache::SlotCache {
 public:
  static constexpr const char* kName = "quest";
  static constexpr const char* kDoc =
      "All of the context, of which text that is written reads the likeliest pages alone";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "page_tokens",
                    .doc = "Tokens of a page, which is read or passed over as a whole",
                    .value = 16,
                    .min = 16,
                    .max = 128,
                    .choices = "16|32|64|128",
                    .unit = "tokens"}),
      sdk::integer({.name = "budget",
                    .doc = "Tokens that a row reads at most, in whole pages and three of them at least",
                    .value = 1024,
                    .min = 48,
                    .max = 1 << 20,
                    .unit = "tokens"}),
      sdk::integer({.name = "whole_layers",
                    .doc = "First layers whose rows read everything",
                    .value = 2,
                    .min = 0,
                    .max = 1 << 20,
                    .unit = "layers"}),
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|bf16|fp32"}));

  Quest(const sdk::Params& params, const sdk::Env& env)
      : SlotCache(kName, format_named(params.text("format")), {}, env),
        codec_(format_named(params.text("format")).k.codec),
        page_(static_cast<uint32_t>(params.integer("page_tokens"))),
        most_pages_(static_cast<uint32_t>(params.integer("budget")) / page_),
        whole_layers_(static_cast<uint32_t>(params.integer("whole_layers"))),
        simd_((env.device().isa & TENON_ISA_AVX2) != 0) {
    if (most_pages_ <= kAlways) {
      throw sdk::Failed("budget = " + std::to_string(params.integer("budget")) + " is " + std::to_string(most_pages_) +
                        " pages of " + std::to_string(page_) + " tokens; the newest " + std::to_string(kAlways) +
                        " are always read, so that budget >= " + std::to_string((kAlways + 1) * page_) +
                        " leaves something to choose");
    }
  }

  tenon_kv_view claim(const tenon_kv_geometry& g, const tenon_bounds& b) const {
    return with_spans(SlotCache::claim(g, b), g, b.kv_len);
  }

  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
    tenon_footprint f = SlotCache::plan(layers, b);
    geometry_.assign(layers.begin(), layers.end());
    capacity_ = b.kv_len;
    rows_ = b.rows;
    summaries_.clear();
    lines_.clear();
    uint64_t summaries = 0, lines = 0, heads = 0;
    for (const tenon_kv_geometry& g : geometry_) {
      summaries_.push_back(summaries);
      lines_.push_back(lines);
      if (!chooses(g)) continue;
      const uint64_t of_layer = uint64_t{slots()} * g.heads;
      summaries += (of_layer * pages_of(capacity_) * summary_bytes(g) + kAlignment - 1) / kAlignment * kAlignment;
      lines += of_layer;
      heads = std::max<uint64_t>(heads, g.heads);
    }
    nothing_.assign(heads, 0);
    if (heads == 0) return f;  // No layer chooses.
    f.store_bytes[kSummaryStore] = summaries;
    f.store_bytes[kLineStore] = lines * sizeof(int32_t);
    f.store_bytes[kChosenStore] = rows_ * heads * (1 + most_pages(capacity_)) * sizeof(int32_t);
    f.n_stores = kStores;
    return f;
  }

  void attach(void* const* store, void* queue) {
    SlotCache::attach(store, queue);
    if (!nothing_.empty()) summarized_ = static_cast<std::byte*>(store[kLineStore]);
  }

  tenon_kv_view view(uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const {
    return with_chosen(SlotCache::view(layer, store, r), layer, store, r);
  }
  tenon_kv_view record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                               sdk::Recorder& r) const {
    return with_chosen(SlotCache::record_dequant(layer, store, want, r), layer, store, r);
  }

  void record_choice(uint32_t layer, const tenon_tid* store, tenon_tid q, sdk::Recorder& r) const {
    const tenon_kv_geometry& g = geometry_.at(layer);
    const tenon_kv_view v = view(layer, store, r);
    const int64_t slots = this->slots(), heads = g.heads, pages = pages_of(capacity_), dim = g.k_dim;
    const tenon_tid summaries =
        r.slice(store[kSummaryStore], sdk::tensor(codec_, {slots, heads, pages, 2 * dim}), summaries_[layer]);
    const tenon_tid summarized =
        r.slice(store[kLineStore], sdk::tensor(TENON_I32, {slots, heads}), lines_[layer] * sizeof(int32_t));
    record_summaries(v, summaries, summarized, r);
    const tenon_tensor queries = r.describe(q);
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kChooseOperands, {{kQ, q, TENON_READ},
                                           {kSummaries, summaries, TENON_READ},
                                           {kSummarized, summarized, kBoth},
                                           {kChosen, v.chosen, TENON_WRITE},
                                           {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                           {kPos, r.step(TENON_STEP_POS), TENON_READ},
                                           {kSeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                           {kSeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                           {kKvLen, r.step(TENON_STEP_KV_LEN), TENON_READ}});
    const tenon_bounds& b = r.bounds();
    const ChooseArgs args{.q_row = queries.stride[0] / static_cast<int64_t>(sizeof(float)),
                          .heads = g.heads,
                          .group = static_cast<uint32_t>(queries.dim[1]) / (g.heads * g.k_dim),
                          .dim = g.k_dim,
                          .codec = codec_,
                          .page = page_,
                          .pages = pages_of(capacity_),
                          .most_pages = v.most_spans,
                          .rows = b.rows,
                          .seqs = std::max(1U, b.seqs),
                          .rows_of_sequence = std::clamp(b.rows_per_seq, 1U, kMostChoosing),
                          .simd = simd_ ? 1U : 0U};
    // In a step of a prompt hardly a row chooses, and none where everything can be read.
    tenon_cost cost{};
    if (b.rows_per_seq <= kMostChoosing && v.most_spans < pages_of(b.kv_len)) {
      cost.read[sdk::kCostPerToken] = double(g.heads) * double(summary_bytes(g)) / page_;
      cost.flops[sdk::kCostPerToken] = 4.0 * double(queries.dim[1]) / page_;
    }
    emit_choose(r, operands, cost, args);
  }

  void fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue) {
    SlotCache::fork(from, to, kv_len, queue);
    if (from != to) forget(to, queue);
  }
  void import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes) {
    SlotCache::import_sequence(slot, kv_len, queue, src, bytes);
    forget(slot, queue);
  }

 private:
  enum Store { kSummaryStore = 2, kLineStore, kChosenStore, kStores };
  static constexpr uint64_t kAlignment = 256;
  static constexpr uint32_t kBoth = TENON_READ | TENON_WRITE;

  static tenon_kv_format format_named(std::string_view name) {
    return sdk::kv_format(name == "fp32" ? TENON_F32 : name == "fp16" ? TENON_F16 : TENON_BF16);
  }

  bool chooses(const tenon_kv_geometry& g) const { return g.layer >= whole_layers_ && g.window == 0; }
  uint32_t pages_of(uint32_t tokens) const { return (tokens + page_ - 1) / page_; }
  uint32_t most_pages(uint32_t capacity) const { return std::max(kAlways, std::min(most_pages_, pages_of(capacity))); }
  uint64_t summary_bytes(const tenon_kv_geometry& g) const { return 2 * sdk::kv_row_bytes(codec_, g.k_dim); }

  tenon_kv_view with_spans(tenon_kv_view v, const tenon_kv_geometry& g, uint32_t capacity) const {
    if (!chooses(g)) return v;
    v.chosen_rows = kMostChoosing;
    v.span_cells = page_;
    v.most_spans = most_pages(capacity);
    return v;
  }
  tenon_kv_view with_chosen(tenon_kv_view v, uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const {
    const tenon_kv_geometry& g = geometry_.at(layer);
    v = with_spans(v, g, capacity_);
    if (!chooses(g)) return v;
    v.chosen =
        r.slice(store[kChosenStore], sdk::tensor(TENON_I32, {r.bounds().rows, g.heads, int64_t{1} + v.most_spans}), 0);
    return v;
  }

  void record_summaries(const tenon_kv_view& v, tenon_tid summaries, tenon_tid summarized, sdk::Recorder& r) const {
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kSummaryOperands, {{kKeys, v.k, TENON_READ},
                                            {kCellPages, v.pages, TENON_READ},
                                            {kSummariesOf, summaries, kBoth},
                                            {kSummarizedBefore, summarized, TENON_READ},
                                            {kSummaryLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                            {kSummarySeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                            {kSummarySeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                            {kSummaryKvLen, r.step(TENON_STEP_KV_LEN), TENON_READ}});
    const double row_bytes = double(v.heads) * double(sdk::kv_row_bytes(codec_, v.k_dim));
    tenon_cost cost{};
    cost.read[sdk::kCostPerRow] = row_bytes;
    cost.written[sdk::kCostPerRow] = 2 * row_bytes / page_;
    emit_summarize(r, operands, cost,
                   {sdk::kv_layout(v), page_, pages_of(capacity_), std::max(1U, r.bounds().seqs), simd_ ? 1U : 0U});
  }

  // The next step makes all summaries of a slot.
  void forget(uint32_t slot, void* queue) const {
    for (size_t layer = 0; layer < geometry_.size(); ++layer) {
      const tenon_kv_geometry& g = geometry_[layer];
      if (!chooses(g)) continue;
      slot_cache::copy({.to = summarized_ + (lines_[layer] + uint64_t{slot} * g.heads) * sizeof(int32_t),
                        .from = nothing_.data(),
                        .bytes = g.heads * sizeof(int32_t)},
                       queue);
    }
  }

  tenon_format codec_;
  uint32_t page_, most_pages_, whole_layers_;
  bool simd_;
  std::vector<tenon_kv_geometry> geometry_;  // by layer
  std::vector<uint64_t> summaries_,
      lines_;                        // by layer: its part of stores 2 and 3 begins here, in bytes and in numbers
  std::vector<int32_t> nothing_;     // it has as many zeros as any layer has heads
  std::byte* summarized_ = nullptr;  // store 3
  uint32_t capacity_ = 0, rows_ = 0;
};

}  // namespace tenon::quest

TENON_PLUGIN(tenon::quest::Quest);
