#pragma once

#include <cuda_runtime_api.h>

#include "tenon/abi/device.h"
#include "tenon/sdk/error.h"

namespace tenon::cuda_device {

// See tenon_generated. Enqueued, but for the table, which is copied before it returns. Throws.
void fill_generated(cudaStream_t stream, void* dst, const tenon_generated& what);

}  // namespace tenon::cuda_device
