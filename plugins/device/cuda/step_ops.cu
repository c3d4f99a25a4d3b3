// This has the step's own ops on a GPU: the rows whose logits are wanted, the verification of drafts, what the host
// hears at the end of a step, and a draft model's passes. Each twin is core/src/cpu/cpu_ops.cc; ADVANCE has none, since
// a device that walks leaves it to the host.
//
// Invariants: one block does all of a step that rows depend on, so that __syncthreads() orders it; every kernel waits
// before it reads or writes.
#include <algorithm>

#include "step_ops.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/step_operands.h"

namespace tenon::cuda_device {
namespace {

using enum sdk::GatherOperand;
using enum sdk::PoolOperand;
using enum sdk::VerifyOperand;

constexpr uint32_t kThreads = 256;

struct GatherArgs {
  int64_t columns, x_stride, y_stride;
  uint32_t rows, padding;
};
struct GatherPointers {
  const float* x;          // (rows, columns)
  float* y;                // (out rows, columns)
  const uint32_t* live;    // the live words of the step
  const int32_t* out_row;  // (out rows)
};
__global__ void gather_kernel(GatherArgs a, GatherPointers p) {
  cuda::wait();
  if (blockIdx.y >= min(p.live[sdk::kLiveOutRows], a.rows)) return;
  const float* from = p.x + p.out_row[blockIdx.y] * a.x_stride;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.columns; i += gridDim.x * blockDim.x) {
    p.y[blockIdx.y * a.y_stride + i] = from[i];
  }
}
void gather(const GatherArgs& a, const cuda::Launch& l) {
  const auto wide = static_cast<uint32_t>((a.columns + kThreads - 1) / kThreads);
  l(&gather_kernel, {.blocks = {std::min(wide, 64u), a.rows}, .threads = {kThreads}}, a,
    GatherPointers{.x = l.ptr<const float>(kGatherX),
                   .y = l.ptr<float>(kGatherY),
                   .live = l.ptr<const uint32_t>(kGatherLive),
                   .out_row = l.ptr<const int32_t>(kGatherOutRow)});
}

// A thread has a column of a sequence. A text's rows are added in their order, whatever steps they come in.
struct PoolArgs {
  int64_t columns, x_stride;
};
struct PoolPointers {
  const float* x;
  float* pooled;
  const uint32_t* live;
  const int32_t *seq_row, *seq_slot, *kv_len;
};
__global__ void pool_kernel(PoolArgs a, PoolPointers p) {
  cuda::wait();
  const uint32_t seq = blockIdx.y;
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (seq >= p.live[sdk::kLiveSeqs] || column >= a.columns) return;
  const int32_t slot = p.seq_slot[seq], begin = p.seq_row[seq], end = p.seq_row[seq + 1];
  float* y = p.pooled + slot * 2 * a.columns + column;
  float sum = p.kv_len[slot] == 0 ? 0.0F : *y, last = 0;
  for (int32_t row = begin; row < end; ++row) sum += last = p.x[row * a.x_stride + column];
  y[0] = sum;
  if (end > begin) y[a.columns] = last;
}
struct PoolSizes {
  PoolArgs args;
  uint32_t seqs, padding;
};
void pool(const PoolSizes& a, const cuda::Launch& l) {
  const auto wide = static_cast<uint32_t>((a.args.columns + kThreads - 1) / kThreads);
  l(&pool_kernel, {.blocks = {wide, a.seqs}, .threads = {kThreads}}, a.args,
    PoolPointers{.x = l.ptr<const float>(kPoolX),
                 .pooled = l.ptr<float>(kPooled),
                 .live = l.ptr<const uint32_t>(kPoolLive),
                 .seq_row = l.ptr<const int32_t>(kPoolSeqRow),
                 .seq_slot = l.ptr<const int32_t>(kPoolSeqSlot),
                 .kv_len = l.ptr<const int32_t>(kPoolKvLen)});
}

// The rows up to the first whose logits are wanted are given. From there on the first child whose token is the one
// chosen for its parent survives; children stand after their parents, so one pass over the rows finds the path. A
// choice that is no token is told as it was, and is 0 for everybody after.
struct VerifyArgs {
  uint32_t seqs, vocab;
};
struct VerifyPointers {
  int32_t *next, *accepted, *survivor, *told;
  const uint32_t* live;
  const int32_t *out_row, *seq_row, *token, *parent;
};
// Returns the first out row from `row` on.
__device__ uint32_t first_out_row(const VerifyPointers& p, uint32_t outs, int32_t row) {
  uint32_t begin = 0, end = outs;
  while (begin < end) {
    const uint32_t middle = (begin + end) / 2;
    if (p.out_row[middle] < row) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}
__global__ void verify_kernel(VerifyArgs a, VerifyPointers p) {
  cuda::wait();
  const uint32_t seqs = p.live[sdk::kLiveSeqs], outs = p.live[sdk::kLiveOutRows];
  for (uint32_t o = threadIdx.x; o < outs; o += blockDim.x) {
    const int32_t chosen = p.told[o] = p.next[o];
    if (static_cast<uint32_t>(chosen) >= a.vocab) p.next[o] = 0;
  }
  __syncthreads();
  for (uint32_t s = threadIdx.x; s < seqs; s += blockDim.x) {
    const int32_t begin = p.seq_row[s], end = p.seq_row[s + 1];
    uint32_t o = first_out_row(p, outs, begin);
    const int32_t given = o < outs && p.out_row[o] < end ? p.out_row[o] + 1 : end;
    for (int32_t row = begin; row < given; ++row) p.survivor[row] = row;
    int32_t last = given - 1, after = given;
    for (int32_t row = given; row < end && o < outs && p.out_row[o] == last; ++row) {
      if (p.parent[row] != last || p.token[row] != p.next[o]) continue;
      p.survivor[after++] = last = row;
      while (o < outs && p.out_row[o] < row) ++o;
    }
    p.accepted[s] = after - begin;
  }
}
void verify(const VerifyArgs& a, const cuda::Launch& l) {
  const VerifyPointers p{.next = l.ptr<int32_t>(kVerifyNext),
                         .accepted = l.ptr<int32_t>(kVerifyAccepted),
                         .survivor = l.ptr<int32_t>(kVerifySurvivor),
                         .told = l.ptr<int32_t>(kVerifyTold),
                         .live = l.ptr<const uint32_t>(kVerifyLive),
                         .out_row = l.ptr<const int32_t>(kVerifyOutRow),
                         .seq_row = l.ptr<const int32_t>(kVerifySeqRow),
                         .token = l.ptr<const int32_t>(kVerifyToken),
                         .parent = l.ptr<const int32_t>(kVerifyParent)};
  l(&verify_kernel, {.blocks = {1}, .threads = {kThreads}}, a, p);
}

struct AdvanceArgs {
  uint32_t entries, words, moves, out_rows;
  uint32_t survivors, padding;  // the first word for them, or 0
};
struct AdvancePointers {
  const int32_t *told, *next;  // next: tokens, whatever was told
  uint32_t *outbox, *count;
  const uint32_t* live;
  const int32_t *accepted, *survivor, *slot;
  int32_t *token, *pos, *place, *kv_len;
};
__global__ void advance_kernel(AdvanceArgs a, AdvancePointers p) {
  cuda::wait();
  const uint32_t live = p.live[sdk::kLiveRows], seqs = p.live[sdk::kLiveSeqs], outs = p.live[sdk::kLiveOutRows];
  const uint32_t count = *p.count;
  uint32_t* entry = p.outbox + size_t{count % a.entries} * a.words;
  for (uint32_t i = threadIdx.x; i < outs; i += blockDim.x) entry[1 + i] = static_cast<uint32_t>(p.told[i]);
  for (uint32_t i = threadIdx.x; i < seqs; i += blockDim.x) {
    entry[1 + a.out_rows + i] = static_cast<uint32_t>(p.accepted[i]);
  }
  for (uint32_t r = threadIdx.x; a.survivors != 0 && r < live; r += blockDim.x) {
    entry[a.survivors + r] = static_cast<uint32_t>(p.survivor[r]);
  }
  if (a.moves != 0) {
    for (uint32_t s = threadIdx.x; s < seqs; s += blockDim.x) {
      const uint32_t rows = live / seqs, first = s * rows;
      const int32_t accepted = p.accepted[s];
      const uint32_t last = first + accepted - 1;
      p.token[first] = p.told[last] < 0 ? 0 : p.next[last];
      p.kv_len[p.slot[first]] += accepted;
      for (uint32_t r = first; r < first + rows; ++r) {
        p.pos[r] += accepted;
        p.place[r] += accepted;
      }
    }
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  *p.count = count + 1;
  *static_cast<volatile uint32_t*>(entry) = count + 1;
}
enum AdvanceOperand {
  kAdvanceTold,
  kAdvanceOutbox,
  kAdvanceCount,
  kAdvanceLive,
  kAdvanceAccepted,
  kAdvanceSlot,
  kAdvanceToken,
  kAdvancePos,
  kAdvanceKvLen,
  kAdvanceSurvivor,
  kAdvancePlace,
  kAdvanceNext,
  kAdvanceOperands
};
void advance(const AdvanceArgs& a, const cuda::Launch& l) {
  const AdvancePointers p{.told = l.ptr<const int32_t>(kAdvanceTold),
                          .next = l.ptr<const int32_t>(kAdvanceNext),
                          .outbox = l.ptr<uint32_t>(kAdvanceOutbox),
                          .count = l.ptr<uint32_t>(kAdvanceCount),
                          .live = l.ptr<const uint32_t>(kAdvanceLive),
                          .accepted = l.ptr<const int32_t>(kAdvanceAccepted),
                          .survivor = l.ptr<const int32_t>(kAdvanceSurvivor),
                          .slot = l.ptr<const int32_t>(kAdvanceSlot),
                          .token = l.ptr<int32_t>(kAdvanceToken),
                          .pos = l.ptr<int32_t>(kAdvancePos),
                          .place = l.ptr<int32_t>(kAdvancePlace),
                          .kv_len = l.ptr<int32_t>(kAdvanceKvLen)};
  l(&advance_kernel, {.blocks = {1}, .threads = {kThreads}}, a, p);
}

// ---- take -------------------------------------------------------------------------------------------------------------
struct TakeArgs {
  uint32_t rows;
};
struct TakePointers {
  const uint32_t* live;
  const int32_t *told, *next, *from;
  int32_t* token;
};
__global__ void take_kernel(TakeArgs a, TakePointers p) {
  cuda::wait();
  const uint32_t rows = min(p.live[sdk::kLiveRows], a.rows);
  for (uint32_t r = blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += gridDim.x * blockDim.x) {
    if (const int32_t from = p.from[r]; from >= 0) p.token[r] = p.told[from] < 0 ? 0 : p.next[from];
  }
}
enum TakeOperand { kTakeLive, kTakeTold, kTakeNext, kTakeFrom, kTakeToken, kTakeOperands };
void take(const TakeArgs& a, const cuda::Launch& l) {
  const TakePointers p{.live = l.ptr<const uint32_t>(kTakeLive),
                       .told = l.ptr<const int32_t>(kTakeTold),
                       .next = l.ptr<const int32_t>(kTakeNext),
                       .from = l.ptr<const int32_t>(kTakeFrom),
                       .token = l.ptr<int32_t>(kTakeToken)};
  l(&take_kernel, {.blocks = {(a.rows + kThreads - 1) / kThreads}, .threads = {kThreads}}, a, p);
}

// A choice that is no token becomes 0: what is proposed is verified, whatever it is.
struct DraftPassArgs {
  uint32_t pass, rows_per_seq, vocab, padding;
};
struct DraftPassPointers {
  const int32_t* next;
  int32_t* step_token;
  const uint32_t* step_live;
  const int32_t *step_pos, *step_slot, *step_kv_len;
  uint32_t* live;
  int32_t *token, *pos, *slot, *parent, *seq_row, *kv_len, *out_row;
  uint32_t* choice_live;
  int32_t* choice_row;
};
__global__ void draft_pass_kernel(DraftPassArgs a, DraftPassPointers p) {
  cuda::wait();
  const uint32_t seqs = p.step_live[sdk::kLiveSeqs];
  for (uint32_t s = threadIdx.x; s < seqs; s += blockDim.x) {
    const uint32_t row = s * a.rows_per_seq + a.pass;
    const int32_t slot = p.step_slot[row];
    if (a.pass > 0) p.step_token[row] = static_cast<uint32_t>(p.next[s]) < a.vocab ? p.next[s] : 0;
    p.token[s] = p.step_token[row];
    p.pos[s] = p.step_pos[row];
    p.slot[s] = slot;
    p.parent[s] = -1;
    p.choice_row[s] = static_cast<int32_t>(row);
    p.seq_row[s] = p.out_row[s] = static_cast<int32_t>(s);
    p.kv_len[slot] = p.step_kv_len[slot] + static_cast<int32_t>(a.pass);
  }
  if (threadIdx.x != 0) return;
  p.seq_row[seqs] = static_cast<int32_t>(seqs);
  for (uint32_t i = 0; i < 3; ++i) {
    p.live[i] = seqs;
    p.choice_live[i] = i == sdk::kLiveRows ? p.step_live[sdk::kLiveRows] : seqs;
  }
}
void draft_pass(const DraftPassArgs& a, const cuda::Launch& l) {
  const DraftPassPointers p{.next = l.ptr<const int32_t>(sdk::kPassNext),
                            .step_token = l.ptr<int32_t>(sdk::kPassStepToken),
                            .step_live = l.ptr<const uint32_t>(sdk::kPassStepLive),
                            .step_pos = l.ptr<const int32_t>(sdk::kPassStepPos),
                            .step_slot = l.ptr<const int32_t>(sdk::kPassStepSlot),
                            .step_kv_len = l.ptr<const int32_t>(sdk::kPassStepKvLen),
                            .live = l.ptr<uint32_t>(sdk::kPassLive),
                            .token = l.ptr<int32_t>(sdk::kPassToken),
                            .pos = l.ptr<int32_t>(sdk::kPassPos),
                            .slot = l.ptr<int32_t>(sdk::kPassSlot),
                            .parent = l.ptr<int32_t>(sdk::kPassParent),
                            .seq_row = l.ptr<int32_t>(sdk::kPassSeqRow),
                            .kv_len = l.ptr<int32_t>(sdk::kPassKvLen),
                            .out_row = l.ptr<int32_t>(sdk::kPassOutRow),
                            .choice_live = l.ptr<uint32_t>(sdk::kPassChoiceLive),
                            .choice_row = l.ptr<int32_t>(sdk::kPassChoiceRow)};
  l(&draft_pass_kernel, {.blocks = {1}, .threads = {kThreads}}, a, p);
}

void record_gather(tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  const tenon_tensor from = rec.describe(x);
  const std::vector<tenon_operand> operands = sdk::gather_operands(x, y, rec);
  cuda::emit<&gather>(rec, {.name = "gather", .operands = operands, .chunks = {}},
                      GatherArgs{from.dim[1], rec.floats_of_row(x), rec.floats_of_row(y), rec.bounds().out_rows, 0});
}

void record_pool(tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  const tenon_tensor from = rec.describe(x);
  const std::vector<tenon_operand> operands = sdk::pool_operands(x, y, rec);
  cuda::emit<&pool>(rec, {.name = "pool", .operands = operands, .chunks = {}},
                    PoolSizes{{from.dim[1], rec.floats_of_row(x)}, rec.bounds().seqs, 0});
}

void record_verify(const sdk::VerifyOp& op, tenon_tid next, tenon_tid accepted, sdk::Recorder& rec) {
  const std::vector<tenon_operand> operands = sdk::verify_operands(op, next, accepted, rec);
  cuda::emit<&verify>(rec, {.name = "verify", .operands = operands, .chunks = {}},
                      VerifyArgs{rec.bounds().seqs, static_cast<uint32_t>(rec.describe(op.logits()).dim[1])});
}

void record_advance(const sdk::AdvanceOp& op, tenon_tid told, tenon_tid outbox, sdk::Recorder& rec) {
  const std::vector<tenon_operand> operands =
      sdk::operands_by(kAdvanceOperands, {{kAdvanceTold, told, TENON_READ},
                                          {kAdvanceOutbox, outbox, TENON_WRITE},
                                          {kAdvanceCount, op.count, TENON_READ | TENON_WRITE},
                                          {kAdvanceLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                          {kAdvanceAccepted, rec.step(TENON_STEP_ACCEPTED), TENON_READ},
                                          {kAdvanceSlot, rec.step(TENON_STEP_SLOT), TENON_READ},
                                          {kAdvanceToken, rec.step(TENON_STEP_TOKEN), TENON_READ | TENON_WRITE},
                                          {kAdvancePos, rec.step(TENON_STEP_POS), TENON_READ | TENON_WRITE},
                                          {kAdvanceKvLen, rec.step(TENON_STEP_KV_LEN), TENON_READ | TENON_WRITE},
                                          {kAdvanceSurvivor, rec.step(TENON_STEP_SURVIVOR), TENON_READ},
                                          {kAdvancePlace, rec.step(TENON_STEP_PLACE), TENON_READ | TENON_WRITE},
                                          {kAdvanceNext, rec.step(TENON_STEP_NEXT), TENON_READ}});
  const auto out_rows = static_cast<uint32_t>(rec.describe(told).dim[0]);
  cuda::emit<&advance>(rec, {.name = "advance", .operands = operands, .chunks = {}},
                       AdvanceArgs{.entries = op.entries,
                                   .words = op.entry_words,
                                   .moves = op.moves_on ? 1U : 0U,
                                   .out_rows = out_rows,
                                   .survivors = op.first_survivor,
                                   .padding = 0});
}

void record_take(tenon_tid told, tenon_tid from, tenon_tid token, sdk::Recorder& rec) {
  const std::vector<tenon_operand> operands =
      sdk::operands_by(kTakeOperands, {{kTakeLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                       {kTakeTold, told, TENON_READ},
                                       {kTakeNext, rec.step(TENON_STEP_NEXT), TENON_READ},
                                       {kTakeFrom, from, TENON_READ},
                                       {kTakeToken, token, TENON_READ | TENON_WRITE}});
  cuda::emit<&take>(rec, {.name = "take", .operands = operands, .chunks = {}}, TakeArgs{rec.bounds().rows});
}

}  // namespace

uint32_t built_arch() {
  cudaFuncAttributes attributes{};
  TENON_CUDA_CHECK(cudaFuncGetAttributes(&attributes, &gather_kernel));
  return static_cast<uint32_t>(attributes.ptxVersion);
}

void record_draft_pass(const sdk::DraftPass& longer, sdk::Recorder& rec) {
  const tenon_draft_pass& to = longer.pass;
  const std::vector<tenon_operand> operands = sdk::draft_pass_operands(to, rec);
  cuda::emit<&draft_pass>(rec, {.name = "draft_pass", .operands = operands, .chunks = {}},
                          DraftPassArgs{to.pass, to.rows_per_seq, longer.tokens(), 0});
}

void record_step_op(const sdk::VerifyOp& verify, tenon_tid x, tenon_tid y, sdk::Recorder& recorder) {
  const tenon_fop& op = verify.op;
  switch (op.id) {
    case TENON_F_GATHER_ROWS:
      return record_gather(x, y, recorder);
    case TENON_F_POOL:
      return record_pool(x, y, recorder);
    case TENON_F_MASK:
      return record_mask(sdk::MaskOp(op), x, y, recorder);
    case TENON_F_VERIFY:
      record_verify(verify, x, y, recorder);
      return sdk::record_by_op(verify.all_left(),
                               [&](auto left, bool first) { record_tell(verify, left, first, recorder); });
    case TENON_F_ADVANCE:
      return record_advance(sdk::AdvanceOp::of(op), x, y, recorder);
    case TENON_F_TAKE:
      return record_take(op.t[0], x, y, recorder);
    default:
      throw sdk::Refused("device.cuda has no op of the step for id " + std::to_string(op.id));
  }
}

}  // namespace tenon::cuda_device
