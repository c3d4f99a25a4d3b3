// These are the step's own ops: the rows whose logits are wanted, the pooling of hidden states, the verification of
// drafts, the step's end.
#pragma once

#include "tenon/abi/device.h"
#include "tenon/sdk/mask.h"
#include "tenon/sdk/told.h"

namespace tenon::cuda_device {

// Returns the architecture that these kernels, and so those of the build, were compiled for; newer GPUs run them too.
uint32_t built_arch();

// Records an op after record_verify's: it tells the host of each row whose logits are wanted what it finds wrong in
// `left` and, if it is the first of these ops, in the logits (tenon/sdk/told.h).
void record_tell(const sdk::VerifyOp& verify, std::span<const sdk::Left> left, bool first, sdk::Recorder& recorder);
// Records the op that puts the logits under the masks of their rows: TENON_F_MASK.
void record_mask(const sdk::MaskOp& mask, tenon_tid x, tenon_tid y, sdk::Recorder& recorder);
void record_draft_pass(const sdk::DraftPass& pass, sdk::Recorder& recorder);
// `verify` is any op of the step. Throws Refused for an id that it does not know.
void record_step_op(const sdk::VerifyOp& verify, tenon_tid x, tenon_tid y, sdk::Recorder& recorder);

}  // namespace tenon::cuda_device
