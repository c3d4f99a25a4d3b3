// The sequences of this cache take pages of a pool as they grow. The header has the invariants: which pages may be
// shared, and which may be written to.
#include "paged_cache.h"

#include <algorithm>

namespace tenon::paged {

PagedCache::PagedCache(const tenon_kv_format& format, const slot_cache::Policy& policy, bool reuse, const sdk::Env& env)
    : SlotCache("paged", format, policy, env), reuse_(reuse) {}

tenon_footprint PagedCache::plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
  const tenon_footprint footprint = SlotCache::plan(layers, b);
  groups_.clear();
  // Pages of windows are found by a text's id, and have no tokens of their own.
  for (uint32_t i = 0; i < groups(); ++i) {
    groups_.push_back({PagePool(pages(i), i == 0 ? page_tokens() : 0), std::vector<Columns>(slots())});
  }
  sequences_.assign(slots(), {});
  copies_.reserve(size_t{slots()} * groups());
  return footprint;
}

void PagedCache::set(uint32_t group, uint32_t slot, uint32_t column, uint32_t to) {
  page(group, slot, column) = static_cast<int32_t>(to);
  Columns& c = groups_[group].of_slot[slot];
  c.changed = std::min(c.changed, column);
  c.changed_end = std::max(c.changed_end, column + 1);
}

void PagedCache::let_go(uint32_t group, uint32_t slot, uint32_t column) {
  groups_[group].pool.release(page_at(group, slot, column));
  set(group, slot, column, static_cast<uint32_t>(no_page(group)));
}

void PagedCache::check_held(uint32_t slot, uint32_t kv_len) const {
  if (pages_for(kv_len) <= sequences_[slot].held) return;
  throw sdk::Failed("slot " + std::to_string(slot) + " has " + std::to_string(sequences_[slot].held) + " pages of " +
                    std::to_string(page_tokens()) + " tokens, but " + std::to_string(kv_len) +
                    " of its tokens are asked for");
}

// Columns that the sequence does not have yet are passed over as well: a loaded sequence comes as a whole.
void PagedCache::give_back_unseen(uint32_t slot, uint32_t kv_len) {
  for (uint32_t i = 1; i < groups(); ++i) {
    uint32_t& first = groups_[i].of_slot[slot].first;
    for (const uint32_t end = first_column(i, slot, kv_len); first < end; ++first) {
      if (first < sequences_[slot].held) let_go(i, slot, first);
    }
    first_position(i, slot) = std::max(first_position(i, slot), first * page_tokens());
  }
}

uint32_t PagedCache::mixed_page(uint32_t group, uint32_t slot, uint32_t kv_len) {
  const uint32_t fixed = sequences_[slot].fixed, column = fixed / page_tokens();
  const bool mixed = kv_len > fixed && fixed % page_tokens() != 0 && column >= first_column(group, slot, kv_len);
  return mixed ? page_at(group, slot, column) : PagePool::kNone;
}

// Throws NoSpace where fewer pages are free, with those that the sequence will give back, than it takes.
void PagedCache::check_room(uint32_t group, uint32_t slot, uint32_t kv_len) {
  const Group& g = groups_[group];
  const uint32_t first = first_column(group, slot, kv_len), held = std::max(sequences_[slot].held, first);
  const uint32_t mixed = mixed_page(group, slot, kv_len);
  const uint32_t copies = mixed != PagePool::kNone && g.pool.holders(mixed) > 1 ? 1 : 0;
  const uint32_t missing = std::max(pages_for(kv_len), held) - held + copies;
  uint32_t free = g.pool.free();
  for (uint32_t c = g.of_slot[slot].first; c < std::min(first, sequences_[slot].held); ++c) {
    free += g.pool.holders(page_at(group, slot, c)) == 1 ? 1 : 0;
  }
  if (missing <= free) return;
  throw sdk::NoSpace(std::to_string(missing) + (missing == 1 ? " page" : " pages") + " of " +
                     std::to_string(page_tokens()) + " tokens more are wanted" +
                     (group == 0 ? "" : " for layers with a window of " + std::to_string(window(group))) + ", and " +
                     std::to_string(free) + " of " + std::to_string(pages(group)) + " are free");
}

