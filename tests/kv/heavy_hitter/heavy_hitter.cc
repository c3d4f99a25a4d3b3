// This cache keeps, for each KV head of each layer by itself, the newest tokens and those that attention has leaned on
// most: Zhang et al., "H2O: Heavy-Hitter Oracle", arXiv:2306.14048. It shows that eviction is one folder: cells apart
// by head, positions in a table, softmax weights from attention, and all decisions made on the device by ops.
//
// Every layer is a group of its own. record_begin, before the step's rows arrive, for each layer, sequence and KV head:
//   1. frees cells of positions that the sequence no longer has (KV_LEN went back: rejected rows, or a new sequence),
//   2. adds the softmax weights of the last step to the cells' scores, and takes them away,
//   3. evicts the least score, the newest `recent` positions exempt, until `budget` cells are in use,
//   4. gives each row of the step the first free cell.
#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/kv_cache.h"

namespace tenon::test {
namespace {

using sdk::Part;

struct BeginArgs {
  uint32_t heads, page_cells, cells, budget, recent, seqs;
};
enum BeginOperand { kPos, kPlace, kWeights, kScore, kLive, kSeqSlot, kSeqRow, kKvLen };

void begin_head(const BeginArgs& a, const Part& part, uint32_t seq, uint32_t head) {
  const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
  if (slot < 0) return;
  const size_t line = (static_cast<size_t>(slot) * a.heads + head) * a.page_cells;
  int32_t* pos = part.ptr<int32_t>(kPos) + line;
  float *weight = part.ptr<float>(kWeights) + line, *score = part.ptr<float>(kScore) + line;
  const int32_t kv_len = part.ptr<int32_t>(kKvLen)[slot];
  uint32_t used = 0;
  for (uint32_t c = 0; c < a.page_cells; ++c) {
    if (c >= a.cells || pos[c] >= kv_len || kv_len == 0) pos[c] = -1;
    score[c] = pos[c] < 0 ? 0 : score[c] + weight[c];
    weight[c] = 0;
    used += pos[c] >= 0 ? 1 : 0;
  }
  for (; used > a.budget; --used) {
    uint32_t least = a.cells;
    for (uint32_t c = 0; c < a.cells; ++c) {
      if (pos[c] < 0 || pos[c] >= kv_len - static_cast<int32_t>(a.recent)) continue;
      if (least == a.cells || score[c] < score[least]) least = c;
    }
    if (least == a.cells) break;  // everything is recent
    pos[least] = -1;
    score[least] = 0;
  }
  const int32_t first = part.ptr<int32_t>(kSeqRow)[seq], end = part.ptr<int32_t>(kSeqRow)[seq + 1];
  uint32_t cell = 0;
  for (int32_t row = first; row < end; ++row) {
    while (cell < a.cells && pos[cell] >= 0) ++cell;
    if (cell == a.cells) throw sdk::Failed("no cell is free");
    pos[cell] = kv_len + row - first;
    part.ptr<int32_t>(kPlace)[static_cast<size_t>(row) * a.heads + head] = static_cast<int32_t>(cell);
  }
}

// A chunk is a head of a sequence.
void begin(const BeginArgs& a, const Part& part) {
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    if (chunk / a.heads < part.ptr<uint32_t>(kLive)[1]) begin_head(a, part, chunk / a.heads, chunk % a.heads);
  }
}

struct AppendArgs {
  sdk::KvLayout kv;
  int64_t k_row, v_row;  // bytes
  uint32_t rows, reserved = 0;
};
enum AppendOperand { kRowK, kRowV, kKeys, kValues, kPages, kRowPlace, kRowLive, kRowSlot };

// A chunk is a row.
void append(const AppendArgs& a, const Part& part) {
  const uint32_t end = std::min({part.end(), *part.ptr<uint32_t>(kRowLive), a.rows});
  for (uint32_t row = part.begin(); row < end; ++row) {
    const int32_t slot = part.ptr<int32_t>(kRowSlot)[row];
    if (slot < 0) continue;
    const auto* k = reinterpret_cast<const float*>(part.ptr<std::byte>(kRowK) + row * a.k_row);
    const auto* v = reinterpret_cast<const float*>(part.ptr<std::byte>(kRowV) + row * a.v_row);
    for (uint32_t h = 0; h < a.kv.heads; ++h) {
      const auto cell = static_cast<uint32_t>(part.ptr<int32_t>(kRowPlace)[row * a.kv.heads + h]);
      const auto cells_of = [&](const sdk::KvPlane& plane, AppendOperand o) {
        return sdk::cpu::KvCells({.layout = a.kv,
                                  .plane = plane,
                                  .base = part.ptr<void>(o),
                                  .scales = nullptr,
                                  .pages = part.ptr<int32_t>(kPages)},
                                 static_cast<uint32_t>(slot), h);
      };
      cells_of(a.kv.k, kKeys).store(k + size_t{h} * a.kv.k.dim, cell);
      cells_of(a.kv.v, kValues).store(v + size_t{h} * a.kv.v.dim, cell);
    }
  }
}

}  // namespace

