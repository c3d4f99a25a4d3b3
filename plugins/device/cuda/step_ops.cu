#include <algorithm>

#include "step_ops.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/told.h"

namespace tenon::cuda_device {
namespace {

constexpr uint32_t kThreads = 256;

struct GatherArgs {
  int64_t columns, x_stride, y_stride;
  uint32_t rows, padding;
};
__global__ void gather_kernel(GatherArgs a, const float* x, float* y, const uint32_t* live, const int32_t* out_row) {
  cuda::wait();
  if (blockIdx.y >= min(live[2], a.rows)) return;
  const float* from = x + out_row[blockIdx.y] * a.x_stride;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.columns; i += gridDim.x * blockDim.x) {
    y[blockIdx.y * a.y_stride + i] = from[i];
  }
}
void gather(const GatherArgs& a, const cuda::Launch& l) {
  const auto wide = static_cast<uint32_t>((a.columns + kThreads - 1) / kThreads);
  l(&gather_kernel, {.blocks = {std::min(wide, 64u), a.rows}, .threads = {kThreads}}, a, l.ptr<const float>(0),
    l.ptr<float>(1), l.ptr<const uint32_t>(2), l.ptr<const int32_t>(3));
}

// The rows up to the first whose logits are wanted are given. From there on the first child whose token is the one chosen
// for its parent survives; children stand after their parents, so one pass over the rows finds the path.
struct VerifyArgs {
  uint32_t seqs, padding;
};
struct VerifyPointers {
  const int32_t* next;
  int32_t *accepted, *survivor, *told;
  const uint32_t* live;
  const int32_t *out_row, *seq_row, *token, *parent;
};
__global__ void verify_kernel(VerifyPointers p) {
  cuda::wait();
  const uint32_t seqs = p.live[1], outs = p.live[2];
  for (uint32_t o = threadIdx.x; o < outs; o += blockDim.x) p.told[o] = p.next[o];
  for (uint32_t s = threadIdx.x; s < seqs; s += blockDim.x) {
    const int32_t begin = p.seq_row[s], end = p.seq_row[s + 1];
    uint32_t o = 0;
    while (o < outs && p.out_row[o] < begin) ++o;
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
void verify(const VerifyArgs&, const cuda::Launch& l) {
  l(&verify_kernel, {.blocks = {1}, .threads = {kThreads}},
    VerifyPointers{l.ptr<const int32_t>(0), l.ptr<int32_t>(1), l.ptr<int32_t>(7), l.ptr<int32_t>(8),
                   l.ptr<const uint32_t>(2), l.ptr<const int32_t>(3), l.ptr<const int32_t>(4), l.ptr<const int32_t>(5),
                   l.ptr<const int32_t>(6)});
}

// Of a row whose numbers are not finite, the host is told so in the place of its token, which verify_kernel wrote. The
// blocks of a row look at a share each; whoever finds something says so, and the lower number is the one that stays.
struct TellArgs {
  int64_t vocab, stride;  // of the logits
  uint32_t out_rows, padding;
  sdk::AllLeft left;
};
struct TellPointers {
  const float* logits;
  int32_t* told;
  const uint32_t* live;
  const float* left[sdk::kMostLeft];
  const int32_t* count[sdk::kMostLeft];  // nullptr: all columns
};
constexpr uint32_t kTellUnroll = 8;
__global__ void tell_kernel(TellArgs a, TellPointers p) {
  cuda::wait();
  const uint32_t row = blockIdx.y;
  if (row >= min(p.live[2], a.out_rows)) return;
  const int64_t first = blockIdx.x * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  bool no_logits = false, no_candidates = false;
  const float* logits = p.logits + row * a.stride;
#pragma unroll kTellUnroll
  for (int64_t i = first; i < a.vocab; i += step) no_logits |= sdk::no_logit(logits[i]);
#pragma unroll
  for (uint32_t l = 0; l < sdk::kMostLeft; ++l) {
    if (l >= a.left.n) break;
    const float* left = p.left[l] + row * a.left.of[l].stride;
    const int64_t entries = p.count[l] != nullptr ? p.count[l][row] : a.left.of[l].columns;
#pragma unroll kTellUnroll
    for (int64_t i = first; i < entries; i += step) no_candidates |= sdk::no_candidate(left[i]);
  }
  if (no_logits) {
    atomicMin(p.told + row, sdk::kNoLogits);
  } else if (no_candidates) {
    atomicMin(p.told + row, sdk::kNoCandidates);
  }
}
void tell(const TellArgs& a, const cuda::Launch& l) {
  TellPointers p{l.ptr<const float>(0), l.ptr<int32_t>(1), l.ptr<const uint32_t>(2), {}, {}};
  for (uint32_t i = 0; i < a.left.n; ++i) {
    const sdk::LeftRows& left = a.left.of[i];
    p.left[i] = l.ptr<const float>(left.operand);
    p.count[i] = left.counted != 0 ? l.ptr<const int32_t>(left.operand + 1) : nullptr;
  }
  const auto share = int64_t{kThreads} * kTellUnroll;
  const auto wide = static_cast<uint32_t>((a.vocab + share - 1) / share);
  l(&tell_kernel, {.blocks = {std::min(wide, 64u), a.out_rows}, .threads = {kThreads}}, a, p);
}

struct AdvanceArgs {
  uint32_t entries, words, moves, out_rows;
  uint32_t survivors, padding;  // the first word for them, or 0
};
struct AdvancePointers {
  const int32_t* next;
  uint32_t *outbox, *count;
  const uint32_t* live;
  const int32_t *accepted, *survivor, *slot;
  int32_t *token, *pos, *place, *kv_len;
};
__global__ void advance_kernel(AdvanceArgs a, AdvancePointers p) {
  cuda::wait();
  const uint32_t live = p.live[0], seqs = p.live[1], outs = p.live[2], count = *p.count;
  uint32_t* entry = p.outbox + size_t{count % a.entries} * a.words;
  for (uint32_t i = threadIdx.x; i < outs; i += blockDim.x) entry[1 + i] = static_cast<uint32_t>(p.next[i]);
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
      p.token[first] = max(p.next[first + accepted - 1], 0);
      p.kv_len[p.slot[first]] += accepted;
      for (uint32_t r = first; r < first + rows; ++r) p.pos[r] += accepted, p.place[r] += accepted;
    }
  }
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  *p.count = count + 1;
  *static_cast<volatile uint32_t*>(entry) = count + 1;
}
void advance(const AdvanceArgs& a, const cuda::Launch& l) {
  l(&advance_kernel, {.blocks = {1}, .threads = {kThreads}}, a,
    AdvancePointers{l.ptr<const int32_t>(0), l.ptr<uint32_t>(1), l.ptr<uint32_t>(2), l.ptr<const uint32_t>(3),
                    l.ptr<const int32_t>(4), l.ptr<const int32_t>(9), l.ptr<const int32_t>(5), l.ptr<int32_t>(6),
                    l.ptr<int32_t>(7), l.ptr<int32_t>(10), l.ptr<int32_t>(8)});
}

struct DraftPassArgs {
  uint32_t pass, rows_per_seq;
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
  const uint32_t seqs = p.step_live[1];
  for (uint32_t s = threadIdx.x; s < seqs; s += blockDim.x) {
    const uint32_t row = s * a.rows_per_seq + a.pass;
    const int32_t slot = p.step_slot[row];
    if (a.pass > 0) p.step_token[row] = p.next[s];
    p.token[s] = p.step_token[row], p.pos[s] = p.step_pos[row], p.slot[s] = slot;
    p.parent[s] = -1, p.choice_row[s] = static_cast<int32_t>(row);
    p.seq_row[s] = p.out_row[s] = static_cast<int32_t>(s);
    p.kv_len[slot] = p.step_kv_len[slot] + static_cast<int32_t>(a.pass);
  }
  if (threadIdx.x != 0) return;
  p.seq_row[seqs] = static_cast<int32_t>(seqs);
  for (uint32_t i = 0; i < 3; ++i) {
    p.live[i] = seqs;
    p.choice_live[i] = i == 0 ? p.step_live[0] : seqs;
  }
}
void draft_pass(const DraftPassArgs& a, const cuda::Launch& l) {
  size_t i = 0;
  const auto i32 = [&] { return l.ptr<int32_t>(i++); };
  const auto u32 = [&] { return l.ptr<uint32_t>(i++); };
  // In the order of the operands.
  const DraftPassPointers p{i32(), i32(), u32(), i32(), i32(), i32(), u32(), i32(),
                            i32(), i32(), i32(), i32(), i32(), i32(), u32(), i32()};
  l(&draft_pass_kernel, {.blocks = {1}, .threads = {kThreads}}, a, p);
}

using Operands = std::vector<tenon_operand>;

void record_gather(tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  const Operands operands = {{x, TENON_READ},
                             {y, TENON_WRITE},
                             {rec.step(TENON_STEP_LIVE), TENON_READ},
                             {rec.step(TENON_STEP_OUT_ROW), TENON_READ}};
  cuda::emit<&gather>(rec, {.name = "gather", .operands = operands, .chunks = {}},
                      GatherArgs{from.dim[1], from.stride[0] / 4, to.stride[0] / 4, rec.bounds().out_rows, 0});
}

void record_verify(tenon_tid next, tenon_tid accepted, tenon_tid told, sdk::Recorder& rec) {
  const Operands operands = {{next, TENON_READ},
                             {accepted, TENON_WRITE},
                             {rec.step(TENON_STEP_LIVE), TENON_READ},
                             {rec.step(TENON_STEP_OUT_ROW), TENON_READ},
                             {rec.step(TENON_STEP_SEQ_ROW), TENON_READ},
                             {rec.step(TENON_STEP_TOKEN), TENON_READ},
                             {rec.step(TENON_STEP_PARENT), TENON_READ},
                             {rec.step(TENON_STEP_SURVIVOR), TENON_WRITE},
                             {told, TENON_WRITE}};
  cuda::emit<&verify>(rec, {.name = "verify", .operands = operands, .chunks = {}}, VerifyArgs{rec.bounds().seqs, 0});
}

// op: TENON_F_VERIFY.
void record_tell(const tenon_fop& op, sdk::Recorder& rec) {
  const tenon_tensor logits = rec.describe(op.t[0]);
  Operands operands = {
      {op.t[0], TENON_READ}, {op.t[3], TENON_READ | TENON_WRITE}, {rec.step(TENON_STEP_LIVE), TENON_READ}};
  const sdk::AllLeft left = sdk::add_left(op, rec, operands);
  cuda::emit<&tell>(rec, {.name = "tell", .operands = operands, .chunks = {}},
                    TellArgs{logits.dim[1], logits.stride[0] / 4, rec.bounds().out_rows, 0, left});
}

void record_advance(const tenon_fop& op, tenon_tid next, tenon_tid outbox, sdk::Recorder& rec) {
  const Operands operands = {{next, TENON_READ},
                             {outbox, TENON_WRITE},
                             {op.t[0], TENON_READ | TENON_WRITE},
                             {rec.step(TENON_STEP_LIVE), TENON_READ},
                             {rec.step(TENON_STEP_ACCEPTED), TENON_READ},
                             {rec.step(TENON_STEP_SLOT), TENON_READ},
                             {rec.step(TENON_STEP_TOKEN), TENON_READ | TENON_WRITE},
                             {rec.step(TENON_STEP_POS), TENON_READ | TENON_WRITE},
                             {rec.step(TENON_STEP_KV_LEN), TENON_READ | TENON_WRITE},
                             {rec.step(TENON_STEP_SURVIVOR), TENON_READ},
                             {rec.step(TENON_STEP_PLACE), TENON_READ | TENON_WRITE}};
  const auto out_rows = static_cast<uint32_t>(rec.describe(next).dim[0]);
  cuda::emit<&advance>(rec, {.name = "advance", .operands = operands, .chunks = {}},
                       AdvanceArgs{static_cast<uint32_t>(op.i[0]), static_cast<uint32_t>(op.i[1]),
                                   static_cast<uint32_t>(op.i[2]), out_rows, static_cast<uint32_t>(op.i[3]), 0});
}

}  // namespace

