// The header says what is kept and where; evict.h has the rule. What a step appends and copies in other formats
// are the ops of all caches (common/ops.h).
#include "evicting_cache.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "../common/ops.h"

namespace tenon::evicting {
namespace {

using sdk::NoSpace;
using sdk::Recorder;
using sdk::Refused;

constexpr uint32_t kMostCells = 1u << 24;
constexpr tenon_kv_format kPlain[] = {sdk::kv_format(TENON_F32), sdk::kv_format(TENON_F16), sdk::kv_format(TENON_BF16)};

}  // namespace

tenon_kv_format plain_format(std::string_view name) {
  return sdk::kv_format(name == "fp32" ? TENON_F32 : name == "fp16" ? TENON_F16 : TENON_BF16);
}

EvictingCache::EvictingCache(const tenon_kv_format& format, Policy policy, const sdk::Env& env)
    : format_(format), policy_(std::move(policy)), simd_((env.device().isa & TENON_ISA_AVX2) != 0) {}

tenon_kv_view EvictingCache::prototype(uint32_t layer, const Layer& l, uint32_t cells, uint32_t rows_per_seq) const {
  auto v = sdk::abi_struct<tenon_kv_view>();
  v.format = &format_;
  v.flags = TENON_KV_HEADS_APART;
  v.heads = l.heads;
  v.k_dim = l.k_dim;
  v.v_dim = l.v_dim;
  v.page_cells = std::bit_ceil(cells);
  v.columns = 1;
  v.pos_rule = TENON_POS_TABLE;
  v.weight_rows = policy_.rule.observe != 0 ? policy_.rule.observe : rows_per_seq;
  v.group = layer + 1;
  return v;
}

tenon_kv_view EvictingCache::claim(const tenon_kv_geometry& g, const tenon_bounds& b) const {
  if (g.heads == 0 || g.k_dim == 0 || g.v_dim == 0) throw Refused("a layer without heads or without dimensions");
  if (b.trees != 0) throw Refused("trees of drafts: their rows would weigh although most of them are taken back");
  return prototype(g.layer, {g.heads, g.k_dim, g.v_dim, 0, 0}, std::min(cells_for(b), kMostCells), b.rows_per_seq);
}

uint64_t EvictingCache::plane_bytes(const Layer& l, uint32_t dim) const {
  return uint64_t{slots_} * l.heads * cells_ * dim * element_bytes();
}

tenon_footprint EvictingCache::plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
  slots_ = b.slots;
  capacity_ = b.kv_len;
  rows_ = b.rows;
  rows_per_seq_ = b.rows_per_seq;
  cells_ = (cells_for(b) + 7) / 8 * 8;
  if (cells_for(b) > kMostCells) {
    throw NoSpace(std::to_string(cells_for(b)) + " cells a sequence; 2^24 are the most");
  }
  page_cells_ = std::bit_ceil(cells_);
  layers_.clear();
  uint64_t lines = 0, planes = 0;
  double bytes = 0;
  for (const tenon_kv_geometry& g : layers) {
    layers_.push_back({g.heads, g.k_dim, g.v_dim, lines, planes});
    bytes += double(slots_) * g.heads * page_cells_ * (double(g.k_dim) + g.v_dim + 3) * sizeof(float);
    if (bytes > static_cast<double>(INT64_MAX)) throw NoSpace("a cache of more than 2^63 bytes");
    planes += plane_bytes(layers_.back(), g.k_dim) + plane_bytes(layers_.back(), g.v_dim);
    lines += g.heads;
  }
  reserved_.assign(slots_, 0);
  auto f = sdk::abi_struct<tenon_footprint>();
  f.n_stores = kStores;
  f.store_bytes[kPlanes] = planes;
  f.store_bytes[kPages] = f.store_bytes[kUsed] = f.store_bytes[kPrompts] = lines * slots_ * sizeof(int32_t);
  f.store_bytes[kPlaces] = lines * rows_ * sizeof(int32_t);
  f.store_bytes[kPositions] = f.store_bytes[kWeightsOf] = f.store_bytes[kScoresOf] =
      lines * slots_ * page_cells_ * sizeof(float);
  return f;
}