void PagedCache::reserve(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  for (uint32_t i = 0; i < groups(); ++i) check_room(i, slot, kv_len);
  give_back_unseen(slot, kv_len);
  Sequence& s = sequences_[slot];
  for (uint32_t i = 0; i < groups(); ++i) {
    PagePool& pool = groups_[i].pool;
    const uint32_t mixed = mixed_page(i, slot, kv_len);
    if (mixed != PagePool::kNone && pool.holders(mixed) > 1) {
      copies_.push_back({i, mixed, pool.take()});
      pool.release(mixed);
      set(i, slot, s.fixed / page_tokens(), copies_.back().to);
    } else if (mixed != PagePool::kNone) {
      pool.forget(mixed);
    }
    for (uint32_t c = std::max(s.held, groups_[i].of_slot[slot].first); c < pages_for(kv_len); ++c) {
      set(i, slot, c, pool.take());
    }
  }
  s.held = std::max(s.held, pages_for(kv_len));
}

// The last pages go first: what is found again is found from its beginning on, so that should be lost last.
void PagedCache::truncate(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  if (kv_len > 0) check_kept(slot, kv_len);
  Sequence& s = sequences_[slot];
  const uint32_t kept = pages_for(kv_len);
  for (; s.held > kept; --s.held) {
    for (uint32_t i = 0; i < groups(); ++i) {
      if (s.held - 1 >= groups_[i].of_slot[slot].first) let_go(i, slot, s.held - 1);
    }
  }
  for (uint32_t i = 1; i < groups() && kv_len == 0; ++i) groups_[i].of_slot[slot].first = first_position(i, slot) = 0;
  s.fixed = std::min(s.fixed, kv_len);
}

void PagedCache::fork(uint32_t from, uint32_t to, uint32_t kv_len, void*) {
  check(from, kv_len);
  check(to, kv_len);
  check_held(from, kv_len);
  if (from == to) return truncate(to, kv_len);
  if (kv_len > 0) check_kept(from, kv_len);
  const uint32_t end = pages_for(kv_len);
  for (uint32_t i = 0; i < groups(); ++i) {
    for (uint32_t c = groups_[i].of_slot[from].first; c < end; ++c) groups_[i].pool.hold(page_at(i, from, c));
  }
  truncate(to, 0);
  for (uint32_t i = 0; i < groups() && kv_len > 0; ++i) {
    const uint32_t first = groups_[i].of_slot[from].first;
    for (uint32_t c = first; c < end; ++c) set(i, to, c, page_at(i, from, c));
    groups_[i].of_slot[to].first = first;
    first_position(i, to) = first_position(i, from);
  }
  sequences_[to] = {end, kv_len};
  sequences_[from].fixed = std::max(sequences_[from].fixed, kv_len);
}

void PagedCache::copy_pages(void* queue) {
  for (const Copy& c : copies_) copy_page(c.group, c.from, c.to, queue);
  copies_.clear();
}

void PagedCache::publish(void* queue) {
  copy_pages(queue);
  for (uint32_t i = 0; i < groups(); ++i) {
    for (uint32_t slot = 0; slot < slots(); ++slot) {
      Columns& c = groups_[i].of_slot[slot];
      if (c.changed_end == 0) continue;
      upload_table(i, slot, c.changed, c.changed_end, queue);
      c.changed = UINT32_MAX;
      c.changed_end = 0;
    }
  }
}

uint64_t PagedCache::export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst) {
  check(slot, kv_len);
  check_held(slot, kv_len);
  copy_pages(queue);
  return SlotCache::export_sequence(slot, kv_len, queue, dst);
}

void PagedCache::import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes) {
  check(slot, kv_len);
  check_import(kv_len, src, bytes);
  truncate(slot, 0);
  reserve(slot, kv_len);
  copy_pages(queue);  // these go first: one may be to a page that this sequence has now
  SlotCache::import_sequence(slot, kv_len, queue, src, bytes);
  sequences_[slot].fixed = kv_len;
}

uint32_t PagedCache::free_pages(uint32_t& page_tokens) const {
  page_tokens = this->page_tokens();
  return groups_.front().pool.free();
}

