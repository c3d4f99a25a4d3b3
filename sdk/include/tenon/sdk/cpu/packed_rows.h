// Rows of weights are packed like this for integer products (packed_products.h): sixteen rows side by side, so that a
// vector holds a few k of all of them. How one format is packed is the scheme's own: it brings a Packing for code that
// loads and looks up rows, and the products' side as packed_products.h says.
//
// Sixteen rows make a group; rows that a matrix lacks are zeros. A group is units of unit_k weights of every row,
// one after the other, each unit_bytes long. Most units begin with scales of the sixteen rows, and then have codes
// of four bytes a row, 64 bytes a step: step s (0 to 7) of 32 k has the codes of k 4 s to 4 s + 3 of row 0, then
// of row 1, and so on. Codes of fewer bits share the bytes of several steps as the format likes. It is for code
// that is compiled for the base machine only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tenon/abi/types.h"
#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::sdk::cpu {

// Stores the four codes of a row in a step, lowest k in the lowest byte.
inline void put_step(uint8_t* codes, uint32_t step, uint32_t row, uint32_t four) {
  std::memcpy(codes + 64 * size_t{step} + 4 * size_t{row}, &four, sizeof(four));
}
// Stores the half that is a row's scale among those of the group's sixteen rows.
inline void copy_half(uint8_t* to, uint32_t row, const uint8_t* from) {
  std::memcpy(to + 2 * size_t{row}, from, 2);
}

// These pack row `row` of a matrix whose groups begin at `store` from the row as it is stored, and unpack it to floats.
inline void pack_row(const Packing& p, std::span<const uint8_t> stored, uint32_t k, uint64_t row, uint8_t* store) {
  const size_t header = p.row_scales ? sizeof(float) : 0, unit_from = (stored.size() - header) / p.units(k);
  const uint8_t* from = stored.data() + header;
  uint8_t* group = store + row / kGroupRows * kGroupRows * p.bytes_of_row(k);
  std::memcpy(group + row % kGroupRows * header, stored.data(), header);
  uint8_t* unit = group + p.header_bytes();
  for (uint32_t i = 0; i < k; i += p.unit_k, from += unit_from, unit += p.unit_bytes) {
    p.pack(from, static_cast<uint32_t>(row % kGroupRows), unit);
  }
}
inline void unpack_packed_row(const Packing& p, const uint8_t* store, uint32_t k, uint64_t row, float* w) {
  const uint8_t* group = store + row / kGroupRows * kGroupRows * p.bytes_of_row(k);
  const uint8_t* unit = group + p.header_bytes();
  for (uint32_t i = 0; i < k; i += p.unit_k, unit += p.unit_bytes) {
    const auto in_group = static_cast<uint32_t>(row % kGroupRows);
    if (k - i >= p.unit_k) {
      p.unpack(unit, in_group, w + i);
    } else {
      float filled[kMostUnitK];
      p.unpack(unit, in_group, filled);
      std::copy_n(filled, k - i, w + i);
    }
  }
  if (!p.row_scales) return;
  float scale = 0;
  std::memcpy(&scale, group + row % kGroupRows * sizeof(float), sizeof(scale));
  for (uint32_t i = 0; i < k; ++i) w[i] *= scale;
}

// Rows of a matrix are loaded into its store by this; they are packed or stay as they are.
class RowStore {
 public:
  // packing is nullptr if rows stay as they are. stored_bytes is the size of a row before it is packed.
  RowStore(uint8_t* store, uint32_t k, const Packing* packing, uint64_t stored_bytes)
      : store_(store),
        k_(k),
        packing_(packing),
        stored_bytes_(stored_bytes),
        row_(packing != nullptr ? stored_bytes : 0) {}
  // make(to) writes the row's stored_bytes, which are zeros before.
  template <class F>
  void put(uint64_t row, F&& make) {
    if (packing_ == nullptr) return make(store_ + row * stored_bytes_);
    std::fill(row_.begin(), row_.end(), uint8_t{0});
    make(row_.data());
    pack_row(*packing_, row_, k_, row, store_);
  }

 private:
  uint8_t* store_;
  uint32_t k_;
  const Packing* packing_;
  uint64_t stored_bytes_;
  std::vector<uint8_t> row_;
};

}  // namespace tenon::sdk::cpu