void EvictingCache::attach(void* const* store, void* queue) {
  for (uint32_t i = 0; i < kStores; ++i) stores_.push_back(static_cast<std::byte*>(store[i]));
  std::vector<int32_t> pages, used;
  for (const Layer& l : layers_) {
    for (uint32_t slot = 0; slot < slots_; ++slot) pages.insert(pages.end(), l.heads, static_cast<int32_t>(slot));
  }
  used.assign(pages.size(), static_cast<int32_t>(cells_));
  const uint64_t bytes = pages.size() * sizeof(int32_t);
  slot_cache::copy({.to = store[kPages], .from = pages.data(), .bytes = bytes}, queue);
  slot_cache::copy({.to = store[kUsed], .from = used.data(), .bytes = bytes}, queue);
  slot_cache::finish(queue);
}

namespace {

struct PlaneShape {
  uint32_t slots, heads, cells, dim;  // dim: elements of a head
};

// Returns a plane as a tensor (slots, heads, cells, dim), and its strides in the order of a view: slot, cell, head.
tenon_tensor plane_of(tenon_format format, const PlaneShape& shape, int64_t (&stride)[3]) {
  const tenon_tensor t = sdk::tensor(format, {shape.slots, shape.heads, shape.cells, shape.dim});
  stride[0] = t.stride[0];
  stride[1] = t.stride[2];
  stride[2] = t.stride[1];
  return t;
}

}  // namespace

tenon_kv_view EvictingCache::view(uint32_t layer, const tenon_tid* store, Recorder& r) const {
  const Layer& l = layers_.at(layer);
  tenon_kv_view v = prototype(layer, l, cells_, rows_per_seq_);
  const int64_t slots = slots_, heads = l.heads, page = page_cells_;
  const tenon_format codec = format_.k.codec;
  const uint64_t lines = l.lines * slots_, each = sizeof(int32_t);
  v.k = r.slice(store[kPlanes], plane_of(codec, {slots_, l.heads, cells_, l.k_dim}, v.k_stride), l.planes);
  v.v = r.slice(store[kPlanes], plane_of(codec, {slots_, l.heads, cells_, l.v_dim}, v.v_stride),
                l.planes + plane_bytes(l, l.k_dim));
  v.pages = r.slice(store[kPages], sdk::tensor(TENON_I32, {slots, heads, 1}), lines * each);
  v.used = r.slice(store[kUsed], sdk::tensor(TENON_I32, {slots, heads}), lines * each);
  v.pos = r.slice(store[kPositions], sdk::tensor(TENON_I32, {slots, heads, page}), lines * page_cells_ * each);
  v.place = r.slice(store[kPlaces], sdk::tensor(TENON_I32, {int64_t{r.bounds().rows}, heads}), l.lines * rows_ * each);
  v.weights = r.slice(store[kWeightsOf], sdk::tensor(TENON_F32, {slots, heads, page}), lines * page_cells_ * each);
  return v;
}

void EvictingCache::record_begin(const tenon_tid* store, Recorder& r) const {
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    const tenon_kv_view v = view(layer, store, r);
    const tenon_tid scores = r.slice(store[kScoresOf], sdk::tensor(TENON_F32, {slots_, v.heads, page_cells_}),
                                     layers_[layer].lines * slots_ * page_cells_ * sizeof(float));
    const tenon_tid prompts = r.slice(store[kPrompts], sdk::tensor(TENON_I32, {slots_, v.heads}),
                                      layers_[layer].lines * slots_ * sizeof(int32_t));
    constexpr uint32_t kBoth = TENON_READ | TENON_WRITE;
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kEvictOperands, {{kPos, v.pos, kBoth},
                                          {kPlace, v.place, TENON_WRITE},
                                          {kWeights, v.weights, kBoth},
                                          {kScores, scores, kBoth},
                                          {kPrompt, prompts, kBoth},
                                          {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                          {kSeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                          {kSeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                          {kKvLen, r.step(TENON_STEP_KV_LEN), TENON_READ}});
    emit_evict(r, operands, {policy_.rule, v.heads, page_cells_, cells_, r.bounds().seqs});
  }
}

void EvictingCache::record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, Recorder& r) const {
  const tenon_kv_view to = view(layer, store, r);
  const slot_cache::AppendArgs args{sdk::kv_layout(to), r.describe(k).stride[0], r.describe(v).stride[0], cells_, simd_,
                                    r.bounds().rows};
  const std::vector<tenon_operand> operands = slot_cache::append_operands(to, k, v, r);
  const double columns = double(to.heads) * (to.k_dim + to.v_dim);
  tenon_cost cost{};
  cost.read[sdk::kCostPerRow] = columns * sizeof(float);
  cost.written[sdk::kCostPerRow] = columns * sdk::kv_element_bytes(format_.k.codec);
  slot_cache::emit_append(r, operands, cost, args);
}

