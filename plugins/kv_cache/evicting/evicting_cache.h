// This cache in fixed memory keeps, for each KV head of each layer by itself, the newest tokens and those that
// attention leaned on most. A rule says which, and how many (evict.h); kv_cache.h2o and kv_cache.snapkv are one each.
//
// Every layer is a group of its own, and its heads are apart: a page is all cells of a slot and KV head, has the
// slot's number, and a table says which position a cell holds. All decisions are made on the device by the op of
// evict.h, which begins a step, before the step's rows arrive: so a step adds its rows to `most` cells of the rule
// at most, and the cache has room for both.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evict.h"
#include "tenon/sdk/kv_cache.h"
#include "tenon/sdk/kv_layout.h"

namespace tenon::evicting {

struct Policy {
  std::string name;
  Rule rule;
};
// Returns the format that a policy's parameter `format` names: fp16, bf16 or fp32.
tenon_kv_format plain_format(std::string_view name);

class EvictingCache {
 public:
  EvictingCache(const tenon_kv_format& format, Policy policy, const sdk::Env& env);

  tenon_kv_view claim(const tenon_kv_geometry& g, const tenon_bounds& b) const;
  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b);
  void attach(void* const* store, void* queue);
  tenon_kv_view view(uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const;
  void record_begin(const tenon_tid* store, sdk::Recorder& r) const;
  void record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, sdk::Recorder& r) const;
  tenon_kv_view record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                               sdk::Recorder& r) const;
  void record_commit(const tenon_tid*, sdk::Recorder&) const {}  // Survivors of chains lie where they are.
  void reserve(uint32_t slot, uint32_t kv_len);
  void fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue);
  void truncate(uint32_t slot, uint32_t kv_len);
  void publish(void*) const {}
  // These export and import a sequence for a cache of the same rule and format. Both wait for the queue.
  uint64_t export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst) const;
  void import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes);
  uint64_t used_bytes(uint32_t kv_len) const;

 private:
  // For each slot and KV head there are page_cells_ of each, layer by layer; planes
  // have cells_ instead, and places are by row.
  enum Store { kPlanes, kPages, kUsed, kPositions, kPlaces, kWeightsOf, kScoresOf, kPrompts, kStores };
  struct Layer {
    uint32_t heads, k_dim, v_dim;
    uint64_t lines;   // heads of the layers before it
    uint64_t planes;  // bytes of the planes before its keys
  };

  struct Line;
  struct Copied;
  struct Move {
    bool to_host, positions_alone;
    void* queue;
  };

  uint32_t cells_for(const tenon_bounds& b) const { return policy_.rule.most + b.rows_per_seq + b.steps_ahead; }
  uint64_t element_bytes() const { return tenon_format_block(format_.k.codec).bytes; }
  uint64_t plane_bytes(const Layer& l, uint32_t dim) const;
  tenon_kv_view prototype(uint32_t layer, const Layer& l, uint32_t cells, uint32_t rows_per_seq) const;
  // It throws NoSpace.
  void check(uint32_t slot, uint32_t kv_len) const;
  // It throws Refused for a cut after which newest tokens would be missing.
  void check_kept(uint32_t slot, uint32_t kv_len) const;

  uint64_t shape() const;  // tells caches of other geometry or another rule apart
  // Returns the bytes of a KV head with so many cells in use in an exported sequence.
  uint64_t line_bytes(const Layer& l, uint64_t cells) const {
    return 2 * sizeof(uint32_t) +
           cells * (2 * sizeof(int32_t) + sizeof(float) + element_bytes() * (uint64_t{l.k_dim} + l.v_dim));
  }
  Copied nothing_of(const Layer& l) const;
  void move(const Layer& l, uint32_t slot, Copied& c, const Move& how) const;
  std::vector<int32_t> cells_in_use(const Copied& c, uint32_t head, uint32_t kv_len) const;
  void write_line(const Layer& l, const Copied& c, uint32_t head, uint32_t kv_len, std::byte*& out) const;
  Line read_line(const Layer& l, uint32_t kv_len, std::span<const std::byte>& rest) const;
  // It throws Refused for bytes that are no such sequence.
  void check_import(uint32_t kv_len, std::span<const std::byte> src) const;

  tenon_kv_format format_;
  Policy policy_;
  bool simd_;
  std::vector<Layer> layers_;
  std::vector<uint32_t> reserved_;  // by slot: the most tokens that it has been made room for
  std::vector<std::byte*> stores_;
  uint32_t slots_ = 0, capacity_ = 0, rows_ = 0, rows_per_seq_ = 0, cells_ = 0, page_cells_ = 0;
};

}  // namespace tenon::evicting
