// Attention in f32 as the formula says it, over any cache with a reader: slow, exact, with every mask. An attention's
// way out for formats that its fast kernels do not read.
//
//   if (const std::string why = cuda::not_exact(a, format); !why.empty()) throw sdk::Refused(why);     in claim()
//   cuda::record_exact(a, call, recorder);                                                             in record()
#pragma once

#include <algorithm>
#include <string>

#include "tenon/abi/attention.h"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"

namespace tenon::cuda {

namespace exact {

inline constexpr uint32_t kMostDim = 256, kWarps = 4;

struct Args {
  KvLayout kv;
  int64_t q_row, out_row, lse_row;  // floats
  uint32_t q_heads, group, rows, kv_len;
  uint32_t window, tree, has_sink, want_lse;
  float scale, softcap;
};
enum Operand { kQ, kOut, kKeys, kValues, kPages, kLive, kPos, kSlot, kParent, kKvLen, kSink, kLse };
struct Pointers {
  const float* q;
  float* out;
  void *keys, *values;
  const int32_t* pages;
  const uint32_t* live;
  const int32_t *pos, *slot, *parent, *kv_len;
  const float* sink;
  float* lse;
};

// Whether a row sees position t, which is not behind its own: what was there before the step, and its ancestors.
__device__ __forceinline__ bool sees(const Args& a, const Pointers& p, uint32_t row, int32_t t) {
  const int32_t last = p.pos[row];
  if (a.window != 0 && int64_t{t} + a.window <= last) return false;
  if (a.tree == 0 || t < p.kv_len[p.slot[row]]) return true;
  // A parent is an earlier row, which ends the walk.
  for (auto i = static_cast<int32_t>(row), before = i + 1; i >= 0 && i < before; before = i, i = p.parent[i]) {
    if (p.pos[i] == t) return true;
  }
  return false;
}

// A block is one query head of one row; a warp takes every kWarps-th position.
template <class E>
__global__ void __launch_bounds__(32 * kWarps)
    kernel(const __grid_constant__ Args a, const __grid_constant__ Pointers p) {
  constexpr uint32_t kPerLane = kMostDim / 32;
  wait();
  __shared__ float values[kWarps][kMostDim], tops[kWarps], sums[kWarps];
  const uint32_t head = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (uint32_t row = blockIdx.y; row < min(*p.live, a.rows); row += gridDim.y) {
    if (p.slot[row] < 0 || p.pos[row] < 0 || static_cast<uint32_t>(p.pos[row]) >= a.kv_len) continue;
    const auto slot = static_cast<uint32_t>(p.slot[row]);
    const KvRows keys(a.kv, a.kv.k, p.keys, p.pages, slot, head / a.group);
    const KvRows cached(a.kv, a.kv.v, p.values, p.pages, slot, head / a.group);
    float q[kPerLane], out[kPerLane] = {}, top = -INFINITY, sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      const uint32_t d = lane + 32 * i;
      q[i] = d < a.kv.k.dim ? p.q[row * a.q_row + head * a.kv.k.dim + d] : 0;
    }
    for (auto t = static_cast<int32_t>(warp); t <= p.pos[row]; t += kWarps) {
      if (!sees(a, p, row, t)) continue;
      const auto* key = reinterpret_cast<const E*>(keys.at(static_cast<uint32_t>(t)));
      const auto* value = reinterpret_cast<const E*>(cached.at(static_cast<uint32_t>(t)));
      if (key == nullptr || value == nullptr) continue;
      float score = 0;
#pragma unroll
      for (uint32_t i = 0; i < kPerLane; ++i) {
        const uint32_t d = lane + 32 * i;
        if (d < a.kv.k.dim) score += q[i] * to_float(key[d]);
      }
      for (int d = 16; d > 0; d /= 2) score += __shfl_xor_sync(~0u, score, d);
      score *= a.scale;
      if (a.softcap != 0) score = a.softcap * tanhf(score / a.softcap);
      const float higher = fmaxf(top, score), shrink = expf(top - higher), weight = expf(score - higher);
      top = higher, sum = sum * shrink + weight;
#pragma unroll
      for (uint32_t i = 0; i < kPerLane; ++i) {
        const uint32_t d = lane + 32 * i;
        if (d < a.kv.v.dim) out[i] = out[i] * shrink + weight * to_float(value[d]);
      }
    }
    __syncthreads();  // of the row before
    if (lane == 0) tops[warp] = top, sums[warp] = sum;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) values[warp][lane + 32 * i] = out[i];
    __syncthreads();
    top = a.has_sink != 0 ? p.sink[head] : -INFINITY;
    for (const float other : tops) top = fmaxf(top, other);
    sum = a.has_sink != 0 ? expf(p.sink[head] - top) : 0;
    float shrink[kWarps];
    for (uint32_t w = 0; w < kWarps; ++w) {
      shrink[w] = tops[w] == -INFINITY ? 0 : expf(tops[w] - top);
      sum += sums[w] * shrink[w];
    }
    for (uint32_t d = threadIdx.x; d < a.kv.v.dim; d += blockDim.x) {
      float value = 0;
      for (uint32_t w = 0; w < kWarps; ++w) value += values[w][d] * shrink[w];
      p.out[row * a.out_row + head * a.kv.v.dim + d] = value / sum;
    }
    if (a.want_lse != 0 && threadIdx.x == 0) p.lse[row * a.lse_row + head] = top + logf(sum);
  }
}