tenon_kv_view EvictingCache::record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                                            Recorder& r) const {
  const auto* const plain = std::find_if(std::begin(kPlain), std::end(kPlain), [&](const tenon_kv_format& f) {
    return f.k.codec == want.k.codec && f.v.codec == want.v.codec && want.rotated != 0 && want.k.scale == 0 &&
           want.v.scale == 0;
  });
  if (plain == std::end(kPlain)) throw Refused("a copy is made in one of f32, f16 and bf16, with keys after rope");
  const tenon_kv_view from = view(layer, store, r);
  tenon_kv_view to = from;
  to.format = plain;
  to.k = r.temp(plane_of(plain->k.codec, {slots_, to.heads, cells_, to.k_dim}, to.k_stride));
  to.v = r.temp(plane_of(plain->k.codec, {slots_, to.heads, cells_, to.v_dim}, to.v_stride));
  const slot_cache::DequantArgs args{sdk::kv_layout(from), sdk::kv_layout(to), cells_, r.bounds().seqs, simd_, 1};
  const std::vector<tenon_operand> operands = slot_cache::dequant_operands(from, to, r);
  slot_cache::emit_dequant(r, operands, {}, args);
  return to;
}

void EvictingCache::check(uint32_t slot, uint32_t kv_len) const {
  if (slot >= slots_) {
    throw NoSpace("slot " + std::to_string(slot) + ", but the cache has " + std::to_string(slots_) + " slots");
  }
  if (kv_len > capacity_) {
    throw NoSpace("a sequence of " + std::to_string(kv_len) + " tokens, but the table of rotary angles ends at " +
                  std::to_string(capacity_));
  }
}

void EvictingCache::check_kept(uint32_t slot, uint32_t kv_len) const {
  if (kv_len == 0 || kv_len + cells_ - policy_.rule.most >= reserved_[slot]) return;
  throw Refused("a sequence of " + std::to_string(reserved_[slot]) + " tokens is to be cut to " +
                std::to_string(kv_len) + ", but what it has dropped of those before is gone");
}

void EvictingCache::reserve(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  reserved_[slot] = std::max(reserved_[slot], kv_len);
}

// Shortens the sequence only in numbers: the next step frees what lies past the length.
void EvictingCache::truncate(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  check_kept(slot, kv_len);
  reserved_[slot] = kv_len;
}

// Everything of the slot is copied; the next step of the copy frees what lies past its length.
void EvictingCache::fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue) {
  check(from, kv_len);
  check(to, kv_len);
  check_kept(from, kv_len);
  if (from == to) return;
  const auto copy = [&](Store store, uint64_t offset, uint64_t bytes) {
    std::byte* base = stores_[store] + offset;
    slot_cache::copy({.to = base + to * bytes, .from = base + from * bytes, .bytes = bytes}, queue);
  };
  for (const Layer& l : layers_) {
    const uint64_t k = plane_bytes(l, l.k_dim), v = plane_bytes(l, l.v_dim);
    copy(kPlanes, l.planes, k / slots_);
    copy(kPlanes, l.planes + k, v / slots_);
    const uint64_t line = uint64_t{page_cells_} * sizeof(float);
    for (const Store store : {kPositions, kWeightsOf, kScoresOf}) copy(store, l.lines * slots_ * line, l.heads * line);
    copy(kPrompts, l.lines * slots_ * sizeof(int32_t), l.heads * sizeof(int32_t));
  }
  reserved_[to] = kv_len;
}

// A cell takes its keys and values, a position, a weight and a score.
uint64_t EvictingCache::used_bytes(uint32_t kv_len) const {
  uint64_t bytes = 0;
  for (const Layer& l : layers_) {
    bytes += l.heads * (element_bytes() * (uint64_t{l.k_dim} + l.v_dim) + 3 * sizeof(float));
  }
  return bytes * std::min(kv_len, cells_);
}

}  // namespace tenon::evicting
