// This op tells the host of rows whose logits or candidates are not as they must be (tenon/sdk/told.h). The twin on the
// CPU is tell() of core/src/cpu/cpu_ops.cc.
#include <algorithm>
#include <limits>

#include "step_ops.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"
#include "tenon/sdk/step_operands.h"

namespace tenon::cuda_device {
namespace {

using enum sdk::TellOperand;

constexpr uint32_t kThreads = 256;

// If a row is not as it must be, the host is told so in the place of its token, which verify_kernel wrote. The blocks
// of a row look at a share each; whoever finds something says so, and the lower number is the one that stays. Only the
// last block of the row knows that an entry above minus infinity is missing: each block counts itself, and under each
// processor that it found one for, in the bytes of one number.
struct TellArgs {
  int64_t vocab, stride;  // a row has `vocab` logits; stride: elements to the next one
  uint32_t out_rows, sees_logits;
  sdk::SomeLeft left;
};
struct TellPointers {
  const float* logits;
  int32_t* told;
  const uint32_t* live;
  unsigned long long* seen;  // by row, zero between launches: byte 0 counts blocks, byte 1 + l those with an entry of l
  const float* left[sdk::kLeftOfAnOp];
  const int32_t* count[sdk::kLeftOfAnOp];  // nullptr: all columns count
  const int32_t* id[sdk::kLeftOfAnOp];     // nullptr: they are not looked at
};
constexpr uint32_t kTellUnroll = 8, kMostTellBlocks = 64, kSeenBits = 8;
constexpr uint32_t kTellBlocks = 2048;  // all rows share so many at most: more would come, read little and go
static_assert(kMostTellBlocks < 1 << kSeenBits && (1 + sdk::kLeftOfAnOp) * kSeenBits <= 64);

// A thread finds these, as bits: those below kWrongBit say which processors left an entry above minus infinity.
constexpr uint32_t kWrongBit = 1 << sdk::kLeftOfAnOp, kNoLogitBit = kWrongBit << 1;

// A thread looks at these entries of a row: those from `first` on in steps of `step`.
struct ThreadShare {
  int64_t first, step;
};
// Looks at this thread's share of what processor l left: the entries, their ids and their count.
__device__ uint32_t look_at_left(const TellArgs& a, const TellPointers& p, uint32_t l, uint32_t row,
                                 const ThreadShare& share) {
  const auto [first, step] = share;
  const sdk::LeftRows& of = a.left.of[l];
  const float* left = p.left[l] + row * of.stride;
  const int64_t counted = p.count[l] != nullptr ? p.count[l][row] : of.columns;
  const int64_t entries = counted < 0 || counted > of.columns ? 0 : counted;
  bool wrong = entries != counted, possible = false;
#pragma unroll kTellUnroll
  for (int64_t i = first; i < entries; i += step) {
    wrong |= sdk::no_candidate(left[i]);
    possible |= left[i] >= -std::numeric_limits<float>::max();
  }
  if (p.id[l] != nullptr) {
    const int32_t* id = p.id[l] + row * of.id_stride;
#pragma unroll kTellUnroll
    for (int64_t i = first; i < entries; i += step) wrong |= static_cast<uint32_t>(id[i]) >= a.vocab;
  }
  return (wrong ? kWrongBit : 0) | (possible ? 1U << l : 0);
}

// Returns the bits of all threads of the block to its first thread.
__device__ uint32_t all_of_block(uint32_t found) {
  constexpr uint32_t kWarp = 32;
  __shared__ uint32_t warps[kThreads / kWarp];
  found = __reduce_or_sync(~0U, found);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = found;
  __syncthreads();
  for (uint32_t w = 0; threadIdx.x == 0 && w < kThreads / kWarp; ++w) found |= warps[w];
  return found;
}

// Returns whether this is the row's last block, and no block has found an entry of some processor.
__device__ bool entries_are_missing(const TellArgs& a, unsigned long long* seen, uint32_t found) {
  unsigned long long own = 1;
  for (uint32_t l = 0; l < a.left.n; ++l) own |= static_cast<unsigned long long>(found >> l & 1) << (l + 1) * kSeenBits;
  const unsigned long long all = gridDim.x == 1 ? own : atomicAdd(seen, own) + own;
  constexpr uint32_t kByte = (1 << kSeenBits) - 1;
  if ((all & kByte) != gridDim.x) return false;
  if (gridDim.x > 1) *seen = 0;
  bool missing = false;
  for (uint32_t l = 0; l < a.left.n; ++l) missing |= (all >> (l + 1) * kSeenBits & kByte) == 0;
  return missing;
}

__global__ void tell_kernel(TellArgs a, TellPointers p) {
  cuda::wait();
  const uint32_t row = blockIdx.y;
  if (row >= min(p.live[sdk::kLiveOutRows], a.out_rows)) return;
  const int64_t first = blockIdx.x * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  uint32_t found = 0;
  const float* logits = p.logits + row * a.stride;
  const int64_t seen = a.sees_logits != 0 ? a.vocab : 0;
#pragma unroll kTellUnroll
  for (int64_t i = first; i < seen; i += step) found |= sdk::no_logit(logits[i]) ? kNoLogitBit : 0;
#pragma unroll
  for (uint32_t l = 0; l < sdk::kLeftOfAnOp; ++l) {
    if (l < a.left.n) found |= look_at_left(a, p, l, row, {first, step});
  }
  found = all_of_block(found);
  if (threadIdx.x != 0) return;
  const bool missing = a.left.n > 0 && entries_are_missing(a, p.seen + row, found);
  if ((found & kNoLogitBit) != 0) {
    atomicMin(p.told + row, sdk::kNoLogits);
  } else if ((found & kWrongBit) != 0 || missing) {
    atomicMin(p.told + row, sdk::kNoCandidates);
  }
}
// The operands from kTellLeft on are what sdk::add_left() put there: logits of each processor, and a count and ids
// where there are any.
void tell(const TellArgs& a, const cuda::Launch& l) {
  TellPointers p{};
  p.logits = l.ptr<const float>(kTellLogits);
  p.told = l.ptr<int32_t>(kTellTold);
  p.live = l.ptr<const uint32_t>(kTellLive);
  p.seen = l.zeroed<unsigned long long>();
  sdk::PresentOperands present(l, kTellLeft);
  for (uint32_t i = 0; i < a.left.n; ++i) {
    const uint32_t counted = a.left.of[i].counted;
    p.left[i] = present.take<const float>(true);
    p.count[i] = present.take<const int32_t>(counted > 0);
    p.id[i] = present.take<const int32_t>(counted > 1);
  }
  const auto share = int64_t{kThreads} * kTellUnroll;
  const auto wide = static_cast<uint32_t>((a.vocab + share - 1) / share);
  const uint32_t blocks = std::min({wide, kMostTellBlocks, std::max(kTellBlocks / a.out_rows, 1U)});
  l(&tell_kernel, {.blocks = {blocks, a.out_rows}, .threads = {kThreads}}, a, p);
}

}  // namespace

void record_tell(const sdk::VerifyOp& verify, std::span<const sdk::Left> some, bool first, sdk::Recorder& rec) {
  const tenon_tensor logits = rec.describe(verify.logits());
  std::vector<tenon_operand> operands = sdk::tell_operands(verify, rec);
  const sdk::SomeLeft left = sdk::add_left(some, rec, operands);
  const uint32_t rows = rec.bounds().out_rows;
  cuda::emit<&tell>(
      rec, {.name = "tell", .operands = operands, .chunks = {}, .zeroed_bytes = rows * sizeof(*TellPointers::seen)},
      TellArgs{logits.dim[1], rec.floats_of_row(verify.logits()), rows, first, left});
}

}  // namespace tenon::cuda_device
