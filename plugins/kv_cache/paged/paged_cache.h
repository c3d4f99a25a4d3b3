// A cache in small pages of one pool, which sequences take as they grow, give back, and share where they begin alike.
//
// At any time a sequence holds the pages of its first `held` columns. Its first `fixed` tokens were said to be in the
// cache (by a fork, an import, or share()), so no step writes below `fixed` before the sequence is cut further. Pages
// wholly below it may hence be held by several sequences and be found again. One page may be shared and is written to
// all the same: the one that `fixed` lies within. reserve() puts a copy in its place, which publish() enqueues before
// the tables and before any step that writes to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../common/slot_cache.h"
#include "page_pool.h"

namespace tenon::paged {

class PagedCache : public slot_cache::SlotCache {
 public:
  // reuse: pages can be found again by their tokens.
  PagedCache(const tenon_kv_format& format, const slot_cache::Policy& policy, bool reuse, const sdk::Env& env);

  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b);
  void reserve(uint32_t slot, uint32_t kv_len);
  void fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue);
  void truncate(uint32_t slot, uint32_t kv_len);
  void publish(void* queue);
  uint64_t export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst);
  void import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes);
  uint32_t free_pages(uint32_t& page_tokens) const;
  uint32_t find(std::span<const int32_t> tokens, uint32_t& held) const;
  uint32_t adopt(uint32_t slot, std::span<const int32_t> tokens);
  void share(uint32_t slot, std::span<const int32_t> tokens);

 private:
  struct Sequence {
    uint32_t held = 0, fixed = 0;
    uint32_t changed = UINT32_MAX, changed_end = 0;  // columns that the device's table has otherwise
  };
  struct Copy {
    uint32_t from, to;
  };

  void set(uint32_t slot, uint32_t column, int32_t page);
  // Throws Failed where the sequence has no pages for so many tokens.
  void check_held(uint32_t slot, uint32_t kv_len) const;
  void copy_pages(void* queue);

  const bool reuse_;
  std::optional<PagePool> pool_;  // once planned
  std::vector<Sequence> sequences_;
  std::vector<Copy> copies_;  // that publish() enqueues, in order
};

}  // namespace tenon::paged
