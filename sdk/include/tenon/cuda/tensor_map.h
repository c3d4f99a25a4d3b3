// Describes tensors to Hopper's copy engine (Barrier::copy_box of barrier.cuh).
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>
#include <string>

#include "tenon/cuda/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::cuda {

// The copy engine sees a tensor so; boxes are 128 bytes of dimension 0 by `box_rows` of dimension 1, in the 128-byte
// swizzle.
struct TensorMapShape {
  uint64_t dim[4];     // innermost first
  uint64_t stride[3];  // in bytes, of dimensions 1 to 3; multiples of 16
  uint32_t box_rows;
};

struct MatrixShape {
  uint64_t rows, columns;
};
// Describes a dense matrix.
inline TensorMapShape map_of_matrix(tenon_format format, const MatrixShape& matrix, uint32_t box_rows) {
  const uint64_t row = matrix.columns * static_cast<uint64_t>(tenon_format_block(format).bytes);
  return {{matrix.columns, matrix.rows, 1, 1}, {row, row, row}, box_rows};
}

inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  TENON_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) throw sdk::Failed("the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}
inline CUtensorMapDataType tensor_map_type(tenon_format format) {
  switch (format) {
    case TENON_F16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case TENON_BF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case TENON_F32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case TENON_I8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    default:
      throw sdk::Failed(std::string("no map of tensors in ") + tenon_format_name(format));
  }
}
// The address is a multiple of 16. Throws sdk::Failed with what the driver says.
inline CUtensorMap make_tensor_map(tenon_format format, const void* base, const TensorMapShape& s) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = tensor_map_encoder();
  constexpr uint32_t kBoxBytes = 128;
  const uint32_t box[4] = {kBoxBytes / static_cast<uint32_t>(tenon_format_block(format).bytes), s.box_rows, 1, 1};
  const uint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap map{};
  const CUresult status = encode(&map, tensor_map_type(format), 4, const_cast<void*>(base), s.dim, s.stride, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) throw sdk::Failed("cuTensorMapEncodeTiled: error " + std::to_string(status));
  return map;
}

}  // namespace tenon::cuda
