// Two of every four weights, as a layout of weights for grouped formats (tenon/cuda/group_weights.cuh): integers q = code of
// 0 to 15, less 8; where there is no weight the code is 8. [lane][row g, row g + 8] u32, a byte a k-step: the codes of the quad
// that the lane has of it, the one of the smaller column in the lower nibble; then [lane] u32, four bits a row and k-step: their
// columns, as definition.h has them.
//
// A lane's part of a k-step is one quad of row g, and one of row g + 8: two registers of an A fragment each. A byte
// permutation makes them of a word that has both codes and an 8, by a selector out of a table of all columns in shared
// memory. The table's sixteen words lie in banks of their own, so lanes do not wait for each other.
//
// Example: the quad (0, -3, 0, 5) has the codes 5 and 13 and the columns 1 and 3, that is 1 | 3 << 2 = 13. The word is
// bytes 5, 13, 8, 0, the selector for columns 0 and 1 takes bytes 2, 3, 0, 3: halves with the bits 8 and 5.
#pragma once

#include "definition.h"
#include "tenon/cuda/group_weights.cuh"

namespace tenon::cuda {

struct SparseNibbles : IntegerWeights<8> {
  static constexpr bool kStaggered = false;
  static constexpr uint32_t kColumns = 256, kBytes = kColumns + 128, kWords = 16;
  static constexpr uint32_t kTableBytes = 128;  // of the words, up to where a dynamic array may begin

  // By all threads of a block, which then wait for each other. [columns]: two selectors.
  static __device__ void make_table() {
    if (threadIdx.x >= kWords) return;
    const uint32_t first = threadIdx.x & 3, second = threadIdx.x >> 2;
    uint32_t selectors = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t byte = i == first ? 0 : i == second ? 1 : 2;
      selectors |= (byte | 3 << 4) << 8 * i;
    }
    table()[threadIdx.x] = selectors;
  }
  __device__ __forceinline__ void load(uint32_t address) {
    codes_ = load_shared_8(address + 8 * lane_id());
    columns_ = load_shared_4(address + kColumns + 4 * lane_id());
  }
  template <uint32_t kWith = 0>
  __device__ __forceinline__ void fragments(uint32_t step, uint32_t (&a)[4]) const {
    constexpr uint32_t kNone = 8U << 16;
#pragma unroll
    for (uint32_t row = 0; row < 2; ++row) {
      const uint32_t codes = (row == 0 ? codes_.x : codes_.y) >> 8 * step;
      const uint32_t word = (codes & 15) | (codes << 4 & 0xf00) | kNone;
      const uint32_t selectors = table()[columns_ >> (16 * row + 4 * step) & 15];
      a[row] = __byte_perm(word, 0, selectors) | kWith;
      a[row + 2] = __byte_perm(word, 0, selectors >> 16) | kWith;
    }
  }

  static __device__ void unpack(const uint8_t* from, uint32_t block, uint32_t lane, uint32_t (&q)[2][8]) {
    const auto* codes = reinterpret_cast<const uint32_t*>(from + 8 * lane);
    const uint32_t columns = *reinterpret_cast<const uint32_t*>(from + kColumns + 4 * lane);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t row = i / 8, step = 2 * block + i / 4 % 2, column = i % 4;
      const uint32_t both = codes[row] >> 8 * step, places = columns >> (16 * row + 4 * step);
      q[row][i % 8] = column == (places & 3) ? both & 15 : column == (places >> 2 & 3) ? both >> 4 & 15 : 8;
    }
  }
  // q: of each four, two at most are not 8.
  static __device__ void put(uint8_t* to, uint32_t row, uint32_t k, const uint32_t (&q)[8]) {
    uint32_t columns = 0;
    const uint32_t lane = lane_offset(row, k) / 16, block = k / 32;
    for (uint32_t quad = 0; quad < 2; ++quad) {
      // The first and the last column that are taken, or two of those that are not.
      uint32_t first = 0, second = 3;
      while (first < 2 && q[4 * quad + first] == 8) ++first;
      while (second > first + 1 && q[4 * quad + second] == 8) --second;
      to[8 * lane + row / 8 * 4 + 2 * block + quad] =
          static_cast<uint8_t>(q[4 * quad + first] | q[4 * quad + second] << 4);
      columns |= (first | second << 2) << 4 * quad;
    }
    to[kColumns + 4 * lane + row / 8 * 2 + block] = static_cast<uint8_t>(columns);
  }

 private:
  // The block's.
  static __device__ __forceinline__ uint32_t* table() {
    __shared__ uint32_t words[kWords];
    return words;
  }

  uint2 codes_;
  uint32_t columns_;
};
static_assert(GroupWeights<SparseNibbles>);

}  // namespace tenon::cuda
