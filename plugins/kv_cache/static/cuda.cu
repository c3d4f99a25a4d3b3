#include <algorithm>

#include "ops.h"
#include "plugin.h"
#include "tenon/cuda/error.h"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::static_cache {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMostRowBlocks = 4096;  // further rows are taken in turns

struct AppendPointers {
  const char *k, *v;
  void *keys, *values;
  const int32_t* pages;
  const uint32_t* live;
  const int32_t *pos, *slot;
};

// A thread writes two elements of a row's K or V, or one if a head has an odd number.
template <class K, class V>
__global__ void append_kernel(AppendArgs a, AppendPointers p) {
  cuda::wait();
  const uint32_t live = min(*p.live, a.rows), step = (a.kv.k.dim | a.kv.v.dim) % 2 == 0 ? 2 : 1;
  const uint32_t k_columns = a.kv.heads * a.kv.k.dim, columns = k_columns + a.kv.heads * a.kv.v.dim;
  const uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * step;
  if (at >= columns) return;
  const bool is_key = at < k_columns;
  const cuda::KvPlane& plane = is_key ? a.kv.k : a.kv.v;
  const uint32_t column = is_key ? at : at - k_columns, head = column / plane.dim, d = column % plane.dim;
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    const int32_t slot = p.slot[row], pos = p.pos[row];
    if (slot < 0 || pos < 0 || static_cast<uint32_t>(pos) >= a.capacity) continue;
    char* to = cuda::KvRows(a.kv, plane, is_key ? p.keys : p.values, p.pages, static_cast<uint32_t>(slot), head)
                   .at(static_cast<uint32_t>(pos));
    if (to == nullptr) continue;
    const auto* from = reinterpret_cast<const float*>(is_key ? p.k + row * a.k_row : p.v + row * a.v_row) + column;
    for (uint32_t i = 0; i < step; ++i) {
      if (is_key) {
        reinterpret_cast<K*>(to)[d + i] = cuda::from_float<K>(from[i]);
      } else {
        reinterpret_cast<V*>(to)[d + i] = cuda::from_float<V>(from[i]);
      }
    }
  }
}

void append_op(const AppendArgs& a, const cuda::Launch& l) {
  const uint32_t columns = a.kv.heads * (a.kv.k.dim + a.kv.v.dim);
  cuda::with_element(a.kv.k.codec, [&]<class E>(E) {
    l(&append_kernel<E, E>,
      {.blocks = {(columns + kThreads - 1) / kThreads, std::min(a.rows, kMostRowBlocks)}, .threads = {kThreads}}, a,
      AppendPointers{l.ptr<const char>(kAppendK), l.ptr<const char>(kAppendV), l.ptr<void>(kAppendKeys),
                     l.ptr<void>(kAppendValues), l.ptr<const int32_t>(kAppendPages), l.ptr<const uint32_t>(kAppendLive),
                     l.ptr<const int32_t>(kAppendPos), l.ptr<const int32_t>(kAppendSlot)});
  });
}

struct DequantPointers {
  void *from_k, *from_v, *to_k, *to_v;
  const int32_t* pages;
  const uint32_t* live;
  const int32_t *seq_slot, *seq_row, *kv_len;
};

// A block takes kDequantTokens tokens of one head of one sequence.
template <class From, class To>
__global__ void dequant_kernel(DequantArgs a, DequantPointers p) {
  cuda::wait();
  const uint32_t seq = blockIdx.z, head = blockIdx.y;
  if (seq >= p.live[1] || p.seq_slot[seq] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[seq]);
  const auto length = static_cast<uint32_t>(p.kv_len[slot] + p.seq_row[seq + 1] - p.seq_row[seq]);
  const uint32_t begin = blockIdx.x * kDequantTokens, end = min(min(length, a.tokens), begin + kDequantTokens);
  for (const bool v : {false, true}) {
    const cuda::KvRows from(a.from, v ? a.from.v : a.from.k, v ? p.from_v : p.from_k, p.pages, slot, head);
    const cuda::KvRows to(a.to, v ? a.to.v : a.to.k, v ? p.to_v : p.to_k, p.pages, slot, head);
    const uint32_t dim = v ? a.from.v.dim : a.from.k.dim;
    for (uint32_t t = begin + threadIdx.x / 32; t < end; t += blockDim.x / 32) {
      const auto* in = reinterpret_cast<const From*>(from.at(t));
      auto* out = reinterpret_cast<To*>(to.at(t));
      for (uint32_t d = threadIdx.x % 32; d < dim; d += 32) out[d] = cuda::from_float<To>(cuda::to_float(in[d]));
    }
  }
}

void dequant_op(const DequantArgs& a, const cuda::Launch& l) {
  cuda::with_element(a.from.k.codec, [&]<class From>(From) {
    cuda::with_element(a.to.k.codec, [&]<class To>(To) {
      l(&dequant_kernel<From, To>, {.blocks = {dequant_blocks(a), a.from.heads, a.seqs}, .threads = {kThreads}}, a,
        DequantPointers{l.ptr<void>(kFromK), l.ptr<void>(kFromV), l.ptr<void>(kToK), l.ptr<void>(kToV),
                        l.ptr<const int32_t>(kPages), l.ptr<const uint32_t>(kLive), l.ptr<const int32_t>(kSeqSlot),
                        l.ptr<const int32_t>(kSeqRow), l.ptr<const int32_t>(kKvLen)});
    });
  });
}

}  // namespace

void emit_append(sdk::Recorder& r, std::span<const tenon_operand> operands, const tenon_cost& cost,
                 const AppendArgs& args) {
  cuda::emit<append_op>(r, {.name = "append", .operands = operands, .chunks = {}, .cost = cost}, args);
}

void emit_dequant(sdk::Recorder& r, std::span<const tenon_operand> operands, const tenon_cost& cost,
                  const DequantArgs& args) {
  cuda::emit<dequant_op>(r, {.name = "dequant", .operands = operands, .chunks = {}, .cost = cost}, args);
}

void copy(const Copy& c, void* queue) {
  const auto stream = static_cast<cudaStream_t>(queue);
  if (c.pieces == 1) {
    TENON_CUDA_CHECK(cudaMemcpyAsync(c.to, c.from, c.bytes, cudaMemcpyDefault, stream));
  } else {
    TENON_CUDA_CHECK(
        cudaMemcpy2DAsync(c.to, c.to_pitch, c.from, c.from_pitch, c.bytes, c.pieces, cudaMemcpyDefault, stream));
  }
  if (queue == nullptr) finish(queue);
}

void finish(void* queue) {
  TENON_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(queue)));
}

}  // namespace tenon::static_cache

TENON_PLUGIN(tenon::static_cache::StaticCache);
