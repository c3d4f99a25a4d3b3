// A KV cache of one page a slot, allocated once: what kv_cache.static, kv_cache.int8 and kv_cache.sink_window share. A
// component is sdk::KvCache<T> and this.
//
// Store 0 holds the planes: layer by layer K and then V, each (slot, head, cell, dim), so that a head's cells follow each
// other without gaps when attention reads them; behind them, of codecs with scales, those of K and of V, (slot, head,
// cell). Store 1 is the page table, i32[slots][1]. A ring has a third: the places of a step's rows.
//
// A linear cache holds position c in cell c. A ring keeps the first `sinks` positions and the newest ones: `window` that
// a row sees, and as many more as one step may add, so that no row destroys what another row of its step still sees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tenon/sdk/kv_cache.h"
#include "tenon/sdk/kv_layout.h"

namespace tenon::slot_cache {

struct Policy {
  uint32_t sinks = 0, window = 0;  // window 0: linear, everything is kept
  bool renumbered = false;         // keys before rope, indices inside of the window: sequences never end
};

class SlotCache {
 public:
  // name: of the component, for exported sequences and messages.
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

 private:
  struct Plane {
    uint64_t offset;  // in store 0
    uint32_t heads, dim;
    tenon_format format;
  };
  // Positions whose cells follow each other.
  struct Run {
    uint32_t position, cell, count;
  };

  bool ring() const { return policy_.window != 0; }
  bool scaled() const { return format_.k.scale != TENON_FORMAT_NONE; }
  uint32_t cells_for(const tenon_bounds& b) const;
  const Plane& plane(uint32_t layer, uint32_t which) const;
  uint32_t planes_a_layer() const { return scaled() ? 4 : 2; }
  uint64_t row_bytes(const Plane& p) const { return uint64_t{p.dim} * tenon_format_block(p.format).bytes; }
  uint64_t head_bytes(const Plane& p) const { return row_bytes(p) * page_cells_; }
  std::byte* cell(const Plane& p, uint32_t slot, uint32_t cell) const;
  void add_plane(uint64_t& offset, uint32_t heads, uint32_t dim, tenon_format format);
  tenon_kv_view prototype(uint32_t heads, uint32_t k_dim, uint32_t v_dim, uint32_t cells, uint32_t ring) const;
  sdk::KvLayout rule() const;
  uint64_t shape() const;  // tells caches of other geometry apart
  // Throws NoSpace.
  void check(uint32_t slot, uint32_t kv_len) const;
  // The first position after the sinks that a row at position kv_len sees.
  uint32_t first_kept(uint32_t kv_len) const;
  std::vector<Run> kept(uint32_t kv_len) const;  // all that such a row sees
  // Throws Refused if something of it was overwritten.
  void check_kept(uint32_t slot, uint32_t kv_len) const;

  std::string name_;
  tenon_kv_format format_;
  Policy policy_;
  bool simd_;
  std::vector<Plane> planes_;  // of layer 0, of layer 1, ...
  uint32_t slots_ = 0, capacity_ = 0, rows_ = 0;
  uint32_t cells_ = 0, ring_ = 0;
  uint32_t page_cells_ = 0;            // cells_ rounded up to 8
  uint64_t token_bytes_ = 0;           // of all layers
  std::vector<uint32_t> overwritten_;  // by slot: a ring no longer has the positions from the sinks to here
  std::byte* base_ = nullptr;
};

}  // namespace tenon::slot_cache
