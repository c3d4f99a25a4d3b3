// Logits are put under the masks of their rows (tenon/abi/grammar.h). Each logit is read once
// and written once, with a bit of the mask.
#include <algorithm>
#include <limits>

#include "step_ops.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"
#include "tenon/sdk/step_operands.h"

namespace tenon::cuda_device {
namespace {

using enum sdk::MaskOperand;

constexpr uint32_t kThreads = 256, kMostBlocks = 64, kBits = 32;

struct MaskArgs {
  int64_t vocab, words, x_stride, y_stride;
  uint32_t rows, padding;
};
struct MaskPointers {
  const float* x;         // (out rows, vocab)
  float* y;               // (out rows, vocab)
  const uint32_t* live;   // the live words of the step
  const uint32_t* masks;  // (masks, words): a bit a token
  const int32_t* number;  // (out rows): the row's mask, or -1
};
// A block takes a share of one row: threads stand side by side, so that a warp shares one word of the mask.
__global__ void mask_kernel(MaskArgs a, MaskPointers p) {
  cuda::wait();
  const uint32_t row = blockIdx.y;
  if (row >= min(p.live[sdk::kLiveOutRows], a.rows)) return;
  const int32_t number = p.number[row];
  const float* from = p.x + row * a.x_stride;
  float* to = p.y + row * a.y_stride;
  const uint32_t* bits = p.masks + max(number, 0) * a.words;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.vocab; i += gridDim.x * blockDim.x) {
    const bool allowed = number < 0 || ((bits[i / kBits] >> (i % kBits)) & 1U) != 0;
    to[i] = allowed ? from[i] : -std::numeric_limits<float>::infinity();
  }
}
void mask(const MaskArgs& a, const cuda::Launch& l) {
  const auto wide = static_cast<uint32_t>((a.vocab + kThreads - 1) / kThreads);
  l(&mask_kernel, {.blocks = {std::min(wide, kMostBlocks), a.rows}, .threads = {kThreads}}, a,
    MaskPointers{.x = l.ptr<const float>(kMaskX),
                 .y = l.ptr<float>(kMaskY),
                 .live = l.ptr<const uint32_t>(kMaskLive),
                 .masks = l.ptr<const uint32_t>(kMaskWords),
                 .number = l.ptr<const int32_t>(kMaskNumber)});
}

}  // namespace

void record_mask(const sdk::MaskOp& op, tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  const tenon_tensor from = rec.describe(x), masks = rec.describe(op.masks);
  const std::vector<tenon_operand> operands = sdk::mask_operands(op, x, y, rec);
  cuda::emit<&mask>(
      rec, {.name = "mask", .operands = operands, .chunks = {}},
      MaskArgs{from.dim[1], masks.dim[1], rec.floats_of_row(x), rec.floats_of_row(y), rec.bounds().out_rows, 0});
}

}  // namespace tenon::cuda_device
