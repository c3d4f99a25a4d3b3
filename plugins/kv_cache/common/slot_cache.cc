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
using sdk::Refused;

constexpr uint64_t kAlignment = 256;
constexpr uint32_t kMostCells = 1u << 30;
constexpr uint32_t kWindowPage = 64;     // cells of a page of a layer with a window
constexpr uint32_t kMostRotated = 1024;  // dimensions of a head; a GPU rotates eight at a time in shared memory

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

SlotCache::Group SlotCache::group_for(uint32_t window, const tenon_bounds& b) const {
  Group g;
  const uint32_t cells = std::min(cells_for(b), kMostCells);
  g.page_cells = paged() ? policy_.page_tokens : std::bit_ceil(cells);
  g.page_room = paged() ? g.page_cells : (cells + 7) / 8 * 8;
  if (window != 0 && !ring() && !paged()) {
    const uint64_t needed = uint64_t{window} + b.rows_per_seq + b.steps_ahead;
    const uint64_t turn = (needed + kWindowPage - 1) / kWindowPage;
    if (turn * kWindowPage < cells) {
      g.window = window;
      g.turn = static_cast<uint32_t>(turn);
      g.page_cells = g.page_room = kWindowPage;
    }
  }
  g.columns = (cells + g.page_cells - 1) / g.page_cells;
  g.pages = g.turn != 0 ? b.slots * g.turn : b.slots;
  return g;
}

uint32_t SlotCache::add_group(const Group& group) {
  if (group.turn == 0) return 0;
  for (uint32_t i = 1; i < groups_.size(); ++i) {
    if (groups_[i].window == group.window) return i;
  }
  groups_.push_back(group);
  return static_cast<uint32_t>(groups_.size() - 1);
}

tenon_kv_view SlotCache::prototype(uint32_t heads, uint32_t k_dim, uint32_t v_dim, const Group& group,
                                   uint32_t cells) const {
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.format = &format_;
  view.heads = heads;
  view.k_dim = k_dim;
  view.v_dim = v_dim;
  view.page_cells = group.page_cells;
  view.columns = group.columns;
  view.pos_rule = ring() ? TENON_POS_RING : TENON_POS_LINEAR;
  view.sinks = policy_.sinks;
  view.ring = ring() ? cells - policy_.sinks : 0;
  view.window = policy_.window;
  view.flags = (policy_.renumbered ? uint32_t{TENON_KV_RENUMBERED} : 0) | (policy_.hadamard ? sdk::kKvHadamard : 0);
  view.group = 1 + group.window;
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
  return prototype(g.heads, g.k_dim, g.v_dim, group_for(g.window, b), std::min(cells_for(b), kMostCells));
}

void SlotCache::add_plane(uint64_t& offset, const Plane& plane) {
  planes_.push_back(plane);
  planes_.back().offset = offset;
  Group& group = groups_[plane.group];
  uint64_t token = 0, bytes = 0;
  if (__builtin_mul_overflow(uint64_t{plane.heads}, sdk::kv_row_bytes(plane.format, plane.dim), &token) ||
      __builtin_mul_overflow(token, uint64_t{group.pages} * group.page_room, &bytes) ||
      __builtin_add_overflow(bytes, offset + kAlignment, &offset) || offset > uint64_t{INT64_MAX}) {
    throw NoSpace("a cache of more than 2^63 bytes");
  }
  offset = offset / kAlignment * kAlignment;
  group.token_bytes += token;
}

