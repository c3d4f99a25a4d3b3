// A pool knows which sequences hold which pages, and which full ones can be found by their tokens. Pages that can be
// found and that nobody holds are a list in the order in which they were let go; a hash says where to look, and tokens
// are compared one by one.
#include "page_pool.h"

#include <algorithm>
#include <bit>

namespace tenon::paged {

// Multiplies and folds, two tokens at a time.
uint64_t PagePool::hash_of(uint64_t before, std::span<const int32_t> tokens) {
  uint64_t h = before ^ 0x9E3779B97F4A7C15U;
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t second = i + 1 < tokens.size() ? static_cast<uint32_t>(tokens[i + 1]) : 0;
    h = (h ^ static_cast<uint32_t>(tokens[i]) ^ second << 32U) * 0xD6E8FEB86659FD93U;
    h ^= h >> 32U;
  }
  return h;
}

PagePool::PagePool(uint32_t pages, uint32_t page_tokens, Hash hash)
    : page_tokens_(page_tokens),
      hash_(hash),
      page_(pages),
      tokens_(size_t{pages} * page_tokens),
      buckets_(std::bit_ceil(size_t{pages}), kNone) {
  empty_.reserve(pages);
  for (uint32_t page = pages; page-- > 0;) empty_.push_back(page);
}

uint32_t PagePool::take() {
  if (empty_.empty() && idle_ == 0) return kNone;
  if (empty_.empty()) forget(oldest_);
  const uint32_t page = empty_.back();
  empty_.pop_back();
  page_[page].holders = 1;
  return page;
}

void PagePool::hold(uint32_t page) {
  if (page_[page].holders++ == 0) end_idle(page);
}

void PagePool::release(uint32_t page) {
  if (--page_[page].holders > 0) return;
  if (page_[page].text == kNothing) {
    empty_.push_back(page);
  } else {
    let_idle(page);
  }
}

std::span<const int32_t> PagePool::tokens_of(uint32_t page) const {
  return {tokens_.data() + size_t{page} * page_tokens_, page_tokens_};
}

size_t PagePool::bucket_of(uint64_t before, std::span<const int32_t> tokens) const {
  return hash_(before, tokens) & (buckets_.size() - 1);
}

uint32_t PagePool::find(uint64_t before, std::span<const int32_t> tokens) const {
  uint32_t page = buckets_[bucket_of(before, tokens)];
  for (; page != kNone; page = page_[page].next_of_bucket) {
    if (page_[page].before == before && std::ranges::equal(tokens_of(page), tokens)) break;
  }
  return page;
}

void PagePool::enter(uint32_t page, uint64_t before, std::span<const int32_t> tokens) {
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(size_t{page} * page_tokens_));
  uint32_t& first = buckets_[bucket_of(before, tokens)];
  page_[page].text = ++texts_;
  page_[page].before = before;
  page_[page].next_of_bucket = first;
  first = page;
}

void PagePool::forget(uint32_t page) {
  Page& p = page_[page];
  if (p.text == kNothing) return;
  uint32_t* at = &buckets_[bucket_of(p.before, tokens_of(page))];
  while (*at != page) at = &page_[*at].next_of_bucket;
  *at = p.next_of_bucket;
  p.text = kNothing;
  if (p.holders > 0) return;
  end_idle(page);
  empty_.push_back(page);
}

void PagePool::let_idle(uint32_t page) {
  page_[page].older = newest_;
  page_[page].newer = kNone;
  (newest_ == kNone ? oldest_ : page_[newest_].newer) = page;
  newest_ = page;
  ++idle_;
}

void PagePool::end_idle(uint32_t page) {
  const Page& p = page_[page];
  (p.older == kNone ? oldest_ : page_[p.older].newer) = p.newer;
  (p.newer == kNone ? newest_ : page_[p.newer].older) = p.older;
  --idle_;
}

}  // namespace tenon::paged
