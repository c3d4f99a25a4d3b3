// This is a cache in pages. The header says how stores are laid out, and what derived classes may rely on.
#include "slot_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "ops.h"

namespace tenon::slot_cache {
namespace {

using sdk::Failed;
using sdk::NoSpace;
using sdk::Recorder;
using sdk::Refused;

constexpr uint64_t kAlignment = 256;
constexpr uint32_t kMostCells = 1u << 30;
constexpr uint32_t kMostRotated = 1024;  // dimensions of a head; a GPU rotates eight at a time in shared memory
enum Which : uint32_t { kKeys, kValues, kKeyScales, kValueScales };

// The formats of copies: plain, keys after rope or before it.
constexpr tenon_kv_format kPlain[] = {sdk::kv_format(TENON_F32),
                                      sdk::kv_format(TENON_F16),
                                      sdk::kv_format(TENON_BF16),
                                      sdk::kv_format(TENON_F32, TENON_FORMAT_NONE, false),
                                      sdk::kv_format(TENON_F16, TENON_FORMAT_NONE, false),
                                      sdk::kv_format(TENON_BF16, TENON_FORMAT_NONE, false)};

}  // namespace

SlotCache::SlotCache(std::string name, const tenon_kv_format& format, const Policy& policy, const sdk::Env& env)
    : name_(std::move(name)),
      format_(format),
      policy_(policy),
      simd_((env.device().isa & TENON_ISA_AVX2) != 0),
      memory_(env.device().memory) {}

uint32_t SlotCache::cells_for(const tenon_bounds& b) const {
  if (!ring()) return b.kv_len;
  return policy_.sinks + policy_.window + b.rows_per_seq + b.steps_ahead;
}

void SlotCache::set_pages(tenon_kv_view& view, uint32_t cells) const {
  view.page_cells = paged() ? policy_.page_tokens : std::bit_ceil(cells);
  view.columns = (cells + view.page_cells - 1) / view.page_cells;
}

tenon_kv_view SlotCache::prototype(uint32_t heads, uint32_t k_dim, uint32_t v_dim, uint32_t cells,
                                   uint32_t ring) const {
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.format = &format_;
  view.heads = heads;
  view.k_dim = k_dim;
  view.v_dim = v_dim;
  set_pages(view, cells);
  view.pos_rule = this->ring() ? TENON_POS_RING : TENON_POS_LINEAR;
  view.sinks = policy_.sinks;
  view.ring = ring;
  view.window = policy_.window;
  view.flags = (policy_.renumbered ? uint32_t{TENON_KV_RENUMBERED} : 0) | (policy_.hadamard ? sdk::kKvHadamard : 0);
  view.group = 1;
  return view;
}

tenon_kv_view SlotCache::claim(const tenon_kv_geometry& g, const tenon_bounds& b) const {
  if (g.heads == 0 || g.k_dim == 0 || g.v_dim == 0) throw Refused("a layer without heads or without dimensions");
  if (policy_.hadamard && std::max(g.k_dim, g.v_dim) > kMostRotated) {
    throw Refused("a head of " + std::to_string(std::max(g.k_dim, g.v_dim)) + " dimensions; up to " +
                  std::to_string(kMostRotated) + " are rotated");
  }
  if (policy_.renumbered && policy_.sinks + policy_.window > b.kv_len) {
    throw Refused("sinks and window are " + std::to_string(policy_.sinks + policy_.window) +
                  " tokens, but the capacity, which the table of rotary angles follows, is " +
                  std::to_string(b.kv_len));
  }
  const uint32_t cells = std::min(cells_for(b), kMostCells);
  return prototype(g.heads, g.k_dim, g.v_dim, cells, cells - policy_.sinks);
}

void SlotCache::add_plane(uint64_t& offset, uint32_t heads, uint32_t dim, tenon_format format) {
  planes_.push_back({offset, heads, dim, format});
  uint64_t token = 0, bytes = 0;
  if (__builtin_mul_overflow(uint64_t{heads}, sdk::kv_row_bytes(format, dim), &token) ||
      __builtin_mul_overflow(token, uint64_t{pages_} * page_room_, &bytes) ||
      __builtin_add_overflow(bytes, offset + kAlignment, &offset) || offset > uint64_t{INT64_MAX}) {
    throw NoSpace("a cache of more than 2^63 bytes");
  }
  offset = offset / kAlignment * kAlignment;
  token_bytes_ += token;
}

// How many pages a pool has.
uint32_t SlotCache::pool_pages(std::span<const tenon_kv_geometry> layers) const {
  double pages = static_cast<double>(slots_) * columns_;
  if (policy_.pool_memory > 0) {
    double token = 0;
    for (const tenon_kv_geometry& g : layers) {
      token += static_cast<double>(g.heads) * static_cast<double>(sdk::kv_row_bytes(format_.k.codec, g.k_dim));
      token += static_cast<double>(g.heads) * static_cast<double>(sdk::kv_row_bytes(format_.v.codec, g.v_dim));
      token += static_cast<double>(g.heads) * 2 * tenon_format_block(format_.k.scale).bytes;
    }
    pages = policy_.pool_memory * static_cast<double>(memory_) / (token * page_tokens_);
  } else if (policy_.pool_tokens > 0) {
    const uint64_t whole = (policy_.pool_tokens + page_tokens_ - 1) / page_tokens_;
    pages = static_cast<double>(whole);
  }
  if (pages > INT32_MAX) throw NoSpace("a pool of more than 2^31 pages");
  if (pages < columns_) {
    throw Failed("the pool has " + std::to_string(static_cast<uint64_t>(pages)) + " pages of " +
                 std::to_string(page_tokens_) +
                 " tokens, but a sequence of kv_cache.capacity = " + std::to_string(capacity_) + " tokens takes " +
                 std::to_string(columns_) + "; make the pool larger or the capacity smaller");
  }
  return static_cast<uint32_t>(pages);
}

tenon_footprint SlotCache::plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
  if (b.kv_len == 0 || b.slots == 0) throw Failed("a cache without capacity or without slots");
  slots_ = b.slots;
  capacity_ = b.kv_len;
  rows_ = b.rows;
  cells_ = cells_for(b);
  ring_ = ring() ? cells_ - policy_.sinks : 0;
  if (cells_ > kMostCells) throw NoSpace("a capacity of " + std::to_string(cells_) + " tokens; 2^30 is the most");
  auto view = sdk::abi_struct<tenon_kv_view>();
  set_pages(view, cells_);
  page_tokens_ = view.page_cells;
  columns_ = view.columns;
  page_room_ = paged() ? page_tokens_ : (cells_ + 7) / 8 * 8;
  pages_ = paged() ? pool_pages(layers) : slots_;
  planes_.clear();
  token_bytes_ = 0;
  uint64_t offset = 0;
  for (const tenon_kv_geometry& g : layers) {
    add_plane(offset, g.heads, g.k_dim, format_.k.codec);
    add_plane(offset, g.heads, g.v_dim, format_.v.codec);
    if (!scaled()) continue;
    add_plane(offset, g.heads, 1, format_.k.scale);
    add_plane(offset, g.heads, 1, format_.v.scale);
  }
  overwritten_.assign(ring() ? slots_ : 0, policy_.sinks);
  table_.assign(size_t{slots_} * columns_, kNoPage);
  if (!paged()) std::iota(table_.begin(), table_.end(), 0);
  auto f = sdk::abi_struct<tenon_footprint>();
  f.n_stores = ring() || paged() ? 3 : 2;
  f.store_bytes[0] = offset;
  f.store_bytes[1] = table_.size() * sizeof(int32_t);
  if (ring() || paged()) f.store_bytes[2] = uint64_t{paged() ? slots_ : rows_} * sizeof(int32_t);
  if (policy_.renumbered) f.flags = TENON_FOOTPRINT_ENDLESS;
  return f;
}

