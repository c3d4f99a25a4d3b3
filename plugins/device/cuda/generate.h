#pragma once

#include <cuda_runtime_api.h>

#include "tenon/abi/device.h"
#include "tenon/sdk/error.h"

namespace tenon::cuda_device {

// Enqueues what tenon_generated says, but for the table, which is copied before it returns. Throws.
void fill_generated(cudaStream_t stream, void* dst, const tenon_generated& what);

}  // namespace tenon::cuda_device
