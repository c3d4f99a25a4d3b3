// An op of a product (linear.h) knows this while it runs: its arguments, and which operand is what.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/sdk/cpu/linear_site.h"
#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::sdk::cpu::detail {

// Every product has these operands. After them stand the stores, by matrix, and what the arguments number.
enum LinearOperand : uint32_t { kY, kX, kLive, kStores };

// An op of the epilogue adds element operand[r * stride + c] to (r, c).
struct Addend {
  uint32_t operand;
  int64_t stride;  // 0: a bias, the same for every row
};

struct LinearArgs {
  Isa isa;
  uint32_t vbmi;  // 1: the processor has AVX-512 VBMI
  uint32_t n_mats, k, rows;
  uint32_t chunk_columns;                   // a chunk has so many
  uint32_t group_columns;                   // so many columns of a chunk are unpacked at once
  uint32_t before, after;                   // addends before SILU_MUL, or all if there is no SILU_MUL; and after it
  uint32_t silu;                            // 1: SILU_MUL is claimed
  uint32_t norm;                            // the operand of RMSNorm's weight; 0: none is claimed
  Activations activations;                  // rows of x are turned into these
  float eps;                                // RMSNorm's
  int64_t x_stride, y_stride;               // floats
  uint32_t code[TENON_MAX_STORES];          // by matrix: its format
  uint32_t mat_rows[TENON_MAX_STORES];      // by matrix: the rows of one expert
  uint64_t row_bytes[TENON_MAX_STORES];     // by matrix
  uint64_t expert_bytes[TENON_MAX_STORES];  // by matrix: from an expert's to the next one's
  uint32_t experts;                         // 0: the site is not routed
  uint32_t expert;                          // the operand that has each row's expert, i32[rows]
  Addend addend[kMaxEpilogue];
};

inline constexpr uint32_t kBlockRows = 48;           // rows of x at a time: a multiple of every kernel's
inline constexpr size_t kUnpackedBytes = 512 << 10;  // a group of columns takes so many: they fit a second-level cache

// Returns how many rows a tile has. Kernels write to it, and the epilogue reads it.
inline uint32_t tile_rows(const LinearArgs& a) {
  return std::min(kBlockRows, a.rows);
}

// SILU_MUL takes two matrices of one shape, or the halves of one. Two column runs (linear_run.h) are
// multiplied for it, each into a tile of its own.
inline bool has_half_matrix(const LinearArgs& a) {
  return a.silu != 0 && a.n_mats == 1;
}
inline uint32_t column_runs_of(const LinearArgs& a) {
  return a.silu != 0 ? 2 : 1;
}

// Returns how many columns matrix `mat` gives y by itself: with SILU_MUL those of gate.
inline uint32_t columns_of_matrix(const LinearArgs& a, uint32_t mat) {
  return has_half_matrix(a) ? a.mat_rows[mat] / 2 : a.mat_rows[mat];
}
inline uint32_t chunks_of(uint32_t columns, uint32_t columns_a_chunk) {
  return (columns + columns_a_chunk - 1) / columns_a_chunk;
}
// Returns how many chunks all matrices have, or gate alone, whose columns go in pairs with those of up.
inline uint32_t count_chunks(const LinearArgs& a, uint32_t columns_a_chunk) {
  uint32_t chunks = 0;
  for (uint32_t mat = 0; mat < (a.silu != 0 ? 1 : a.n_mats); ++mat) {
    chunks += chunks_of(columns_of_matrix(a, mat), columns_a_chunk);
  }
  return chunks;
}

// A chunk has these columns: rows [begin, end) of matrix `mat`, which are columns from y_first + begin on of y.
struct ChunkColumns {
  uint32_t mat, y_first, begin, end;
  uint32_t gate_columns;  // matrix columns in y; with SILU_MUL, up's are so many further on
};
inline ChunkColumns find_chunk(const LinearArgs& a, uint32_t chunk) {
  ChunkColumns found{};
  for (;; ++found.mat) {
    found.gate_columns = columns_of_matrix(a, found.mat);
    const uint32_t chunks = chunks_of(found.gate_columns, a.chunk_columns);
    if (chunk < chunks) break;
    chunk -= chunks;
    found.y_first += found.gate_columns;
  }
  found.begin = chunk * a.chunk_columns;
  found.end = std::min(found.begin + a.chunk_columns, found.gate_columns);
  return found;
}

}  // namespace tenon::sdk::cpu::detail