void SlotCache::attach(void* const* store, void* queue) {
  base_ = static_cast<std::byte*>(store[0]);
  pages_store_ = static_cast<std::byte*>(store[1]);
  copy({.to = pages_store_, .from = table_.data(), .bytes = table_.size() * sizeof(int32_t)}, queue);
  std::vector<int32_t> numbers(paged() ? slots_ : 0);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (paged()) copy({.to = store[2], .from = numbers.data(), .bytes = numbers.size() * sizeof(int32_t)}, queue);
  finish(queue);
}

void SlotCache::upload_table(uint32_t slot, uint32_t first_column, uint32_t end, void* queue) const {
  const size_t first = size_t{slot} * columns_ + first_column;
  copy({.to = pages_store_ + first * sizeof(int32_t),
        .from = table_.data() + first,
        .bytes = (end - first_column) * sizeof(int32_t)},
       queue);
}

void SlotCache::copy_page(uint32_t from, uint32_t to, void* queue) const {
  for (const Plane& p : planes_) {
    const uint64_t bytes = head_bytes(p) * p.heads;
    copy({.to = base_ + p.offset + to * bytes, .from = base_ + p.offset + from * bytes, .bytes = bytes}, queue);
  }
}

const SlotCache::Plane& SlotCache::plane(uint32_t layer, uint32_t which) const {
  const size_t i = size_t{layer} * planes_a_layer() + which;
  if (i >= planes_.size()) {
    throw Failed("layer " + std::to_string(layer) + " of a cache of " +
                 std::to_string(planes_.size() / planes_a_layer()) + " layers");
  }
  return planes_[i];
}

