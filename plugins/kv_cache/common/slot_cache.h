// This is a KV cache in pages, allocated once: all caches that ship share it. By itself it has one page a slot, which
// has the slot's number; kv_cache.paged has small ones in a pool. A component is sdk::KvCache<T> and this.
//
// Store 0 holds the planes: layer by layer K and then V, each (page, head, cell, dim), so that a head's cells of a page
// follow each other without gaps when attention reads them; after them, if the codec has scales, those of K and of V,
// (page, head, cell). Store 1 holds the page tables, i32[slots][columns] each: that of layers that see everything and
// after it one for each kind of window. A ring has a third store, the places of a step's rows; a pool has one with the
// numbers of the slots, which is the page table of copies, i32[slots][1].
//
// A linear cache holds position c in cell c. A ring keeps the first `sinks` positions and the
// newest ones: `window` that a row sees, and as many more as one step may add, so that no row
// destroys what another row of its step still sees.
//
// A layer whose own mask is a window pays for that window, not for the context, in a linear cache with a page a slot:
// its cells are in few small pages, which its table names in turn. Position c is in cell c for whoever reads it, but
// cells so many pages apart share their memory; what was overwritten lies before the window of every row. An example: a
// window of 512 and steps of up to 512 rows take 17 pages of 64 cells; column 17 of the table is page 0 again, and
// position 1088 overwrites position 0, which no row from position 512 on sees.
//
// A tail holds the newest tokens of each layer a second time, in f16: it is kept as another layer with a
// window of so many tokens would be, and the layer's view has it as recent_view. Every append writes to both,
// and nothing is moved from one to the other.
//
// In a pool such layers, and tails, have a pool of their own for each kind of window, sized for the windows of
// all slots. Cells lie in the same columns as those of layers that see everything; a column whose page was
// given back, and one that never had a page, names the blank page, which is zero and nobody's: readers may go
// over it in whole tiles, and no row sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenon/sdk/kv_cache.h"
#include "tenon/sdk/kv_layout.h"

namespace tenon::slot_cache {

// The caches that can have a tail have this parameter.
inline constexpr auto kTail =
    sdk::integer({.name = "tail",
                  .doc = "So many newest tokens are read in fp16, which takes their memory besides; 0 = none",
                  .value = 0,
                  .min = 0,
                  .max = 65536,
                  .unit = "tokens"});

inline uint32_t tail_of(const sdk::Params& params) {
  return static_cast<uint32_t>(params.integer(kTail.name));
}

struct Policy {
  uint32_t sinks = 0, window = 0;  // 0: it is linear and keeps everything
  bool renumbered = false;         // keys are kept before rope, indices inside of the window: sequences never end
  uint32_t page_tokens = 0;  // 0: one page a slot; else a power of two, and the next two say how many pages there are
  uint64_t pool_tokens = 0;  // 0: as many as all slots can hold together
  double pool_memory = 0;    // a share of the device's memory; 0: pool_tokens says
  uint32_t windows = 1;      // a pool of a window has room for so many of each slot
  // The newest `tail` tokens are read in f16. Linear caches have that, for codecs with scales.
  uint32_t tail = 0;
  // The keys of key_group tokens share zeros and steps, for int4 with a tail and a page a slot; 0: each has a scale.
  uint32_t key_group = 0;
  bool hadamard = false;  // heads are rotated before they are stored (tenon/sdk/hadamard.h); for codecs with scales
};

class SlotCache {
 public:
  // `name` is the component's, for exported sequences and messages.
  SlotCache(std::string name, const tenon_kv_format& format, const Policy& policy, const sdk::Env& env);

