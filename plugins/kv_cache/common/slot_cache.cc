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
constexpr uint32_t kWindowPage = 64;     // a page of a layer with a window has so many cells at least
constexpr uint32_t kMostRotated = 1024;  // a head has so many at most; a GPU rotates eight at a time in shared memory

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
  if (window != 0 && !ring()) {
    const uint64_t needed = uint64_t{window} + b.rows_per_seq + b.steps_ahead;
    const uint32_t page = paged() ? g.page_cells : std::max(kWindowPage, policy_.key_group);
    // These tokens may begin in the last cell of a pool's page, and then touch a page more than they would fill.
    const uint64_t turn = paged() ? (needed + page - 2) / page + 1 : (needed + page - 1) / page;
    if (turn * page < cells) {
      g.window = window;
      g.turn = static_cast<uint32_t>(turn);
      g.reach = static_cast<uint32_t>(paged() ? needed : turn * page);
      g.page_cells = g.page_room = page;
    }
  }
  g.columns = (cells + g.page_cells - 1) / g.page_cells;
  g.pages = g.window != 0 ? b.slots * g.turn : b.slots;
  return g;
}

uint32_t SlotCache::group_of(uint32_t window) const {
  for (uint32_t i = 1; i < groups_.size(); ++i) {
    if (groups_[i].window == window) return i;
  }
  return 0;
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
  view.key_group = policy_.key_group;
  view.flags = (policy_.key_group != 0 ? uint32_t{TENON_KV_CHANNEL_KEYS} : 0) |
               (policy_.renumbered ? uint32_t{TENON_KV_RENUMBERED} : 0) | (policy_.hadamard ? sdk::kKvHadamard : 0);
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
  if (policy_.key_group != 0) check_key_groups(b);
  if (policy_.tail > b.kv_len) {
    throw Refused("kv_cache.tail = " + std::to_string(policy_.tail) +
                  " tokens are more than kv_cache.capacity = " + std::to_string(b.kv_len));
  }
  const auto view_of = [&](uint32_t window) {
    return prototype(g.heads, g.k_dim, g.v_dim, group_for(window, b), std::min(cells_for(b), kMostCells));
  };
  tenon_kv_view view = view_of(g.window);
  if (policy_.tail == 0) return view;
  tenon_kv_view tail = view_of(tail_window(g.window));
  make_exact(tail, kTailFormat);
  join_tail(view, tail);
  return view;
}

void SlotCache::check_key_groups(const tenon_bounds& b) const {
  if (policy_.tail < policy_.key_group) {
    throw Refused("kv_cache.tail = " + std::to_string(policy_.tail) + " tokens are fewer than kv_cache.group = " +
                  std::to_string(policy_.key_group) + ": what is not yet coded must be in the tail");
  }
  if (b.trees != 0) {
    throw Refused(
        "kv_cache.keys = \"channel\" codes groups of keys in the order of their tokens, which drafts that branch lack: "
        "choose a draft that is a chain, or kv_cache.keys = \"token\"");
  }
}

void SlotCache::join_tail(tenon_kv_view& view, const tenon_kv_view& tail) const {
  tails_.push_back(tail);
  view.flags |= TENON_KV_RECENT;
  view.recent = policy_.tail;
  view.recent_view = &tails_.back();
}

void SlotCache::add_plane(uint64_t& offset, const Plane& plane) {
  planes_.push_back(plane);
  planes_.back().offset = offset;
  Group& group = groups_[plane.group];
  uint64_t token = 0, bytes = 0;
  if (__builtin_mul_overflow(uint64_t{plane.heads}, sdk::kv_row_bytes(plane.format, plane.dim), &token) ||
      __builtin_mul_overflow(token, group.pages * page_rows(plane), &bytes) ||
      __builtin_add_overflow(bytes, offset + kAlignment, &offset) || offset > uint64_t{INT64_MAX}) {
    throw NoSpace("a cache of more than 2^63 bytes");
  }
  offset = offset / kAlignment * kAlignment;
  (plane.cells_a_row == 1 ? group.token_bytes : group.key_group_bytes) += token;
}

uint64_t SlotCache::pool_pages(const Group& group, uint64_t pages) const {
  if (group.window == 0) return pages;
  return std::min<uint64_t>(pages, uint64_t{slots_} * group.turn * policy_.windows);
}