std::byte* SlotCache::cell(const Plane& p, uint32_t slot, uint32_t cell) const {
  const auto page = static_cast<uint64_t>(table_[size_t{slot} * columns_ + cell / page_tokens_]);
  return base_ + p.offset + page * head_bytes(p) * p.heads + cell % page_tokens_ * row_bytes(p);
}

void SlotCache::check(uint32_t slot, uint32_t kv_len) const {
  if (slot >= slots_) {
    throw NoSpace("slot " + std::to_string(slot) + ", but the cache has " + std::to_string(slots_) + " slots");
  }
  if (kv_len > (policy_.renumbered ? uint32_t{INT32_MAX} : capacity_)) {
    throw NoSpace("a sequence of " + std::to_string(kv_len) + " tokens, but the cache has a capacity of " +
                  std::to_string(capacity_) + " tokens a sequence");
  }
}

namespace {

// A plane of pages as a tensor (page, head, cell, dim), and its strides in the order of a view.
tenon_tensor plane_tensor(tenon_format format, uint32_t pages, uint32_t heads, uint32_t cells, uint32_t dim) {
  return sdk::tensor(format, {pages, heads, cells, sdk::kv_row_stored(format, dim)});
}
void set_strides(const tenon_tensor& t, int64_t (&stride)[3]) {
  stride[0] = t.stride[0];
  stride[1] = t.stride[2];
  stride[2] = t.stride[1];
}

}  // namespace

sdk::KvLayout SlotCache::rule() const {
  return sdk::kv_layout(prototype(1, 1, 1, cells_, ring_));
}

tenon_kv_view SlotCache::view(uint32_t layer, const tenon_tid* store, Recorder& r) const {
  tenon_kv_view view =
      prototype(plane(layer, kKeys).heads, plane(layer, kKeys).dim, plane(layer, kValues).dim, cells_, ring_);
  const auto slice = [&](uint32_t which, int64_t(&stride)[3]) {
    const Plane& p = plane(layer, which);
    const tenon_tensor t = plane_tensor(p.format, pages_, p.heads, page_room_, p.dim);
    set_strides(t, stride);
    return r.slice(store[0], t, p.offset);
  };
  view.k = slice(kKeys, view.k_stride);
  view.v = slice(kValues, view.v_stride);
  if (scaled()) {
    view.k_scale = slice(kKeyScales, view.ks_stride);
    view.v_scale = slice(kValueScales, view.vs_stride);
  }
  view.pages = store[1];
  view.place = ring() ? r.slice(store[2], sdk::tensor(TENON_I32, {r.bounds().rows}), 0) : r.step(TENON_STEP_PLACE);
  return view;
}

void SlotCache::record_begin(const tenon_tid* store, Recorder& r) const {
  if (!ring()) return;
  const tenon_tid place = r.slice(store[2], sdk::tensor(TENON_I32, {r.bounds().rows}), 0);
  const tenon_operand operands[] = {
      {place, TENON_WRITE}, {r.step(TENON_STEP_PLACE), TENON_READ}, {r.step(TENON_STEP_LIVE), TENON_READ}};
  emit_place(r, operands, {rule(), r.bounds().rows});
}

