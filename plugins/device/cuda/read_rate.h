#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tenon::cuda_device {

// The fastest of several passes of a kernel that only reads, over up to 8 GiB of random bytes. *bytes: over how much.
// Throws.
double measure_read_rate(cudaStream_t stream, uint64_t* bytes);

}  // namespace tenon::cuda_device
