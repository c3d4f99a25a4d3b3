#include <algorithm>

#include "small_ops.h"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::cuda_device {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostRowBlocks = 4096;  // further rows are taken in turns

// Operands of every row op: 0 x, 1 y, 2 live, then its own.
struct RowArgs {
  int64_t columns, x_stride, y_stride;  // elements
  float value;
  int32_t rotated, pairing, q_heads, kv_heads, head_dim;
  int64_t other_stride;
  uint32_t rows, padding;
};

struct RowPointers {
  const float* x;
  float* y;
  const uint32_t* live;
  const float* first;  // weight, bias, addend, table
  const void* second;  // k weight, positions
};

RowPointers pointers(const cuda::Launch& l, size_t own) {
  return {l.ptr<const float>(0), l.ptr<float>(1), l.ptr<const uint32_t>(2), own > 0 ? l.ptr<const float>(3) : nullptr,
          own > 1 ? l.ptr<const void>(4) : nullptr};
}

// f(row, column, x) for every element that a thread is to make.
template <class F>
__device__ void each_element(const RowArgs& a, const RowPointers& p, int64_t columns, F f) {
  cuda::wait();
  const uint32_t live = min(*p.live, a.rows);
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < columns; i += stride) {
      f(row, i, p.x + row * a.x_stride);
    }
  }
}

__global__ void bias_kernel(RowArgs a, RowPointers p) {
  each_element(a, p, a.columns,
               [&](uint32_t r, int64_t i, const float* x) { p.y[r * a.y_stride + i] = x[i] + p.first[i]; });
}
__global__ void add_kernel(RowArgs a, RowPointers p) {
  each_element(a, p, a.columns, [&](uint32_t r, int64_t i, const float* x) {
    p.y[r * a.y_stride + i] = x[i] + p.first[r * a.other_stride + i];
  });
}
__global__ void silu_mul_kernel(RowArgs a, RowPointers p) {
  const int64_t n = a.columns / 2;
  each_element(a, p, n, [&](uint32_t r, int64_t i, const float* x) {
    p.y[r * a.y_stride + i] = x[i] / (1.0f + expf(-x[i])) * x[n + i];
  });
}
__global__ void softcap_kernel(RowArgs a, RowPointers p) {
  each_element(a, p, a.columns, [&](uint32_t r, int64_t i, const float* x) {
    p.y[r * a.y_stride + i] = a.value * tanhf(x[i] / a.value);
  });
}
// A thread turns one pair; what is no query or key is copied.
__global__ void rope_kernel(RowArgs a, RowPointers p) {
  const int32_t half = a.rotated / 2, pairs = a.head_dim - half;  // of a head: pairs that turn, then what stays
  const int64_t heads = a.q_heads + a.kv_heads, turned = heads * pairs;
  const int64_t rest = p.x == p.y ? 0 : a.columns - heads * a.head_dim;
  const auto* position = static_cast<const int32_t*>(p.second);
  each_element(a, p, turned + rest, [&](uint32_t r, int64_t i, const float* x) {
    float* y = p.y + r * a.y_stride;
    if (i >= turned) {
      const int64_t at = heads * a.head_dim + i - turned;
      y[at] = x[at];
      return;
    }
    const auto head = i / pairs, pair = i % pairs, base = head * a.head_dim;
    if (pair >= half) {
      y[base + half + pair] = x[base + half + pair];
      return;
    }
    const float* table = p.first + int64_t{position[r]} * a.rotated + 2 * pair;
    const int64_t u = base + (a.pairing == 0 ? pair : 2 * pair),
                  v = base + (a.pairing == 0 ? pair + half : 2 * pair + 1);
    const float first = x[u], second = x[v];
    y[u] = first * table[0] - second * table[1];
    y[v] = first * table[1] + second * table[0];
  });
}

__device__ float block_sum(float value) {
  __shared__ float part[kThreads / 32];
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(~0u, value, d);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (uint32_t w = 0; w < blockDim.x / 32; ++w) sum += part[w];
  __syncthreads();
  return sum;
}

// A block a row.
__global__ void rmsnorm_kernel(RowArgs a, RowPointers p) {
  cuda::wait();
  const uint32_t live = min(*p.live, a.rows);
  for (uint32_t r = blockIdx.y; r < live; r += gridDim.y) {
    const float* x = p.x + r * a.x_stride;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < a.columns; i += blockDim.x) sum += x[i] * x[i];
    const float scale = rsqrtf(block_sum(sum) / static_cast<float>(a.columns) + a.value);
    for (int64_t i = threadIdx.x; i < a.columns; i += blockDim.x) p.y[r * a.y_stride + i] = x[i] * scale * p.first[i];
  }
}

