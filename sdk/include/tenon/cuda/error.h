// CUDA's errors become the SDK's. TENON_CUDA_CHECK(call) throws with the expression and what CUDA says of it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "tenon/sdk/error.h"

namespace tenon::cuda {

inline void check(cudaError_t status, const char* expression) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // an error that is no longer pending must not be found by the next call
  const std::string text = std::string(expression) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) throw sdk::NoSpace(text);
  throw sdk::Failed(text);
}

}  // namespace tenon::cuda

#define TENON_CUDA_CHECK(call) ::tenon::cuda::check((call), #call)