  tenon_kv_view claim(const tenon_kv_geometry& g, const tenon_bounds& b) const;
  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b);
  void attach(void* const* store, void* queue);
  tenon_kv_view view(uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const;
  void record_begin(const tenon_tid* store, sdk::Recorder& r) const;
  void record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, sdk::Recorder& r) const;
  tenon_kv_view record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                               sdk::Recorder& r) const;
  void record_commit(const tenon_tid* store, sdk::Recorder& r) const;
  void reserve(uint32_t slot, uint32_t kv_len);
  void fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue);
  void truncate(uint32_t slot, uint32_t kv_len);
  void publish(void*) const {}  // the table never changes
  uint64_t export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst) const;
  void import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes);
  uint64_t used_bytes(uint32_t kv_len) const;

 protected:
  static constexpr int32_t kNoPage = -1;

  uint32_t slots() const { return slots_; }
  uint32_t page_tokens() const { return groups_.front().page_cells; }
  uint32_t pages_for(uint32_t kv_len) const { return (kv_len + page_tokens() - 1) / page_tokens(); }
  // Groups of layers have a page table and, in a pool, pages of their own: the first
  // sees everything, each other has a window.
  uint32_t groups() const { return static_cast<uint32_t>(groups_.size()); }
  uint32_t window(uint32_t group) const { return groups_[group].window; }
  // The blank page of a window's pool does not count.
  uint32_t pages(uint32_t group) const { return groups_[group].pages - (group == 0 ? 0 : 1); }
  int32_t no_page(uint32_t group) const { return group == 0 ? kNoPage : static_cast<int32_t>(pages(group)); }
  // Returns the host's page table, which attach() uploads first.
  int32_t& page(uint32_t group, uint32_t slot, uint32_t column) {
    return table_[groups_[group].table + size_t{slot} * groups_[group].columns + column];
  }
  // Returns the position before which a window's layers have none; 0 for the first group.
  uint32_t& first_position(uint32_t group, uint32_t slot) { return first_[size_t{group} * slots_ + slot]; }
  // Returns the first position that rows see of a sequence that has room for kv_len tokens, whatever step comes next.
  uint32_t first_needed(uint32_t group, uint32_t kv_len) const {
    return group == 0 ? 0 : begin_of_window(groups_[group].reach, kv_len);
  }
  // Returns the first position that a row at position kv_len sees.
  uint32_t first_seen(uint32_t group, uint32_t kv_len) const {
    return group == 0 ? 0 : begin_of_window(groups_[group].window, kv_len + 1);
  }
  void upload_table(uint32_t group, uint32_t slot, uint32_t first_column, uint32_t end, void* queue) const;
  void copy_page(uint32_t group, uint32_t from, uint32_t to, void* queue) const;
  // Throws NoSpace.
  void check(uint32_t slot, uint32_t kv_len) const;
  // Throws Refused if something that a row at position kv_len sees is gone.
  void check_kept(uint32_t slot, uint32_t kv_len) const;
  // Throws Refused for bytes that are no such sequence.
  void check_import(uint32_t kv_len, const void* src, uint64_t bytes) const;

 private:
  // These are layers with the same window, or those without; they share a page table.
  struct Group {
    uint32_t window = 0;  // the layers' own; 0: they see everything
    // A slot of layers with a window has room for so many of its newest tokens.
    uint32_t reach = 0;
    // These take so many pages, which a slot's columns name in turn if there is no pool.
    uint32_t turn = 0;
    uint32_t page_cells = 0;  // the view's
    uint32_t page_room = 0;   // so many pages have memory
    uint32_t columns = 0;
    uint32_t pages = 0;        // all slots together have so many
    uint64_t table = 0;        // its entries begin here in table_ and in store 1
    uint64_t token_bytes = 0;  // a token takes so many in all its layers
    uint64_t key_group_bytes = 0;
  };
  struct Plane {
    uint64_t offset;  // in store 0
    uint32_t heads, dim;
    tenon_format format;
    uint32_t group;
    uint32_t cells_a_row = 1;  // so many share a row; the zeros and steps of keys are two rows of the head in one
  };
  // A run has positions whose cells follow each other.
  struct Run {
    uint32_t position, cell, count;
  };

  bool ring() const { return policy_.window != 0; }
  bool paged() const { return policy_.page_tokens != 0; }
  bool scaled() const { return format_.k.scale != TENON_FORMAT_NONE; }
  uint32_t cells_for(const tenon_bounds& b) const;
  // Returns how layers with that window are kept: the group has no window if they are kept like those without one.
  Group group_for(uint32_t window, const tenon_bounds& b) const;
  // Returns the group that keeps that window, and the first one if none does. plan() makes the groups.
  uint32_t group_of(uint32_t window) const;
  void fill_tables();
  // Returns the first of the newest `window` positions of a sequence.
  static uint32_t begin_of_window(uint32_t window, uint32_t kv_len) { return kv_len > window ? kv_len - window : 0; }
  // Returns how many pages each group has, the blank one apart, in a pool of so many for layers that see everything.
  uint64_t pool_pages(const Group& group, uint64_t pages) const;
  void size_pools(std::span<const tenon_kv_geometry> layers);
  uint64_t pages_in_memory(std::span<const double> page_bytes) const;
  const Plane& plane(uint32_t layer, uint32_t which) const;
  uint32_t planes_a_layer() const { return (scaled() ? 4 : 2) + (policy_.tail != 0 ? 2 : 0); }
  uint32_t layers() const { return static_cast<uint32_t>(planes_.size() / planes_a_layer()); }
  uint64_t row_bytes(const Plane& p) const { return sdk::kv_row_bytes(p.format, p.dim); }
  // Returns how many rows cells [first, first + count) of a page have in a plane.
  static uint64_t rows_of(const Plane& p, uint64_t first, uint64_t count) {
    return count == 0 ? 0 : (first + count - 1) / p.cells_a_row - first / p.cells_a_row + 1;
  }
  uint64_t rows_of(const Plane& p, const Run& run) const {
    return rows_of(p, run.cell % groups_[p.group].page_cells, run.count);
  }
  uint64_t page_rows(const Plane& p) const { return rows_of(p, 0, groups_[p.group].page_room); }
  uint64_t head_bytes(const Plane& p) const { return row_bytes(p) * page_rows(p); }
  static constexpr tenon_kv_format kTailFormat = sdk::kv_format(TENON_F16);
  // Returns how far the tail reaches back in a layer with that window of its own, or with none. A group of keys is coded
  // from the tail, whatever the window.
  uint32_t tail_window(uint32_t window) const {
    return window != 0 && window < policy_.tail && policy_.key_group == 0 ? window : policy_.tail;
  }
  std::byte* cell(const Plane& p, uint32_t slot, uint32_t cell) const;
  void add_plane(uint64_t& offset, const Plane& plane);
  tenon_kv_view prototype(uint32_t heads, uint32_t k_dim, uint32_t v_dim, const Group& group, uint32_t cells) const;
  // A view's codes become another format, with no scales but those of cells.
  static void make_exact(tenon_kv_view& view, const tenon_kv_format& format) {
    view.format = &format;
    view.flags &= ~uint32_t{TENON_KV_CHANNEL_KEYS};
    view.key_group = 0;
  }
  void check_key_groups(const tenon_bounds& b) const;
  // The two become one view. A tail that was handed out lives as long as the cache.
  void join_tail(tenon_kv_view& view, const tenon_kv_view& tail) const;
  tenon_kv_view tail_view(uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const;
  // Sets the tensors of a view whose planes are that one and those after it.
  void set_planes(tenon_kv_view& view, uint32_t layer, uint32_t first, const tenon_tid* store, sdk::Recorder& r) const;
  tenon_kv_view record_copy(const tenon_kv_view& from, uint32_t group, const tenon_kv_format& plain,
                            const tenon_tid* store, sdk::Recorder& r) const;
  void record_key_groups(const tenon_kv_view& to, sdk::Recorder& r) const;
  void record_survivors(const tenon_kv_view& v, sdk::Recorder& r) const;
  sdk::KvLayout rule() const;
  uint64_t shape() const;  // tells caches of other geometry apart
  // Returns the first position of a ring, after the sinks, that a row at position kv_len sees.
  uint32_t first_kept(uint32_t kv_len) const;
  // Returns the same for its last token: an exported sequence has that too, if the ring
  // does, so that it can be cut by that token.
  uint32_t first_exported(uint32_t kv_len) const;
  std::vector<Run> kept(uint32_t first, uint32_t kv_len) const;  // returns the sinks, and positions [first, kv_len)
  // Returns the runs of positions [first, kv_len) of a linear cache's layers.
  static std::vector<Run> run_of(const Group& group, uint32_t first, uint32_t kv_len);
  // Returns what a row at position kv_len sees of a plane, or all of it where the layer has no window.
  std::vector<Run> seen_after(const Plane& p, uint32_t kv_len) const;
  bool has_windows() const { return groups_.size() > 1; }
  uint64_t windows() const;  // tells apart caches whose layers have other windows
  // Returns the positions of a plane that are in an exported sequence whose header has that `first`.
  std::vector<Run> in_export(const Plane& p, uint64_t first, uint32_t kv_len) const;
  uint64_t export_bytes(uint64_t first, uint32_t kv_len) const;

  std::string name_;
  tenon_kv_format format_;
  Policy policy_;
  bool simd_;
  uint64_t memory_;            // the device has so many bytes
  std::vector<Plane> planes_;  // the planes of layer 0 come first, then those of layer 1, ...
  uint32_t slots_ = 0, capacity_ = 0, rows_ = 0;
  uint32_t cells_ = 0, ring_ = 0;
  std::vector<Group> groups_;          // the first has layers that see everything, and all of a ring or a pool
  std::vector<int32_t> table_;         // by group: (slots, columns)
  std::vector<uint32_t> overwritten_;  // by slot: a ring no longer has the positions from the sinks to here
  std::vector<uint32_t> first_;        // by group and slot: a window's layers have no position before this one
  mutable std::deque<tenon_kv_view> tails_;
  std::byte *base_ = nullptr, *pages_store_ = nullptr;
};

}  // namespace tenon::slot_cache
