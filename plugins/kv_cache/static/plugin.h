// A KV cache with room for the whole context of every slot, allocated once: one page a slot, the table is the identity.
//
// Store 0 holds the planes: layer by layer K and then V, each (slot, head, token, dim), so that a head's tokens follow
// each other without gaps when attention reads them. Store 1 is the page table, i32[slots][1].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/kv_cache.h"

namespace tenon::static_cache {

class StaticCache : public sdk::KvCache<StaticCache> {
 public:
  static constexpr const char* kName = "static";
  static constexpr const char* kDoc = "All of the context for every sequence, allocated once";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|bf16|fp32"}));

  StaticCache(const sdk::Params& params, const sdk::Env& env);

  const tenon_kv_format& format() const { return format_; }
  tenon_claim claim(const tenon_kv_geometry& g, const tenon_bounds& b) const;
  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b);
  void attach(void* const* store, void* queue);
  tenon_kv_view view(uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const;
  void record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, sdk::Recorder& r) const;
  tenon_kv_view record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                               sdk::Recorder& r) const;
  void record_commit(const tenon_tid*, sdk::Recorder&) const {}  // what is rejected lies past the length, unseen
  void reserve(uint32_t slot, uint32_t kv_len) const { check(slot, kv_len); }
  void fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue);
  void truncate(uint32_t slot, uint32_t kv_len) const { check(slot, kv_len); }
  void publish(void*) const {}  // the table never changes
  uint64_t export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst) const;
  void import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes);
  uint64_t used_bytes(uint32_t kv_len) const { return token_bytes_ * kv_len; }

 private:
  struct Plane {
    uint64_t offset;  // in store 0
    uint32_t heads, dim;
  };

  const Plane& plane(uint32_t layer, bool values) const;
  uint64_t row_bytes(const Plane& p) const { return uint64_t{p.dim} * element_; }
  uint64_t head_bytes(const Plane& p) const { return row_bytes(p) * page_tokens_; }
  std::byte* page(const Plane& p, uint32_t slot) const;
  tenon_kv_view empty_view(uint32_t layer, const tenon_tid* store) const;
  uint64_t shape() const;  // tells caches of other geometry apart
  // Throws NoSpace.
  void check(uint32_t slot, uint32_t kv_len) const;

  tenon_kv_format format_;
  uint32_t element_;  // bytes
  bool simd_;
  std::vector<Plane> planes_;  // K of layer 0, V of layer 0, K of layer 1, ...
  uint32_t slots_ = 0, capacity_ = 0;
  uint32_t page_tokens_ = 0;  // capacity rounded up to 8
  uint64_t token_bytes_ = 0;  // of all layers
  std::byte* base_ = nullptr;
};

}  // namespace tenon::static_cache
