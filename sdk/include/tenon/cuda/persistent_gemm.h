// These products of many rows are multiplied by kernels of the project's own, for Hopper. They are run by the library
// tenon::gemm (product.h).
#pragma once

#include <cstdint>

#include "tenon/cuda/op.h"

namespace tenon::cuda::detail {

// Computes y (rows, columns) of x (rows, k) and w (w_rows, k). With silu y = silu(gate) * up, in halves, where w has the
// rows of gate, then those of up. Without it y is x w^T in f32, plus the addend if there is one.
//   f16, bf16  sums are in f32; with silu only
//   i8         sums are exact; each has the scales of its rows of x and of w, and w's may have a bias. y of silu is f16
// All matrices are dense, with rows of whole 16 bytes. Rows past the live ones come out as anything.
struct PersistentGemm {
  uint32_t rows, columns, k, w_rows;
  tenon_format format;  // x and w have it
  uint32_t silu;        // 0 or 1
  uint32_t blocks;      // what persistent_gemm_blocks() returned
};
struct PersistentGemmPointers {
  const void *x, *w;  // these and y are at multiples of 16
  void* y;
  const uint32_t* live;
  const float* addend;               // f32 (rows, columns) or nullptr; it may be y
  const float *x_scales, *w_scales;  // i8 has them: f32[rows], f32[w_rows]
  const float* bias;                 // i8 may have it: an f32 for each wanted row of w; or nullptr
};

// Runs it on the current device. Throws sdk::Failed. Any thread.
void run_persistent_gemm(const PersistentGemm& a, const PersistentGemmPointers& p, const Launch& launch);

// Returns how many blocks it takes on the current device. 0: the device cannot run it, or less than the share
// `least_busy` of its multiplications would be wanted: rows and columns that fill no tile are multiplied, too, and after
// the last tiles multiprocessors are idle. Any thread.
uint32_t persistent_gemm_blocks(const PersistentGemm& a, double least_busy);

}  // namespace tenon::cuda::detail
