// The vocabulary's ops as kernels of their own, for what no neighbour claims. Rows are f32, contiguous inside, strided
// between.
#pragma once

#include "tenon/sdk/recorder.h"

namespace tenon::cuda_device {

// The architecture that these kernels, and so those of the same build, were compiled for; a newer GPU runs them too.
uint32_t built_arch();

// Throws Refused for an id that it does not know.
void record_small_op(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& recorder);

}  // namespace tenon::cuda_device