uint32_t PagedCache::find(std::span<const int32_t> tokens, uint32_t& held) {
  held = 0;
  if (!reuse_) return 0;
  const PagePool& pool = groups_.front().pool;
  for (Group& g : groups_) g.whole = 0;
  uint32_t found = 0, held_there = 0;
  uint64_t before = PagePool::kNothing;
  for (uint32_t column = 0; (size_t{column} + 1) * page_tokens() <= tokens.size(); ++column) {
    const uint32_t page = pool.find(before, tokens.subspan(size_t{column} * page_tokens(), page_tokens()));
    if (page == PagePool::kNone) break;
    if (pool.holders(page) > 0) held_there += page_tokens();
    before = pool.text(page);
    const uint32_t end = (column + 1) * page_tokens();
    bool seen = true;
    for (uint32_t i = 1; i < groups(); ++i) {
      Group& g = groups_[i];
      if (g.pool.find(before, {}) == PagePool::kNone) g.whole = column + 1;
      seen = seen && g.whole <= first_seen(i, end) / page_tokens();
    }
    if (!seen) continue;
    found = end;
    held = held_there;
  }
  return found;
}

uint32_t PagedCache::adopt(uint32_t slot, std::span<const int32_t> tokens) {
  uint32_t held = 0;
  const uint32_t found = find(tokens, held);
  check(slot, found);
  Sequence& s = sequences_[slot];
  if (s.held != 0) throw sdk::Failed("slot " + std::to_string(slot) + " adopts a beginning but has one");
  for (uint32_t i = 1; i < groups(); ++i) {
    groups_[i].of_slot[slot].first = first_seen(i, found) / page_tokens();
    first_position(i, slot) = groups_[i].of_slot[slot].first * page_tokens();
  }
  const auto hold = [&](uint32_t group, uint32_t page) {
    groups_[group].pool.hold(page);
    set(group, slot, s.held, page);
  };
  for (uint64_t before = PagePool::kNothing; s.held * page_tokens() < found; ++s.held) {
    PagePool& pool = groups_.front().pool;
    const uint32_t page = pool.find(before, tokens.subspan(size_t{s.held} * page_tokens(), page_tokens()));
    hold(0, page);
    before = pool.text(page);
    for (uint32_t i = 1; i < groups(); ++i) {
      if (s.held >= groups_[i].of_slot[slot].first) hold(i, groups_[i].pool.find(before, {}));
    }
  }
  s.fixed = found;
  return found;
}

void PagedCache::share_windows(uint32_t slot, uint32_t column, uint64_t text) {
  for (uint32_t i = 1; i < groups(); ++i) {
    PagePool& pool = groups_[i].pool;
    if (column * page_tokens() < first_position(i, slot) || pool.find(text, {}) != PagePool::kNone) continue;
    const uint32_t own = page_at(i, slot, column);
    pool.forget(own);
    pool.enter(own, text, {});
  }
}

void PagedCache::share(uint32_t slot, std::span<const int32_t> tokens) {
  check(slot, static_cast<uint32_t>(tokens.size()));
  check_held(slot, static_cast<uint32_t>(tokens.size()));
  Sequence& s = sequences_[slot];
  for (uint32_t i = 0; i < groups() && tokens.empty(); ++i) {
    for (uint32_t c = groups_[i].of_slot[slot].first; c < s.held; ++c) groups_[i].pool.forget(page_at(i, slot, c));
  }
  s.fixed = std::max(s.fixed, static_cast<uint32_t>(tokens.size()));
  if (!reuse_) return;
  PagePool& pool = groups_.front().pool;
  uint64_t before = PagePool::kNothing;
  for (uint32_t c = 0; (size_t{c} + 1) * page_tokens() <= tokens.size(); ++c) {
    const auto part = tokens.subspan(size_t{c} * page_tokens(), page_tokens());
    uint32_t known = pool.find(before, part);
    if (known == PagePool::kNone) {
      known = page_at(0, slot, c);
      pool.forget(known);
      pool.enter(known, before, part);
    }
    before = pool.text(known);
    share_windows(slot, c, before);
  }
}

}  // namespace tenon::paged