// Returns the largest pool with which all groups' pages fit into the share of memory. page_bytes is by group.
uint64_t SlotCache::pages_in_memory(std::span<const double> page_bytes) const {
  const auto bytes = [&](uint64_t pages) {
    double sum = 0;
    for (size_t i = 0; i < page_bytes.size(); ++i) {
      sum += page_bytes[i] * static_cast<double>(pool_pages(groups_[i], pages) + (i == 0 ? 0 : 1));
    }
    return sum;
  };
  uint64_t fits = 0, over = uint64_t{1} << 32;
  while (over - fits > 1) {
    const uint64_t middle = (fits + over) / 2;
    (bytes(middle) <= policy_.pool_memory * static_cast<double>(memory_) ? fits : over) = middle;
  }
  // Where all layers have windows, pages of the first group are numbers and cost nothing.
  return page_bytes.front() > 0 ? fits : std::min(fits, uint64_t{slots_} * groups_.front().columns);
}

// Says how many pages the pool of each group has.
void SlotCache::size_pools(std::span<const tenon_kv_geometry> layers) {
  const uint32_t columns = groups_.front().columns;
  uint64_t pages = uint64_t{slots_} * columns;
  if (policy_.pool_memory > 0) {
    std::vector<double> bytes(groups_.size());
    for (const tenon_kv_geometry& g : layers) {
      const auto add = [&](uint32_t group, const tenon_kv_format& f) {
        bytes[group] +=
            static_cast<double>(g.heads) * page_tokens() *
            static_cast<double>(sdk::kv_row_bytes(f.k.codec, g.k_dim) + sdk::kv_row_bytes(f.v.codec, g.v_dim) +
                                2 * uint64_t{tenon_format_block(f.k.scale).bytes});
      };
      add(group_of(g.window), format_);
      if (policy_.tail != 0) add(group_of(tail_window(g.window)), kTailFormat);
    }
    pages = pages_in_memory(bytes);
  } else if (policy_.pool_tokens > 0) {
    pages = (policy_.pool_tokens + page_tokens() - 1) / page_tokens();
  }
  if (pages > INT32_MAX) throw NoSpace("a pool of more than 2^31 pages");
  if (pages < columns) {
    throw Failed("the pool has " + std::to_string(pages) + " pages of " + std::to_string(page_tokens()) +
                 " tokens, but a sequence of kv_cache.capacity = " + std::to_string(capacity_) + " tokens takes " +
                 std::to_string(columns) + "; make the pool larger or the capacity smaller");
  }
  for (Group& g : groups_) g.pages = static_cast<uint32_t>(pool_pages(g, pages)) + (g.window == 0 ? 0 : 1);
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
  const auto add_group = [&](uint32_t window) {
    const Group group = group_for(window, b);
    if (group.window != 0 && group_of(group.window) == 0) groups_.push_back(group);
  };
  for (const tenon_kv_geometry& g : layers) {
    add_group(g.window);
    if (policy_.tail != 0) add_group(tail_window(g.window));
  }
  if (paged()) size_pools(layers);
  planes_.clear();
  uint64_t offset = 0;
  for (const tenon_kv_geometry& g : layers) {
    const uint32_t group = group_of(g.window);
    add_plane(offset, {0, g.heads, g.k_dim, format_.k.codec, group});
    add_plane(offset, {0, g.heads, g.v_dim, format_.v.codec, group});
    if (!scaled()) continue;
    if (policy_.key_group != 0) {
      add_plane(offset, {0, g.heads, 2 * g.k_dim, format_.k.scale, group, policy_.key_group});
    } else {
      add_plane(offset, {0, g.heads, 1, format_.k.scale, group});
    }
    add_plane(offset, {0, g.heads, 1, format_.v.scale, group});
    if (policy_.tail == 0) continue;
    const uint32_t tail = group_of(tail_window(g.window));
    add_plane(offset, {0, g.heads, g.k_dim, kTailFormat.k.codec, tail});
    add_plane(offset, {0, g.heads, g.v_dim, kTailFormat.v.codec, tail});
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
  for (uint32_t i = 0; i < groups_.size(); ++i) {
    Group& g = groups_[i];
    g.table = table_.size();
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      for (uint32_t column = 0; column < g.columns; ++column) {
        const uint32_t page = g.window != 0 ? slot * g.turn + column % g.turn : slot;
        table_.push_back(paged() ? no_page(i) : static_cast<int32_t>(page));
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

void SlotCache::upload_table(uint32_t group, uint32_t slot, uint32_t first_column, uint32_t end, void* queue) const {
  const size_t first = groups_[group].table + size_t{slot} * groups_[group].columns + first_column;
  copy({.to = pages_store_ + first * sizeof(int32_t),
        .from = table_.data() + first,
        .bytes = (end - first_column) * sizeof(int32_t)},
       queue);
}

void SlotCache::copy_page(uint32_t group, uint32_t from, uint32_t to, void* queue) const {
  for (const Plane& p : planes_) {
    if (p.group != group) continue;
    const uint64_t bytes = head_bytes(p) * p.heads;
    copy({.to = base_ + p.offset + to * bytes, .from = base_ + p.offset + from * bytes, .bytes = bytes}, queue);
  }
}

std::byte* SlotCache::cell(const Plane& p, uint32_t slot, uint32_t cell) const {
  const Group& g = groups_[p.group];
  const auto page = static_cast<uint64_t>(table_[g.table + size_t{slot} * g.columns + cell / g.page_cells]);
  return base_ + p.offset + page * head_bytes(p) * p.heads + cell % g.page_cells / p.cells_a_row * row_bytes(p);
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

std::vector<SlotCache::Run> SlotCache::seen_after(const Plane& p, uint32_t kv_len) const {
  if (ring()) return kept(first_kept(kv_len), kv_len);
  return run_of(groups_[p.group], first_seen(p.group, kv_len), kv_len);
}

void SlotCache::check_kept(uint32_t slot, uint32_t kv_len) const {
  for (uint32_t i = 1; i < groups_.size(); ++i) {
    const uint32_t seen = first_seen(i, kv_len), first = first_[size_t{i} * slots_ + slot];
    if (seen >= first) continue;
    throw Refused("a sequence cut to " + std::to_string(kv_len) + " tokens sees position " + std::to_string(seen) +
                  ", but " + (groups_[i].window == policy_.tail ? "tails of " : "layers with a window of ") +
                  std::to_string(groups_[i].window) + " have none before " + std::to_string(first) + " any more");
  }
  if (!ring() || kv_len <= policy_.sinks || first_kept(kv_len) >= overwritten_[slot]) return;
  throw Refused("a sequence cut to " + std::to_string(kv_len) + " tokens sees position " +
                std::to_string(first_kept(kv_len)) + ", but the ring has none from " + std::to_string(policy_.sinks) +
                " to " + std::to_string(overwritten_[slot] - 1) + " any more");
}

void SlotCache::reserve(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  if (ring() && kv_len > ring_) overwritten_[slot] = std::max(overwritten_[slot], kv_len - ring_);
  for (uint32_t i = 1; i < groups_.size(); ++i) {
    first_position(i, slot) = std::max(first_position(i, slot), first_needed(i, kv_len));
  }
}

void SlotCache::truncate(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  if (kv_len > 0) return check_kept(slot, kv_len);
  if (ring()) overwritten_[slot] = policy_.sinks;
  for (uint32_t i = 1; i < groups_.size(); ++i) first_position(i, slot) = 0;
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
            .bytes = rows_of(p, run) * row_bytes(p),
            .pieces = p.heads,
            .to_pitch = head_bytes(p),
            .from_pitch = head_bytes(p)},
           queue);
    }
  }
  if (ring()) overwritten_[to] = std::max(policy_.sinks, first_kept(kv_len));
  for (uint32_t i = 1; i < groups_.size(); ++i) first_position(i, to) = first_seen(i, kv_len);
}

uint64_t SlotCache::used_bytes(uint32_t kv_len) const {
  uint64_t bytes = 0;
  for (const Group& g : groups_) {
    const uint64_t most = ring() ? uint64_t{policy_.sinks} + policy_.window : g.window != 0 ? g.window : kv_len;
    const uint64_t tokens = std::min<uint64_t>(kv_len, most);
    bytes += g.token_bytes * tokens;
    if (policy_.key_group == 0) continue;
    bytes += g.key_group_bytes *
             ((kv_len + policy_.key_group - 1) / policy_.key_group - (kv_len - tokens) / policy_.key_group);
  }
  return bytes;
}

}  // namespace tenon::slot_cache