class HeavyHitter : public sdk::KvCache<HeavyHitter> {
 public:
  static constexpr const char* kName = "heavy_hitter";
  static constexpr const char* kDoc = "Keeps what attention leans on, for each KV head by itself";
  static constexpr uint32_t kOwnRules = TENON_OWN_TOKENS;
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "budget", .doc = "Tokens that are kept", .value = 64, .min = 8, .max = 1 << 16}),
      sdk::integer(
          {.name = "recent", .doc = "Newest tokens that are never dropped", .value = 8, .min = 1, .max = 4096}));

  HeavyHitter(const sdk::Params& params, const sdk::Env&)
      : format_(sdk::plain_kv_format(TENON_F32)),
        budget_(static_cast<uint32_t>(params.integer("budget"))),
        recent_(static_cast<uint32_t>(params.integer("recent"))) {}

  tenon_kv_view claim(const tenon_kv_geometry& g, const tenon_bounds& b) const {
    if (b.trees != 0) throw sdk::Refused("trees of drafts");
    return prototype(g, budget_ + b.rows_per_seq);
  }

  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
    layers_.assign(layers.begin(), layers.end());
    slots_ = b.slots;
    capacity_ = b.kv_len;
    rows_ = b.rows;
    cells_ = budget_ + b.rows_per_seq;
    page_cells_ = std::bit_ceil(cells_);
    length_.assign(slots_, 0);
    auto f = sdk::abi_struct<tenon_footprint>();
    f.n_stores = kStores;
    for (const tenon_kv_geometry& g : layers_) {
      const uint64_t lines = uint64_t{slots_} * g.heads;
      f.store_bytes[kPlanes] += lines * page_cells_ * (g.k_dim + g.v_dim) * sizeof(float);
      f.store_bytes[kPagesOf] += lines * sizeof(int32_t);
      f.store_bytes[kUsed] += lines * sizeof(int32_t);
      f.store_bytes[kPositions] += lines * page_cells_ * sizeof(int32_t);
      f.store_bytes[kPlaces] += uint64_t{rows_} * g.heads * sizeof(int32_t);
      f.store_bytes[kWeightsOf] += lines * page_cells_ * sizeof(float);
      f.store_bytes[kScores] += lines * page_cells_ * sizeof(float);
    }
    return f;
  }

  void attach(void* const* store, void*) {
    auto *pages = static_cast<int32_t*>(store[kPagesOf]), *used = static_cast<int32_t*>(store[kUsed]);
    for (const tenon_kv_geometry& g : layers_) {
      for (uint32_t slot = 0; slot < slots_; ++slot) {
        pages = std::fill_n(pages, g.heads, static_cast<int32_t>(slot));
        used = std::fill_n(used, g.heads, static_cast<int32_t>(cells_));
      }
    }
  }

  tenon_kv_view view(uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const {
    const tenon_kv_geometry& g = layers_.at(layer);
    tenon_kv_view v = prototype(g, cells_);
    const uint64_t lines = lines_before(layer) * slots_, cells = lines * page_cells_;
    const int64_t slots = slots_, heads = g.heads, page = page_cells_;
    const tenon_tensor k = sdk::tensor(TENON_F32, {slots, heads, page, g.k_dim});
    const tenon_tensor value = sdk::tensor(TENON_F32, {slots, heads, page, g.v_dim});
    const auto plane = [&](const tenon_tensor& t, uint64_t offset, int64_t(&stride)[3]) {
      stride[0] = t.stride[0];
      stride[1] = t.stride[2];
      stride[2] = t.stride[1];
      return r.slice(store[kPlanes], t, offset * sizeof(float));
    };
    const uint64_t offset = plane_offset(layer);
    v.k = plane(k, offset, v.k_stride);
    v.v = plane(value, offset + uint64_t{slots_} * g.heads * page_cells_ * g.k_dim, v.v_stride);
    v.pages = r.slice(store[kPagesOf], sdk::tensor(TENON_I32, {slots, heads, 1}), lines * sizeof(int32_t));
    v.used = r.slice(store[kUsed], sdk::tensor(TENON_I32, {slots, heads}), lines * sizeof(int32_t));
    v.pos = r.slice(store[kPositions], sdk::tensor(TENON_I32, {slots, heads, page}), cells * sizeof(int32_t));
    v.place = r.slice(store[kPlaces], sdk::tensor(TENON_I32, {int64_t{r.bounds().rows}, heads}),
                      lines_before(layer) * rows_ * sizeof(int32_t));
    v.weights = r.slice(store[kWeightsOf], sdk::tensor(TENON_F32, {slots, heads, page}), cells * sizeof(float));
    return v;
  }

  void record_begin(const tenon_tid* store, sdk::Recorder& r) const {
    for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
      const tenon_kv_view v = view(layer, store, r);
      const tenon_tid score = r.slice(store[kScores], sdk::tensor(TENON_F32, {slots_, v.heads, page_cells_}),
                                      lines_before(layer) * slots_ * page_cells_ * sizeof(float));
      const tenon_operand operands[] = {
          {v.pos, TENON_READ | TENON_WRITE},        {v.place, TENON_WRITE},
          {v.weights, TENON_READ | TENON_WRITE},    {score, TENON_READ | TENON_WRITE},
          {r.step(TENON_STEP_LIVE), TENON_READ},    {r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
          {r.step(TENON_STEP_SEQ_ROW), TENON_READ}, {r.step(TENON_STEP_KV_LEN), TENON_READ}};
      const BeginArgs args{v.heads, page_cells_, cells_, budget_, recent_, r.bounds().seqs};
      r.emit<begin>({.name = "evict", .operands = operands, .chunks = {args.seqs * args.heads}}, args);
    }
  }

  void record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, sdk::Recorder& r) const {
    const tenon_kv_view to = view(layer, store, r);
    const tenon_operand operands[] = {{k, TENON_READ},
                                      {v, TENON_READ},
                                      {to.k, TENON_WRITE_NEW},
                                      {to.v, TENON_WRITE_NEW},
                                      {to.pages, TENON_READ},
                                      {to.place, TENON_READ},
                                      {r.step(TENON_STEP_LIVE), TENON_READ},
                                      {r.step(TENON_STEP_SLOT), TENON_READ}};
    r.emit<append>({.name = "append", .operands = operands, .chunks = {r.bounds().rows}},
                   AppendArgs{sdk::kv_layout(to), r.describe(k).stride[0], r.describe(v).stride[0], r.bounds().rows});
  }

  tenon_kv_view record_dequant(uint32_t, const tenon_tid*, const tenon_kv_format&, sdk::Recorder&) const {
    throw sdk::Refused("it makes no copies");
  }
  void record_commit(const tenon_tid*, sdk::Recorder&) const { throw sdk::Refused("trees of drafts"); }

  void reserve(uint32_t slot, uint32_t kv_len) {
    if (slot >= slots_ || kv_len > capacity_) throw sdk::NoSpace("the table of rotary angles ends there");
    length_[slot] = std::max(length_[slot], kv_len);
  }
  // The next step frees what lies past the length.
  void truncate(uint32_t slot, uint32_t kv_len) {
    if (kv_len > 0 && kv_len + cells_ - budget_ < length_.at(slot)) throw sdk::Refused("what was evicted is gone");
    length_.at(slot) = kv_len;
  }
  void fork(uint32_t, uint32_t, uint32_t, void*) const { throw sdk::Refused("sequences are not copied"); }
  void publish(void*) const {}
  uint64_t export_sequence(uint32_t, uint32_t, void*, void*) const { throw sdk::Refused("sequences are not exported"); }
  void import_sequence(uint32_t, uint32_t, void*, const void*, uint64_t) const {
    throw sdk::Refused("sequences are not imported");
  }
  uint64_t used_bytes(uint32_t kv_len) const {
    uint64_t bytes = 0;
    for (const tenon_kv_geometry& g : layers_) {
      bytes += uint64_t{std::min(kv_len, budget_)} * g.heads * (g.k_dim + g.v_dim) * sizeof(float);
    }
    return bytes;
  }

 private:
  enum Store { kPlanes, kPagesOf, kUsed, kPositions, kPlaces, kWeightsOf, kScores, kStores };

  tenon_kv_view prototype(const tenon_kv_geometry& g, uint32_t cells) const {
    auto v = sdk::abi_struct<tenon_kv_view>();
    v.format = &format_;
    v.flags = TENON_KV_HEADS_APART;
    v.heads = g.heads;
    v.k_dim = g.k_dim;
    v.v_dim = g.v_dim;
    v.page_cells = std::bit_ceil(cells);
    v.columns = 1;
    v.pos_rule = TENON_POS_TABLE;
    v.weight_rows = kObserved;
    v.group = g.layer + 1;
    return v;
  }
  uint64_t lines_before(uint32_t layer) const {
    uint64_t heads = 0;
    for (uint32_t i = 0; i < layer; ++i) heads += layers_[i].heads;
    return heads;
  }
  uint64_t plane_offset(uint32_t layer) const {
    uint64_t floats = 0;
    for (uint32_t i = 0; i < layer; ++i) {
      floats += uint64_t{slots_} * layers_[i].heads * page_cells_ * (layers_[i].k_dim + layers_[i].v_dim);
    }
    return floats;
  }

  static constexpr uint32_t kObserved = 8;  // the weights of so many rows of a step count
  tenon_kv_format format_;
  uint32_t budget_, recent_;
  std::vector<tenon_kv_geometry> layers_;
  std::vector<uint32_t> length_;
  uint32_t slots_ = 0, capacity_ = 0, rows_ = 0, cells_ = 0, page_cells_ = 0;
};

}  // namespace tenon::test

TENON_PLUGIN(tenon::test::HeavyHitter);