// A warp a head; the values are copied.
__global__ void qk_norm_kernel(RowArgs a, RowPointers p) {
  cuda::wait();
  const uint32_t live = min(*p.live, a.rows), lane = threadIdx.x % 32;
  const int32_t heads = a.q_heads + 2 * a.kv_heads;
  const auto first = static_cast<int32_t>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  for (uint32_t r = blockIdx.y; r < live; r += gridDim.y) {
    for (int32_t h = first; h < heads; h += static_cast<int32_t>(gridDim.x * blockDim.x / 32)) {
      const float* x = p.x + r * a.x_stride + int64_t{h} * a.head_dim;
      float* y = p.y + r * a.y_stride + int64_t{h} * a.head_dim;
      const bool normed = h < a.q_heads + a.kv_heads;
      const float* weight = h < a.q_heads ? p.first : static_cast<const float*>(p.second);
      float sum = 0;
      for (auto i = static_cast<int32_t>(lane); i < a.head_dim; i += 32) sum += x[i] * x[i];
      for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
      const float scale = rsqrtf(sum / static_cast<float>(a.head_dim) + a.value);
      for (auto i = static_cast<int32_t>(lane); i < a.head_dim; i += 32)
        y[i] = normed ? x[i] * scale * weight[i] : x[i];
    }
  }
}

using RowKernel = void (*)(RowArgs, RowPointers);
template <RowKernel Kernel, size_t kOwn, bool kWholeRow = false>
void run_rows(const RowArgs& a, const cuda::Launch& l) {
  const auto wide = static_cast<uint32_t>((a.columns + kThreads - 1) / kThreads);
  l(Kernel, {.blocks = {kWholeRow ? 1 : std::min(wide, 64u), std::min(a.rows, kMostRowBlocks)}, .threads = {kThreads}},
    a, pointers(l, kOwn));
}

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

// The rows up to the first whose logits are wanted are given; each row behind survives while its token is the one that
// was chosen for its parent.
struct VerifyArgs {
  uint32_t seqs, padding;
};
struct VerifyPointers {
  const int32_t* next;
  int32_t* accepted;
  const uint32_t* live;
  const int32_t *out_row, *seq_row, *token, *parent;
};
__global__ void verify_kernel(VerifyPointers p) {
  cuda::wait();
  const uint32_t seqs = p.live[1], outs = p.live[2];
  for (uint32_t s = threadIdx.x; s < seqs; s += blockDim.x) {
    const int32_t begin = p.seq_row[s], end = p.seq_row[s + 1];
    uint32_t o = 0;
    while (o < outs && p.out_row[o] < begin) ++o;
    int32_t row = o < outs && p.out_row[o] < end ? p.out_row[o] + 1 : end;
    while (row < end && o < outs && p.parent[row] == p.out_row[o] && p.token[row] == p.next[o]) ++row, ++o;
    p.accepted[s] = row - begin;
  }
}
void verify(const VerifyArgs&, const cuda::Launch& l) {
  l(&verify_kernel, {.blocks = {1}, .threads = {kThreads}},
    VerifyPointers{l.ptr<const int32_t>(0), l.ptr<int32_t>(1), l.ptr<const uint32_t>(2), l.ptr<const int32_t>(3),
                   l.ptr<const int32_t>(4), l.ptr<const int32_t>(5), l.ptr<const int32_t>(6)});
}

struct AdvanceArgs {
  uint32_t entries, words, moves, out_rows;
};
struct AdvancePointers {
  const int32_t* next;
  uint32_t *outbox, *count;
  const uint32_t* live;
  const int32_t *accepted, *slot;
  int32_t *token, *pos, *kv_len;
};
__global__ void advance_kernel(AdvanceArgs a, AdvancePointers p) {
  cuda::wait();
  const uint32_t live = p.live[0], seqs = p.live[1], outs = p.live[2], count = *p.count;
  uint32_t* entry = p.outbox + size_t{count % a.entries} * a.words;
  for (uint32_t i = threadIdx.x; i < outs; i += blockDim.x) entry[1 + i] = static_cast<uint32_t>(p.next[i]);
  for (uint32_t i = threadIdx.x; i < seqs; i += blockDim.x) {
    entry[1 + a.out_rows + i] = static_cast<uint32_t>(p.accepted[i]);
  }
  if (a.moves != 0) {
    for (uint32_t r = threadIdx.x; r < live; r += blockDim.x) {
      p.token[r] = p.next[r];
      p.kv_len[p.slot[r]] = ++p.pos[r];
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
                    l.ptr<const int32_t>(4), l.ptr<const int32_t>(5), l.ptr<int32_t>(6), l.ptr<int32_t>(7),
                    l.ptr<int32_t>(8)});
}

using Operands = std::vector<tenon_operand>;