void SlotCache::record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, Recorder& r) const {
  const tenon_kv_view to = view(layer, store, r);
  const AppendArgs args{sdk::kv_layout(to), r.describe(k).stride[0], r.describe(v).stride[0], cells_, simd_,
                        r.bounds().rows};
  const tenon_operand operands[] = {{k, TENON_READ},
                                    {v, TENON_READ},
                                    {to.k, TENON_WRITE_NEW},
                                    {to.v, TENON_WRITE_NEW},
                                    {scaled() ? to.k_scale : to.k, TENON_WRITE_NEW},
                                    {scaled() ? to.v_scale : to.v, TENON_WRITE_NEW},
                                    {to.pages, TENON_READ},
                                    {r.step(TENON_STEP_LIVE), TENON_READ},
                                    {to.place, TENON_READ},
                                    {r.step(TENON_STEP_SLOT), TENON_READ}};
  const auto columns = static_cast<double>(to.heads) * (to.k_dim + to.v_dim);
  tenon_cost cost{};
  cost.read[sdk::kCostPerRow] = columns * sizeof(float);
  cost.written[sdk::kCostPerRow] = columns * sdk::kv_element_bytes(format_.k.codec);
  emit_append(r, operands, cost, args);
}

tenon_kv_view SlotCache::record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                                        Recorder& r) const {
  const auto* const plain = std::find_if(std::begin(kPlain), std::end(kPlain), [&](const tenon_kv_format& f) {
    return f.k.codec == want.k.codec && f.v.codec == want.v.codec && f.rotated == format_.rotated;
  });
  if (plain == std::end(kPlain) || want.k.scale != TENON_FORMAT_NONE || want.v.scale != TENON_FORMAT_NONE) {
    throw Refused("a copy is made in one of f32, f16 and bf16 for keys and values");
  }
  if (want.rotated != format_.rotated) throw Refused("a copy has its keys as the cache has them, before or after rope");
  const tenon_kv_view from = view(layer, store, r);
  tenon_kv_view to = from;
  const uint32_t cells = ring() ? cells_ : std::min(cells_, r.bounds().kv_len);
  const tenon_tensor kt = plane_tensor(want.k.codec, slots_, to.heads, cells, to.k_dim);
  const tenon_tensor vt = plane_tensor(want.v.codec, slots_, to.heads, cells, to.v_dim);
  to.format = plain;
  to.k = r.temp(kt);
  to.v = r.temp(vt);
  to.k_scale = to.v_scale = 0;
  set_strides(kt, to.k_stride);
  set_strides(vt, to.v_stride);
  if (paged()) {  // the copy has one page a slot
    to.page_cells = std::bit_ceil(cells);
    to.columns = 1;
    to.pages = store[2];
  }
  for (auto* stride : {&to.ks_stride, &to.vs_stride}) std::fill(std::begin(*stride), std::end(*stride), 0);
  const DequantArgs args{sdk::kv_layout(from), sdk::kv_layout(to), cells, r.bounds().seqs, simd_};
  const tenon_operand operands[] = {{from.k, TENON_READ},
                                    {from.v, TENON_READ},
                                    {scaled() ? from.k_scale : from.k, TENON_READ},
                                    {scaled() ? from.v_scale : from.v, TENON_READ},
                                    {to.k, TENON_WRITE},
                                    {to.v, TENON_WRITE},
                                    {from.pages, TENON_READ},
                                    {r.step(TENON_STEP_LIVE), TENON_READ},
                                    {r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                    {r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                    {r.step(TENON_STEP_KV_LEN), TENON_READ},
                                    {to.pages, TENON_READ}};
  const auto columns = static_cast<double>(to.heads) * (to.k_dim + to.v_dim);
  const double shared = std::max<uint32_t>(1, r.bounds().rows_per_seq);  // rows that one copy serves
  tenon_cost cost{};
  cost.read[sdk::kCostPerToken] = columns * sdk::kv_element_bytes(format_.k.codec) / shared;
  cost.written[sdk::kCostPerToken] = columns * tenon_format_block(want.k.codec).bytes / shared;
  emit_dequant(r, operands, cost, args);
  return to;
}

void SlotCache::record_commit(const tenon_tid* store, Recorder& r) const {
  for (uint32_t layer = 0; layer < planes_.size() / planes_a_layer(); ++layer) {
    const tenon_kv_view v = view(layer, store, r);
    constexpr uint32_t kBoth = TENON_READ | TENON_WRITE;
    const tenon_operand operands[] = {{v.k, kBoth},
                                      {v.v, kBoth},
                                      {scaled() ? v.k_scale : v.k, kBoth},
                                      {scaled() ? v.v_scale : v.v, kBoth},
                                      {v.pages, TENON_READ},
                                      {r.step(TENON_STEP_LIVE), TENON_READ},
                                      {v.place, TENON_READ},
                                      {r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                      {r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                      {r.step(TENON_STEP_ACCEPTED), TENON_READ},
                                      {r.step(TENON_STEP_SURVIVOR), TENON_READ}};
    tenon_cost cost{};
    cost.read[sdk::kCostPerRow] = cost.written[sdk::kCostPerRow] =
        static_cast<double>(v.heads) * (v.k_dim + v.v_dim) * sdk::kv_element_bytes(format_.k.codec);
    const auto row = [&](uint32_t which) { return static_cast<uint32_t>(row_bytes(plane(layer, which))); };
    emit_commit(
        r, operands, cost,
        {sdk::kv_layout(v), r.bounds().seqs, tenon_format_block(format_.k.scale).bytes, {row(kKeys), row(kValues)}});
  }
}

uint32_t SlotCache::first_kept(uint32_t kv_len) const {
  if (!ring() || kv_len + 1 <= policy_.window) return std::min(kv_len, policy_.sinks);
  return std::min(kv_len, std::max(policy_.sinks, kv_len + 1 - policy_.window));
}

uint32_t SlotCache::first_exported(uint32_t kv_len) const {
  return kv_len == 0 ? 0 : std::max(first_kept(kv_len - 1), std::min(kv_len, policy_.sinks));
}

std::vector<SlotCache::Run> SlotCache::kept(uint32_t first, uint32_t kv_len) const {
  if (!ring()) {
    std::vector<Run> runs;
    for (uint32_t p = 0; p < kv_len; p += page_tokens_) runs.push_back({p, p, std::min(page_tokens_, kv_len - p)});
    return runs;
  }
  std::vector<Run> runs = {{0, 0, std::min(kv_len, policy_.sinks)}};
  for (uint32_t p = first; p < kv_len;) {
    const uint32_t at = rule().cell_of(p), n = std::min(kv_len - p, cells_ - at);
    runs.push_back({p, at, n});
    p += n;
  }
  return runs;
}

void SlotCache::check_kept(uint32_t slot, uint32_t kv_len) const {
  if (!ring() || kv_len <= policy_.sinks || first_kept(kv_len) >= overwritten_[slot]) return;
  throw Refused("a sequence cut to " + std::to_string(kv_len) + " tokens sees position " +
                std::to_string(first_kept(kv_len)) + ", but the ring has none from " + std::to_string(policy_.sinks) +
                " to " + std::to_string(overwritten_[slot] - 1) + " any more");
}

void SlotCache::reserve(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  if (ring() && kv_len > ring_) overwritten_[slot] = std::max(overwritten_[slot], kv_len - ring_);
}

void SlotCache::truncate(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  if (kv_len > 0) return check_kept(slot, kv_len);
  if (ring()) overwritten_[slot] = policy_.sinks;
}

void SlotCache::fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue) {
  check(from, kv_len);
  check(to, kv_len);
  check_kept(from, kv_len);
  if (from == to) return;
  for (const Plane& p : planes_) {
    for (const Run& run : kept(first_kept(kv_len), kv_len)) {
      if (run.count == 0) continue;
      copy({.to = cell(p, to, run.cell),
            .from = cell(p, from, run.cell),
            .bytes = run.count * row_bytes(p),
            .pieces = p.heads,
            .to_pitch = head_bytes(p),
            .from_pitch = head_bytes(p)},
           queue);
    }
  }
  if (ring()) overwritten_[to] = std::max(policy_.sinks, first_kept(kv_len));
}

uint64_t SlotCache::used_bytes(uint32_t kv_len) const {
  return token_bytes_ * (ring() ? std::min<uint64_t>(kv_len, uint64_t{policy_.sinks} + policy_.window) : kv_len);
}

}  // namespace tenon::slot_cache
