// An op on the CPU reads and writes cells of a KV cache through this.
//
//   const sdk::cpu::KvCells keys({.layout = args.kv, .plane = args.kv.k, .base = part.ptr<void>(kK),
//                                 .scales = part.ptr<void>(kKScale), .pages = part.ptr<int32_t>(kPages)}, slot, head);
//   keys.load(cell, row);        f32, whatever the codec
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tenon/sdk/kv_layout.h"

namespace tenon::sdk::cpu {

// Converts n elements of a codec to f32.
inline void load_row(uint32_t codec, const std::byte* from, uint32_t n, float* to, float scale = 1) {
  with_kv_codec(codec, [&]<KvCodec C>(C) {
    for (uint32_t i = 0; i < n; ++i) {
      if constexpr (kTwoInAByte<C>) {
        to[i] = C::decode(kv_code<C>(reinterpret_cast<const uint8_t*>(from), i), scale);
      } else {
        typename C::Element e;
        std::memcpy(&e, from + i * sizeof(e), sizeof(e));
        to[i] = C::decode(e, scale);
      }
    }
  });
}
// Converts n f32 to a codec, rounded to nearest even.
inline void store_row(uint32_t codec, const float* from, uint32_t n, std::byte* to, float scale = 1) {
  with_kv_codec(codec, [&]<KvCodec C>(C) {
    for (uint32_t i = 0; i < kv_row_stored(codec, n); ++i) {
      const typename C::Stored e = kv_stored<C>(
          i, n, [&](uint32_t d) { return from[d]; }, scale);
      std::memcpy(to + i * sizeof(e), &e, sizeof(e));
    }
  });
}
// Returns the element of greatest magnitude, for kv_scale(); NaN if there is one.
inline float most_of_row(const float* x, uint32_t n) {
  float most = 0, least = 0, none = 0;
  for (uint32_t i = 0; i < n; ++i) {
    most = std::max(most, x[i]);
    least = std::min(least, x[i]);
    none = x[i] != x[i] ? x[i] : none;
  }
  return none != none ? none : -least > most ? least : most;
}

// This has the cells of one head of one sequence. The layout may go away afterwards, the tensors may not.
class KvCells {
 public:
  KvCells(const KvMemory& m, uint32_t slot, uint32_t head)
      : base_(static_cast<std::byte*>(m.base) + head * m.plane.head),
        scales_(static_cast<std::byte*>(m.scales) + head * m.plane.scale_head),
        pages_(m.pages + (m.layout.apart() ? size_t{slot} * m.layout.heads + head : size_t{slot}) * m.layout.columns),
        plane_(m.plane),
        shift_(static_cast<uint32_t>(std::countr_zero(m.layout.page_cells))) {}

  // Returns the elements of a cell below the layout's capacity. Throws Failed if it has no page.
  std::byte* at(uint32_t cell) const { return base_ + page(cell) * plane_.page + inside(cell) * plane_.cell; }
  // Returns where a cell's scale is, or the zeros of its group.
  std::byte* scale_at(uint32_t cell) const {
    const uint32_t at = plane_.group != 0 ? inside(cell) / plane_.group : inside(cell);
    return scales_ + page(cell) * plane_.scale_page + at * plane_.scale_cell;
  }
  // Returns 1 where elements have no scale of their cell.
  float scale(uint32_t cell) const {
    return plane_.scale == 0 || plane_.group != 0 ? 1 : load_kv_scale(plane_.scale, scale_at(cell));
  }
  // Returns the zero and the step of a dimension, for a cell of a plane with groups.
  KvChannel channel(uint32_t cell, uint32_t d) const {
    const std::byte* zeros = scale_at(cell);
    const uint32_t bytes = tenon_format_block(plane_.scale).bytes;
    return {load_kv_scale(plane_.scale, zeros + d * bytes),
            load_kv_scale(plane_.scale, zeros + (plane_.dim + d) * bytes)};
  }
  int64_t stride() const { return plane_.cell; }  // from cell to cell within a page

  void load(uint32_t cell, float* to) const {
    if (plane_.group == 0) return load_row(plane_.codec, at(cell), plane_.dim, to, scale(cell));
    const auto* codes = reinterpret_cast<const uint8_t*>(at(cell));
    for (uint32_t d = 0; d < plane_.dim; ++d) to[d] = channel(cell, d).decode(kv_code<KvI4>(codes, d));
  }
  void store(const float* from, uint32_t cell) const {
    float scale = 1;
    if (plane_.scale != 0) {
      scale = kv_scale(plane_.codec, plane_.scale, most_of_row(from, plane_.dim));
      store_kv_scale(plane_.scale, scale, scale_at(cell));
    }
    store_row(plane_.codec, from, plane_.dim, at(cell), scale);
  }
  int32_t page(uint32_t cell) const {
    const int32_t page = pages_[cell >> shift_];
    if (page < 0) throw Failed("cell " + std::to_string(cell) + " of a sequence has no page in the cache");
    return page;
  }

 private:
  uint32_t inside(uint32_t cell) const { return cell & ((1u << shift_) - 1); }

  std::byte* base_;
  std::byte* scales_;
  const int32_t* pages_;
  KvPlane plane_;
  uint32_t shift_;
};

}  // namespace tenon::sdk::cpu