uint32_t built_arch() {
  cudaFuncAttributes attributes{};
  TENON_CUDA_CHECK(cudaFuncGetAttributes(&attributes, &gather_kernel));
  return static_cast<uint32_t>(attributes.ptxVersion);
}

void record_draft_pass(const tenon_draft_pass& to, sdk::Recorder& rec) {
  Operands operands = {{to.next, TENON_READ}, {rec.step(TENON_STEP_TOKEN), TENON_READ | TENON_WRITE}};
  for (const uint32_t role : {TENON_STEP_LIVE, TENON_STEP_POS, TENON_STEP_SLOT, TENON_STEP_KV_LEN}) {
    operands.push_back({rec.step(role), TENON_READ});
  }
  for (const tenon_tid t : {to.live, to.token, to.pos, to.slot, to.parent, to.seq_row, to.kv_len, to.out_row,
                            to.choice_live, to.choice_row}) {
    operands.push_back({t, TENON_WRITE});
  }
  cuda::emit<&draft_pass>(rec, {.name = "draft_pass", .operands = operands, .chunks = {}},
                          DraftPassArgs{to.pass, to.rows_per_seq});
}

void record_step_op(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& recorder) {
  switch (op.id) {
    case TENON_F_GATHER_ROWS:
      return record_gather(x, y, recorder);
    case TENON_F_VERIFY:
      record_verify(x, y, op.t[3], recorder);
      return record_tell(op, recorder);
    case TENON_F_ADVANCE:
      return record_advance(op, x, y, recorder);
    default:
      throw sdk::Refused("device.cuda has no op of the step for id " + std::to_string(op.id));
  }
}

}  // namespace tenon::cuda_device