void record_row_op(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  RowArgs a{};
  a.columns = from.dim[1], a.x_stride = from.stride[0] / 4, a.y_stride = to.stride[0] / 4;
  a.value = op.f[0], a.rows = static_cast<uint32_t>(from.dim[0]);
  Operands operands = {
      {x, TENON_READ}, {y, TENON_WRITE}, {op.t[3] != 0 ? op.t[3] : rec.step(TENON_STEP_LIVE), TENON_READ}};
  for (int i = 0; i < 3; ++i) {
    if (op.t[i] != 0) operands.push_back({op.t[i], TENON_READ});
  }
  const auto heads = [&] {
    a.rotated = op.i[0], a.pairing = op.i[1], a.q_heads = op.i[2], a.kv_heads = op.i[3];
    a.head_dim = static_cast<int32_t>(a.columns / (a.q_heads + 2 * a.kv_heads));
  };
  const auto emit = [&]<auto Fn>(const char* name) {
    sdk::OpSpec spec{.name = name, .operands = operands, .chunks = {}, .kind = op.id};
    spec.cost.read[1] = 4.0 * static_cast<double>(a.columns), spec.cost.written[1] = spec.cost.read[1];
    spec.cost.flops[1] = static_cast<double>(a.columns);
    cuda::emit<Fn>(rec, spec, a);
  };
  switch (op.id) {
    case TENON_F_RMSNORM:
      return emit.operator()<&run_rows<&rmsnorm_kernel, 1, true>>("rmsnorm");
    case TENON_F_BIAS:
      return emit.operator()<&run_rows<&bias_kernel, 1>>("bias");
    case TENON_F_ADD:
      a.other_stride = rec.describe(op.t[0]).stride[0] / 4;
      return emit.operator()<&run_rows<&add_kernel, 1>>("add");
    case TENON_F_SILU_MUL:
      return emit.operator()<&run_rows<&silu_mul_kernel, 0>>("silu_mul");
    case TENON_F_SOFTCAP:
      return emit.operator()<&run_rows<&softcap_kernel, 0>>("softcap");
    case TENON_F_QK_NORM:
      heads();
      return emit.operator()<&run_rows<&qk_norm_kernel, 2>>("qk_norm");
    case TENON_F_ROPE:
      heads();
      operands.push_back({rec.step(TENON_STEP_POS), TENON_READ});
      return emit.operator()<&run_rows<&rope_kernel, 2>>("rope");
    default:
      throw sdk::Refused("device.cuda has no op of its own for id " + std::to_string(op.id));
  }
}

void record_gather(tenon_tid x, tenon_tid y, sdk::Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  const Operands operands = {{x, TENON_READ},
                             {y, TENON_WRITE},
                             {rec.step(TENON_STEP_LIVE), TENON_READ},
                             {rec.step(TENON_STEP_OUT_ROW), TENON_READ}};
  cuda::emit<&gather>(rec, {.name = "gather", .operands = operands, .chunks = {}, .kind = TENON_F_GATHER_ROWS},
                      GatherArgs{from.dim[1], from.stride[0] / 4, to.stride[0] / 4, rec.bounds().out_rows, 0});
}

void record_verify(tenon_tid next, tenon_tid accepted, sdk::Recorder& rec) {
  const Operands operands = {{next, TENON_READ},
                             {accepted, TENON_WRITE},
                             {rec.step(TENON_STEP_LIVE), TENON_READ},
                             {rec.step(TENON_STEP_OUT_ROW), TENON_READ},
                             {rec.step(TENON_STEP_SEQ_ROW), TENON_READ},
                             {rec.step(TENON_STEP_TOKEN), TENON_READ},
                             {rec.step(TENON_STEP_PARENT), TENON_READ}};
  cuda::emit<&verify>(rec, {.name = "verify", .operands = operands, .chunks = {}, .kind = TENON_F_VERIFY},
                      VerifyArgs{rec.bounds().seqs, 0});
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
                             {rec.step(TENON_STEP_KV_LEN), TENON_READ | TENON_WRITE}};
  const auto out_rows = static_cast<uint32_t>(rec.describe(next).dim[0]);
  cuda::emit<&advance>(rec, {.name = "advance", .operands = operands, .chunks = {}, .kind = TENON_F_ADVANCE},
                       AdvanceArgs{static_cast<uint32_t>(op.i[0]), static_cast<uint32_t>(op.i[1]),
                                   static_cast<uint32_t>(op.i[2]), out_rows});
}

}  // namespace

uint32_t built_arch() {
  cudaFuncAttributes attributes{};
  TENON_CUDA_CHECK(cudaFuncGetAttributes(&attributes, &bias_kernel));
  return static_cast<uint32_t>(attributes.ptxVersion);
}

void record_small_op(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& recorder) {
  switch (op.id) {
    case TENON_F_GATHER_ROWS:
      return record_gather(x, y, recorder);
    case TENON_F_VERIFY:
      return record_verify(x, y, recorder);
    case TENON_F_ADVANCE:
      return record_advance(op, x, y, recorder);
    default:
      return record_row_op(op, x, y, recorder);
  }
}

}  // namespace tenon::cuda_device
