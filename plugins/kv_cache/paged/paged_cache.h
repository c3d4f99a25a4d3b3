// This cache has small pages of one pool, which sequences take as they grow,
// give back, and share where they begin alike.
//
// At any time a sequence holds the pages of its first `held` columns. Its first `fixed` tokens were said to be in the
// cache (by a fork, an import, or share()), so no step writes below `fixed` before the sequence is cut further. Pages
// wholly below it may hence be held by several sequences and be found again. One page may be shared and is written to
// all the same: the one that `fixed` lies within. reserve() puts a copy in its place, which publish() enqueues before
// the tables and before any step that writes to it.
//
// Layers with a window have pages of their own, in the same columns (slot_cache.h). Of those a sequence holds
// the columns from `first` on: reserve() gives back what no row to come sees. A text is entered in the first
// group's pool alone, by its tokens; a page of a window is entered by the id of the text that ends with it.
// So a beginning is found as far as the first group has its pages, and up to a length at which each window
// still has all pages that the next row sees.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../common/slot_cache.h"
#include "page_pool.h"

namespace tenon::paged {

class PagedCache : public slot_cache::SlotCache {
 public:
  // `reuse` says that pages can be found again by their tokens.
  PagedCache(const tenon_kv_format& format, const slot_cache::Policy& policy, bool reuse, const sdk::Env& env);

  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b);
  void reserve(uint32_t slot, uint32_t kv_len);
  void fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue);
  void truncate(uint32_t slot, uint32_t kv_len);
  void publish(void* queue);
  uint64_t export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst);
  void import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes);
  uint32_t free_pages(uint32_t& page_tokens) const;
  uint32_t find(std::span<const int32_t> tokens, uint32_t& held);
  uint32_t adopt(uint32_t slot, std::span<const int32_t> tokens);
  void share(uint32_t slot, std::span<const int32_t> tokens);

 private:
  struct Sequence {
    uint32_t held = 0, fixed = 0;
  };
  // It tells which pages of a group a sequence holds.
  struct Columns {
    uint32_t first = 0;                              // it holds pages from here to `held`
    uint32_t changed = UINT32_MAX, changed_end = 0;  // the device's table has other values in these columns
  };
  struct Group {
    PagePool pool;
    std::vector<Columns> of_slot;
    uint32_t whole = 0;  // while find() goes through a text: from this column on all pages are there
  };
  struct Copy {
    uint32_t group, from, to;
  };

  uint32_t page_at(uint32_t group, uint32_t slot, uint32_t column) {
    return static_cast<uint32_t>(page(group, slot, column));
  }
  void set(uint32_t group, uint32_t slot, uint32_t column, uint32_t page);
  void let_go(uint32_t group, uint32_t slot, uint32_t column);
  // Gives back pages of windows that no row sees of a sequence that grows to kv_len.
  void give_back_unseen(uint32_t slot, uint32_t kv_len);
  // Returns the first column of a group that a sequence which grows to kv_len still has.
  uint32_t first_column(uint32_t group, uint32_t slot, uint32_t kv_len) const {
    return std::max(groups_[group].of_slot[slot].first, first_needed(group, kv_len) / page_tokens());
  }
  // Returns the page of a group that holds fixed tokens of the sequence and will be written to, or kNone.
  uint32_t mixed_page(uint32_t group, uint32_t slot, uint32_t kv_len);
  void check_room(uint32_t group, uint32_t slot, uint32_t kv_len);
  // Throws Failed where the sequence has no pages for so many tokens.
  void check_held(uint32_t slot, uint32_t kv_len) const;
  void copy_pages(void* queue);
  // Enters pages of windows that hold the end of a text with that id, up to a column.
  void share_windows(uint32_t slot, uint32_t column, uint64_t text);

  const bool reuse_;
  std::vector<Group> groups_;  // once planned
  std::vector<Sequence> sequences_;
  std::vector<Copy> copies_;  // publish() enqueues them in order
};

}  // namespace tenon::paged
