#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tenon::cuda_device {

// Returns the rate of the fastest of several passes of a kernel that only reads, over up to 8 GiB of random bytes.
// *bytes says over how many. Throws.
double measure_read_rate(cudaStream_t stream, uint64_t* bytes);

}  // namespace tenon::cuda_device