// How many pages a pool has.
uint32_t SlotCache::pool_pages(std::span<const tenon_kv_geometry> layers) const {
  const uint32_t columns = groups_.front().columns;
  double pages = static_cast<double>(slots_) * columns;
  if (policy_.pool_memory > 0) {
    double token = 0;
    for (const tenon_kv_geometry& g : layers) {
      token += static_cast<double>(g.heads) * static_cast<double>(sdk::kv_row_bytes(format_.k.codec, g.k_dim));
      token += static_cast<double>(g.heads) * static_cast<double>(sdk::kv_row_bytes(format_.v.codec, g.v_dim));
      token += static_cast<double>(g.heads) * 2 * tenon_format_block(format_.k.scale).bytes;
    }
    pages = policy_.pool_memory * static_cast<double>(memory_) / (token * page_tokens());
  } else if (policy_.pool_tokens > 0) {
    const uint64_t whole = (policy_.pool_tokens + page_tokens() - 1) / page_tokens();
    pages = static_cast<double>(whole);
  }
  if (pages > INT32_MAX) throw NoSpace("a pool of more than 2^31 pages");
  if (pages < columns) {
    throw Failed("the pool has " + std::to_string(static_cast<uint64_t>(pages)) + " pages of " +
                 std::to_string(page_tokens()) +
                 " tokens, but a sequence of kv_cache.capacity = " + std::to_string(capacity_) + " tokens takes " +
                 std::to_string(columns) + "; make the pool larger or the capacity smaller");
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
  groups_ = {group_for(0, b)};
  if (paged()) groups_.front().pages = pool_pages(layers);
  planes_.clear();
  uint64_t offset = 0;
  for (const tenon_kv_geometry& g : layers) {
    const uint32_t group = add_group(group_for(g.window, b));
    add_plane(offset, {0, g.heads, g.k_dim, format_.k.codec, group});
    add_plane(offset, {0, g.heads, g.v_dim, format_.v.codec, group});
    if (!scaled()) continue;
    add_plane(offset, {0, g.heads, 1, format_.k.scale, group});
    add_plane(offset, {0, g.heads, 1, format_.v.scale, group});
  }
  overwritten_.assign(ring() ? slots_ : 0, policy_.sinks);
  first_.assign(groups_.size() * slots_, 0);
  fill_tables();
  auto f = sdk::abi_struct<tenon_footprint>();
  f.n_stores = ring() || paged() ? 3 : 2;
  f.store_bytes[0] = offset;
  f.store_bytes[1] = table_.size() * sizeof(int32_t);
  if (ring() || paged()) f.store_bytes[2] = uint64_t{paged() ? slots_ : rows_} * sizeof(int32_t);
  if (policy_.renumbered) f.flags = TENON_FOOTPRINT_ENDLESS;
  return f;
}

// A pool gives its pages away one by one.
void SlotCache::fill_tables() {
  table_.clear();
  for (Group& g : groups_) {
    g.table = table_.size();
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      for (uint32_t column = 0; column < g.columns; ++column) {
        const uint32_t page = g.turn != 0 ? slot * g.turn + column % g.turn : slot;
        table_.push_back(paged() ? kNoPage : static_cast<int32_t>(page));
      }
    }
  }
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
  const size_t first = size_t{slot} * groups_.front().columns + first_column;
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

std::byte* SlotCache::cell(const Plane& p, uint32_t slot, uint32_t cell) const {
  const Group& g = groups_[p.group];
  const auto page = static_cast<uint64_t>(table_[g.table + size_t{slot} * g.columns + cell / g.page_cells]);
  return base_ + p.offset + page * head_bytes(p) * p.heads + cell % g.page_cells * row_bytes(p);
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

uint32_t SlotCache::first_kept(uint32_t kv_len) const {
  if (!ring() || kv_len + 1 <= policy_.window) return std::min(kv_len, policy_.sinks);
  return std::min(kv_len, std::max(policy_.sinks, kv_len + 1 - policy_.window));
}

uint32_t SlotCache::first_exported(uint32_t kv_len) const {
  return kv_len == 0 ? 0 : std::max(first_kept(kv_len - 1), std::min(kv_len, policy_.sinks));
}

std::vector<SlotCache::Run> SlotCache::kept(uint32_t first, uint32_t kv_len) const {
  std::vector<Run> runs = {{0, 0, std::min(kv_len, policy_.sinks)}};
  for (uint32_t p = first; p < kv_len;) {
    const uint32_t at = rule().cell_of(p), n = std::min(kv_len - p, cells_ - at);
    runs.push_back({p, at, n});
    p += n;
  }
  return runs;
}

std::vector<SlotCache::Run> SlotCache::run_of(const Group& group, uint32_t first, uint32_t kv_len) {
  std::vector<Run> runs;
  for (uint32_t p = first; p < kv_len;) {
    const uint32_t n = std::min(group.page_cells - p % group.page_cells, kv_len - p);
    runs.push_back({p, p, n});
    p += n;
  }
  return runs;
}

namespace {

// The first of the newest `window` positions of a sequence.
uint32_t begin_of_window(uint32_t window, uint32_t kv_len) {
  return kv_len > window ? kv_len - window : 0;
}

}  // namespace

std::vector<SlotCache::Run> SlotCache::seen_after(const Plane& p, uint32_t kv_len) const {
  if (ring()) return kept(first_kept(kv_len), kv_len);
  const Group& g = groups_[p.group];
  return run_of(g, g.turn != 0 ? begin_of_window(g.window, kv_len + 1) : 0, kv_len);
}

void SlotCache::check_kept(uint32_t slot, uint32_t kv_len) const {
  for (size_t i = 1; i < groups_.size(); ++i) {
    const uint32_t seen = begin_of_window(groups_[i].window, kv_len + 1), first = first_[i * slots_ + slot];
    if (seen >= first) continue;
    throw Refused("a sequence cut to " + std::to_string(kv_len) + " tokens sees position " + std::to_string(seen) +
                  ", but layers with a window of " + std::to_string(groups_[i].window) + " have none before " +
                  std::to_string(first) + " any more");
  }
  if (!ring() || kv_len <= policy_.sinks || first_kept(kv_len) >= overwritten_[slot]) return;
  throw Refused("a sequence cut to " + std::to_string(kv_len) + " tokens sees position " +
                std::to_string(first_kept(kv_len)) + ", but the ring has none from " + std::to_string(policy_.sinks) +
                " to " + std::to_string(overwritten_[slot] - 1) + " any more");
}

void SlotCache::reserve(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  if (ring() && kv_len > ring_) overwritten_[slot] = std::max(overwritten_[slot], kv_len - ring_);
  for (size_t i = 1; i < groups_.size(); ++i) {
    uint32_t& first = first_[i * slots_ + slot];
    first = std::max(first, begin_of_window(groups_[i].turn * groups_[i].page_cells, kv_len));
  }
}

void SlotCache::truncate(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  if (kv_len > 0) return check_kept(slot, kv_len);
  if (ring()) overwritten_[slot] = policy_.sinks;
  for (size_t i = 1; i < groups_.size(); ++i) first_[i * slots_ + slot] = 0;
}

void SlotCache::fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue) {
  check(from, kv_len);
  check(to, kv_len);
  check_kept(from, kv_len);
  if (from == to) return;
  for (const Plane& p : planes_) {
    for (const Run& run : seen_after(p, kv_len)) {
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
  for (size_t i = 1; i < groups_.size(); ++i) {
    first_[i * slots_ + to] = begin_of_window(groups_[i].window, kv_len + 1);
  }
}

uint64_t SlotCache::used_bytes(uint32_t kv_len) const {
  uint64_t bytes = 0;
  for (const Group& g : groups_) {
    const uint64_t most = ring() ? uint64_t{policy_.sinks} + policy_.window : g.turn != 0 ? g.window : kv_len;
    bytes += g.token_bytes * std::min<uint64_t>(kv_len, most);
  }
  return bytes;
}

}  // namespace tenon::slot_cache
