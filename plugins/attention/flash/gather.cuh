// The kernels of gather.h share this: the view that they read, the rope of its keys, and where the copy has a place.
#pragma once

#include "gather.h"
#include "tenon/cuda/kv_reader.cuh"

namespace tenon::flash {

using attention::ViewArgs;
using cuda::KvCells;

// These are the view and the step.
struct ViewPointers {
  const float* q;
  float* out;
  void *keys, *values, *key_scales, *value_scales;
  const int32_t *pages, *place, *used, *table;
  const uint32_t* live;
  const int32_t *pos, *slot, *kv_len, *seq_slot, *seq_row, *chosen;
  const float* rope;
  float* sums;

  explicit ViewPointers(const cuda::Launch& l)
      : q(l.ptr<const float>(attention::kQ)),
        out(l.ptr<float>(attention::kOut)),
        keys(l.ptr<void>(attention::kKeyPlane)),
        values(l.ptr<void>(attention::kValuePlane)),
        key_scales(l.ptr<void>(attention::kKeyScales)),
        value_scales(l.ptr<void>(attention::kValueScales)),
        pages(l.ptr<const int32_t>(attention::kPages)),
        place(l.ptr<const int32_t>(attention::kPlace)),
        used(l.ptr<const int32_t>(attention::kUsed)),
        table(l.ptr<const int32_t>(attention::kTable)),
        live(l.ptr<const uint32_t>(attention::kLive)),
        pos(l.ptr<const int32_t>(attention::kPos)),
        slot(l.ptr<const int32_t>(attention::kSlot)),
        kv_len(l.ptr<const int32_t>(attention::kKvLen)),
        seq_slot(l.ptr<const int32_t>(attention::kSeqSlot)),
        seq_row(l.ptr<const int32_t>(attention::kSeqRow)),
        chosen(l.ptr<const int32_t>(attention::kChosen)),
        rope(l.ptr<const float>(attention::kRope)),
        sums(l.ptr<float>(attention::kSums)) {}
};

// Returns element d of a head after rope, of which x(d) are the elements before it. index: of the rope's table; one below
// 0 turns the other way.
template <class X>
__device__ __forceinline__ float turned(const ViewArgs& a, const float* rope, int32_t index, uint32_t d, const X& x) {
  const sdk::RopePairs pairs = a.rope_pairs();
  if (d >= pairs.rotated) return x(d);
  const uint32_t other = pairs.partner(d);
  const auto row = static_cast<uint32_t>(index < 0 ? -index : index);
  const float2 angle = reinterpret_cast<const float2*>(rope)[size_t{row} * pairs.half() + pairs.pair(d)];
  const float sine = index < 0 ? -angle.y : angle.y;
  return pairs.is_second(d) ? x(other) * sine + x(d) * angle.x : x(d) * angle.x - x(other) * sine;
}

// This is a KV head of a copied sequence, whose pages follow each other.
struct CopiedHead {
  uint32_t first_page, head, heads;
};
// Returns where a copied place lies, in elements.
__device__ __forceinline__ size_t element_at(const CopiedHead& h, uint32_t place, uint32_t dim) {
  const size_t page = (size_t{h.first_page} + place / kCopiedPage) * h.heads + h.head;
  return (page * kCopiedPage + place % kCopiedPage) * dim;
}

}  // namespace tenon::flash