inline void run(const Args& a, const Launch& l) {
  constexpr uint32_t kMostRowBlocks = 32768;  // further rows are taken in turns
  const Pointers p{l.ptr<const float>(kQ),       l.ptr<float>(kOut),           l.ptr<void>(kKeys),
                   l.ptr<void>(kValues),         l.ptr<const int32_t>(kPages), l.ptr<const uint32_t>(kLive),
                   l.ptr<const int32_t>(kPos),   l.ptr<const int32_t>(kSlot),  l.ptr<const int32_t>(kParent),
                   l.ptr<const int32_t>(kKvLen), l.ptr<const float>(kSink),    l.ptr<float>(kLse)};
  with_element(a.kv.k.codec, [&]<class E>(E) {
    l(&kernel<E>, {.blocks = {a.q_heads, std::min(a.rows, kMostRowBlocks)}, .threads = {32 * kWarps}}, a, p);
  });
}

}  // namespace exact

// "", or why the exact kernel cannot do it.
inline std::string not_exact(const tenon_attn& a, const tenon_kv_format& f) {
  if (const char* why = not_plain(f)) return why;
  if (f.k.codec != f.v.codec) return "the cache stores keys and values in different codecs";
  if (a.q_format != TENON_F32) return "queries that are not f32";
  if (a.kv_heads == 0 || a.q_heads == 0 || a.q_heads % a.kv_heads != 0) {
    return std::to_string(a.q_heads) + " query heads cannot share " + std::to_string(a.kv_heads) + " KV heads";
  }
  if (a.k_dim == 0 || a.v_dim == 0 || a.k_dim > exact::kMostDim || a.v_dim > exact::kMostDim) {
    return "heads of " + std::to_string(a.k_dim) + " and " + std::to_string(a.v_dim) + " dimensions; 1 to " +
           std::to_string(exact::kMostDim) + " can be done";
  }
  if (a.mask != TENON_MASK_CAUSAL && a.mask != TENON_MASK_PARENT) return "an unknown mask";
  return "";
}

inline void record_exact(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) {
  exact::Args args{};
  args.kv = kv_layout(*call.kv);
  if (args.kv.heads != a.kv_heads || args.kv.k.dim != a.k_dim || args.kv.v.dim != a.v_dim) {
    throw sdk::Failed("the cache's heads are not the layer's");
  }
  const auto row = [&](tenon_tid t) { return r.describe(t).stride[0] / static_cast<int64_t>(sizeof(float)); };
  args.q_row = row(call.q), args.out_row = row(call.out);
  args.want_lse = a.want_lse != 0 && call.lse != 0, args.has_sink = a.has_sink;
  if (args.want_lse != 0) args.lse_row = row(call.lse);
  args.q_heads = a.q_heads, args.group = a.q_heads / a.kv_heads, args.rows = r.bounds().rows;
  args.kv_len = static_cast<uint32_t>(std::min<uint64_t>(r.bounds().kv_len, args.kv.capacity()));
  args.window = a.window, args.tree = a.mask == TENON_MASK_PARENT, args.scale = a.scale, args.softcap = a.softcap;
  const tenon_operand operands[] = {{call.q, TENON_READ},
                                    {call.out, TENON_WRITE},
                                    {call.kv->k, TENON_READ},
                                    {call.kv->v, TENON_READ},
                                    {call.kv->pages, TENON_READ},
                                    {r.step(TENON_STEP_LIVE), TENON_READ},
                                    {r.step(TENON_STEP_POS), TENON_READ},
                                    {r.step(TENON_STEP_SLOT), TENON_READ},
                                    {r.step(TENON_STEP_PARENT), TENON_READ},
                                    {r.step(TENON_STEP_KV_LEN), TENON_READ},
                                    {a.has_sink != 0 ? call.sink : call.q, TENON_READ},
                                    {args.want_lse != 0 ? call.lse : call.out, TENON_WRITE}};
  const double q_columns = double(a.q_heads) * a.k_dim, out_columns = double(a.q_heads) * a.v_dim;
  tenon_cost cost{};
  cost.read[1] = q_columns * sizeof(float), cost.written[1] = out_columns * sizeof(float);
  cost.read[2] = (q_columns + out_columns) * tenon_format_block(args.kv.k.codec).bytes;
  cost.flops[2] = 2 * (q_columns + out_columns);
  emit<exact::run>(r, {.name = "attention", .operands = operands, .chunks = {}, .cost = cost}, args);
}

}  // namespace tenon::cuda
