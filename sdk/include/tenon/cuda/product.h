// These are the products of many rows that cuBLASLt multiplies. They are run by the library tenon::gemm, which is
// compiled apart from kernels: tenon_add_plugin(... DEVICE cuda LIBRARIES tenon::gemm).
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstdint>

namespace tenon::cuda::detail {

constexpr uint64_t kGemmWorkspaceBytes = 64 << 20;

// Computes y (rows, n) = x (rows, k) w (n, k)^T [+ addend] [+ bias]; strides of rows are in elements. If x and w
// are e4m3, each row has a scale, which its numbers are to be multiplied by; other types have none. With x and w
// in int8, y is int32 and nothing is added.
struct Product {
  int64_t rows, n, k, x_stride, y_stride, addend_stride;  // addend_stride 0: no addend
  int32_t in, out, biased, padding;                       // cudaDataType; 0 or 1

  bool scaled() const { return in == CUDA_R_8F_E4M3; }
  bool integers() const { return in == CUDA_R_8I; }
};
struct ProductPointers {
  const void *x, *w;
  void* y;
  const float *addend, *bias;        // nullptr: none
  const float *x_scales, *w_scales;  // the rows of x and of w have these; nullptr: none
  void* workspace;                   // kGemmWorkspaceBytes
};

// Runs a product on the current device, by the algorithm that gemm_tuning.h chooses. Throws
// sdk::Failed with what cuBLASLt says. Any thread.
void run_product(const Product& p, const ProductPointers& at, cudaStream_t stream);

// Says whether cuBLASLt has an algorithm for a product of tensors that begin at whole 256
// bytes, on the current device. Any thread.
bool has_algorithm(const Product& p);

}  // namespace tenon::cuda::detail
