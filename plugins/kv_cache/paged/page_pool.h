// A pool knows which of its pages are held, by how many sequences, and which full ones
// can be found again by the tokens in them.
//
// A page that can be found has a text: the tokens that it holds and, before them, the text of another page or
// nothing. Every text gets an id that no other text ever has, so a page is found by the id of what stands
// before it and by its own tokens, which are compared one by one. By induction all tokens from the first on
// are equal: a hash only says where to look.
//
// A page is in one of three places: some sequences hold it; or nobody does and it can be found; or it is empty. take()
// gives away empty pages first, and then, of those that can be found, the one that was let go longest ago.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::paged {

// A pool allocates everything that it needs once.
class PagePool {
 public:
  using Hash = uint64_t (*)(uint64_t before, std::span<const int32_t> tokens);
  static uint64_t hash_of(uint64_t before, std::span<const int32_t> tokens);
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint64_t kNothing = 0;  // no text has this id

  PagePool(uint32_t pages, uint32_t page_tokens, Hash hash = &PagePool::hash_of);

  // Returns how many pages nobody holds.
  uint32_t free() const { return static_cast<uint32_t>(empty_.size()) + idle_; }
  uint32_t holders(uint32_t page) const { return page_[page].holders; }
  // Returns a page for one holder, without a text; kNone if all are held.
  uint32_t take();
  void hold(uint32_t page);  // one more holds it
  void release(uint32_t page);

  // Returns the page that has these tokens after the text with that id, or kNone. `tokens` fill a page.
  uint32_t find(uint64_t before, std::span<const int32_t> tokens) const;
  // Gives a page that is held, and has no text, one that find() does not find.
  void enter(uint32_t page, uint64_t before, std::span<const int32_t> tokens);
  void forget(uint32_t page);  // it loses its text, if it has one
  uint64_t text(uint32_t page) const { return page_[page].text; }

 private:
  struct Page {
    uint32_t holders = 0;
    uint32_t next_of_bucket = kNone;
    uint32_t older = kNone, newer = kNone;  // they link those that nobody holds and that can be found
    uint64_t text = kNothing, before = kNothing;
  };

  std::span<const int32_t> tokens_of(uint32_t page) const;
  size_t bucket_of(uint64_t before, std::span<const int32_t> tokens) const;
  void let_idle(uint32_t page);
  void end_idle(uint32_t page);

  const uint32_t page_tokens_;
  const Hash hash_;
  std::vector<Page> page_;
  std::vector<int32_t> tokens_;    // (pages, page_tokens)
  std::vector<uint32_t> buckets_;  // each names its first page; their number is a power of two
  std::vector<uint32_t> empty_;
  uint32_t idle_ = 0, oldest_ = kNone, newest_ = kNone;
  uint64_t texts_ = kNothing;  // so many were given out
};

}  // namespace tenon::paged
