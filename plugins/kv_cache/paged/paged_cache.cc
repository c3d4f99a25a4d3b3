// The sequences of this cache take pages of a pool as they grow. The header has the invariants: which pages may be
// shared, and which may be written to.
#include "paged_cache.h"

#include <algorithm>

namespace tenon::paged {

PagedCache::PagedCache(const tenon_kv_format& format, const slot_cache::Policy& policy, bool reuse, const sdk::Env& env)
    : SlotCache("paged", format, policy, env), reuse_(reuse) {}

tenon_footprint PagedCache::plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
  const tenon_footprint footprint = SlotCache::plan(layers, b);
  pool_.emplace(pages(), page_tokens());
  sequences_.assign(slots(), {});
  copies_.reserve(slots());
  return footprint;
}

void PagedCache::set(uint32_t slot, uint32_t column, int32_t to) {
  page(slot, column) = to;
  Sequence& s = sequences_[slot];
  s.changed = std::min(s.changed, column);
  s.changed_end = std::max(s.changed_end, column + 1);
}

void PagedCache::check_held(uint32_t slot, uint32_t kv_len) const {
  if (pages_for(kv_len) <= sequences_[slot].held) return;
  throw sdk::Failed("slot " + std::to_string(slot) + " has " + std::to_string(sequences_[slot].held) + " pages of " +
                    std::to_string(page_tokens()) + " tokens, but " + std::to_string(kv_len) +
                    " of its tokens are asked for");
}

void PagedCache::reserve(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  Sequence& s = sequences_[slot];
  const uint32_t wanted = std::max(pages_for(kv_len), s.held);
  // The page that holds fixed tokens and will be written to.
  const uint32_t column = s.fixed / page_tokens();
  const bool mixed = kv_len > s.fixed && s.fixed % page_tokens() != 0;
  const uint32_t shared = mixed ? static_cast<uint32_t>(page(slot, column)) : PagePool::kNone;
  const bool copies = mixed && pool_->holders(shared) > 1;
  const uint32_t missing = wanted - s.held + (copies ? 1 : 0);
  if (missing > pool_->free()) {
    throw sdk::NoSpace(std::to_string(missing) + (missing == 1 ? " page" : " pages") + " of " +
                       std::to_string(page_tokens()) + " tokens more are wanted, and " + std::to_string(pool_->free()) +
                       " of " + std::to_string(pages()) + " are free");
  }
  if (copies) {
    copies_.push_back({shared, pool_->take()});
    pool_->release(shared);
    set(slot, column, static_cast<int32_t>(copies_.back().to));
  } else if (mixed) {
    pool_->forget(shared);
  }
  for (; s.held < wanted; ++s.held) set(slot, s.held, static_cast<int32_t>(pool_->take()));
}

// The last pages go first: what is found again is found from its beginning on, so that should be lost last.
void PagedCache::truncate(uint32_t slot, uint32_t kv_len) {
  check(slot, kv_len);
  Sequence& s = sequences_[slot];
  const uint32_t kept = pages_for(kv_len);
  for (; s.held > kept; --s.held) {
    pool_->release(static_cast<uint32_t>(page(slot, s.held - 1)));
    set(slot, s.held - 1, kNoPage);
  }
  s.fixed = std::min(s.fixed, kv_len);
}

void PagedCache::fork(uint32_t from, uint32_t to, uint32_t kv_len, void*) {
  check(from, kv_len);
  check(to, kv_len);
  check_held(from, kv_len);
  if (from == to) return truncate(to, kv_len);
  for (uint32_t c = 0; c < pages_for(kv_len); ++c) pool_->hold(static_cast<uint32_t>(page(from, c)));
  truncate(to, 0);
  Sequence& s = sequences_[to];
  for (; s.held < pages_for(kv_len); ++s.held) set(to, s.held, page(from, s.held));
  s.fixed = kv_len;
  sequences_[from].fixed = std::max(sequences_[from].fixed, kv_len);
}

void PagedCache::copy_pages(void* queue) {
  for (const Copy& c : copies_) copy_page(c.from, c.to, queue);
  copies_.clear();
}

void PagedCache::publish(void* queue) {
  copy_pages(queue);
  for (uint32_t slot = 0; slot < sequences_.size(); ++slot) {
    Sequence& s = sequences_[slot];
    if (s.changed_end == 0) continue;
    upload_table(slot, s.changed, s.changed_end, queue);
    s.changed = UINT32_MAX;
    s.changed_end = 0;
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
  copy_pages(queue);  // first: one of them may be to a page that this sequence has now
  SlotCache::import_sequence(slot, kv_len, queue, src, bytes);
  sequences_[slot].fixed = kv_len;
}

uint32_t PagedCache::free_pages(uint32_t& page_tokens) const {
  page_tokens = this->page_tokens();
  return pool_->free();
}

uint32_t PagedCache::find(std::span<const int32_t> tokens, uint32_t& held) const {
  held = 0;
  if (!reuse_) return 0;
  uint32_t found = 0;
  for (uint64_t before = PagePool::kNothing; found + page_tokens() <= tokens.size(); found += page_tokens()) {
    const uint32_t page = pool_->find(before, tokens.subspan(found, page_tokens()));
    if (page == PagePool::kNone) break;
    if (pool_->holders(page) > 0) held += page_tokens();
    before = pool_->text(page);
  }
  return found;
}

uint32_t PagedCache::adopt(uint32_t slot, std::span<const int32_t> tokens) {
  uint32_t held = 0;
  const uint32_t found = find(tokens, held);
  check(slot, found);
  Sequence& s = sequences_[slot];
  if (s.held != 0) throw sdk::Failed("slot " + std::to_string(slot) + " adopts a beginning but has one");
  for (uint64_t before = PagePool::kNothing; s.held * page_tokens() < found; ++s.held) {
    const uint32_t page = pool_->find(before, tokens.subspan(size_t{s.held} * page_tokens(), page_tokens()));
    pool_->hold(page);
    set(slot, s.held, static_cast<int32_t>(page));
    before = pool_->text(page);
  }
  s.fixed = found;
  return found;
}

void PagedCache::share(uint32_t slot, std::span<const int32_t> tokens) {
  check(slot, static_cast<uint32_t>(tokens.size()));
  check_held(slot, static_cast<uint32_t>(tokens.size()));
  Sequence& s = sequences_[slot];
  if (tokens.empty()) {
    for (uint32_t c = 0; c < s.held; ++c) pool_->forget(static_cast<uint32_t>(page(slot, c)));
  }
  s.fixed = std::max(s.fixed, static_cast<uint32_t>(tokens.size()));
  if (!reuse_) return;
  uint64_t before = PagePool::kNothing;
  for (uint32_t c = 0; (size_t{c} + 1) * page_tokens() <= tokens.size(); ++c) {
    const auto part = tokens.subspan(size_t{c} * page_tokens(), page_tokens());
    uint32_t known = pool_->find(before, part);
    if (known == PagePool::kNone) {
      known = static_cast<uint32_t>(page(slot, c));
      pool_->forget(known);
      pool_->enter(known, before, part);
    }
    before = pool_->text(known);
  }
}

}  // namespace tenon::paged
