// This does attention in f32 as the formula says it, over every KV view: exact, and slower than kernels for one layout.
// The reference is this, and Flash attends with it to views that its fast kernels do not read.
//
//   return exact::claim(a, kv, bounds);          in claim(); throws Refused
//   exact::record(a, call, recorder);            in record()
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../common/rotated_heads.cuh"
#include "../common/view_operands.h"
#include "attend_stages.cuh"
#include "seen.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/attention.h"

namespace tenon::exact {

inline constexpr uint32_t kWeightBlocks = 32;  // so many share the cells of a KV head of a sequence

using enum attention::ViewOperand;
enum Operand {
  kOrder = kViewOperands,  // The PLACE of the step gives the order of its rows.
  kSinks,                  // An attention without learned sinks gives Q.
  kStats,                  // A view that wants no weights gives OUT.
  kWeights
};

// This is a query head of a row. A lane has the elements d = lane + 32 i, and of keys before rope also the pair's other
// one, so that a key turned by the angles of its index meets the query as it is.
struct Query {
  const Args& a;
  const Pointers& p;
  const Seen& view;
  float own[kPerLane], other[kPerLane];

  __device__ Query(const Args& args, const Pointers& pointers, const Seen& seen, uint32_t row, uint32_t head)
      : a(args), p(pointers), view(seen) {
    const float* q = p.q + row * a.q_row + head * a.kv.k.dim;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      const uint32_t d = threadIdx.x % 32 + 32 * i;
      own[i] = d < a.kv.k.dim ? q[d] : 0;
      other[i] = 0;
      if (d >= static_cast<uint32_t>(a.rotated) || d >= a.kv.k.dim) continue;
      const bool second = is_second(d);
      const float u = q[second ? partner(d) : d], v = q[second ? d : partner(d)];
      const float2 turn = angle(seen.position() - seen.shift(), d);
      const float first_turned = u * turn.x - v * turn.y, second_turned = u * turn.y + v * turn.x;
      own[i] = second ? second_turned : first_turned;
      other[i] = second ? -first_turned : second_turned;
    }
  }

  __device__ bool is_second(uint32_t d) const {
    return a.pairing == 0 ? d >= static_cast<uint32_t>(a.rotated) / 2 : d % 2 != 0;
  }
  __device__ uint32_t partner(uint32_t d) const {
    const uint32_t half = static_cast<uint32_t>(a.rotated) / 2;
    return a.pairing != 0 ? d ^ 1 : d < half ? d + half : d - half;
  }
  __device__ float2 angle(uint32_t index, uint32_t d) const {
    const uint32_t half = static_cast<uint32_t>(a.rotated) / 2;
    return reinterpret_cast<const float2*>(p.rope)[size_t{index} * half + (a.pairing == 0 ? d % half : d / 2)];
  }

  // Writes the scores of kAtOnce cells, which every lane of the warp has; -infinity for those that are not seen. A cell
  // without a page becomes one that is not seen.
  template <class C>
  __device__ void scores(const KvCells& keys, Lanes& lanes, float (&score)[kAtOnce]) const {
    auto& [cell, position, seen] = lanes;
    const typename C::Stored* key[kAtOnce];
    float scale[kAtOnce];
    uint32_t index[kAtOnce];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      key[j] = seen[j] ? reinterpret_cast<const typename C::Stored*>(keys.at(cell[j])) : nullptr;
      seen[j] = key[j] != nullptr;
      scale[j] = seen[j] && !cuda::kKeysByChannel<C> ? keys.scale(cell[j]) : 0;
      index[j] = view.index_of(position[j]);
      score[j] = 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      const uint32_t d = threadIdx.x % 32 + 32 * i;
      if (d >= a.kv.k.dim) break;
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        if (!seen[j]) continue;
        float x = own[i];
        if (d < static_cast<uint32_t>(a.rotated)) {
          const float2 turn = angle(index[j], d);
          x = own[i] * turn.x + other[i] * turn.y;
        }
        if constexpr (cuda::kKeysByChannel<C>) {
          score[j] += x * keys.channel(cell[j], d).decode(sdk::kv_code<C>(key[j], d));
        } else {
          score[j] += x * C::decode(sdk::kv_code<C>(key[j], d), scale[j]);
        }
      }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) score[j] += __shfl_xor_sync(~0u, score[j], d);
    }
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      score[j] *= a.scale;
      if (a.softcap != 0) score[j] = a.softcap * tanhf(score[j] / a.softcap);
      if (!seen[j]) score[j] = -INFINITY;
    }
  }
};

// Says whether the row's sequence is one of those that are attended to.
__device__ inline bool is_attended(const Args& a, const Pointers& p, uint32_t row) {
  if (p.slot[row] < 0) return false;
  if (a.few_rows == 0) return true;
  uint32_t s = 0;
  while (s + 1 < p.live[sdk::kLiveSeqs] && static_cast<uint32_t>(p.seq_row[s + 1]) <= row) ++s;
  return static_cast<uint32_t>(p.seq_row[s + 1] - p.seq_row[s]) <= a.few_rows;
}

// A chunk of a query head of a row: each warp attends to its share of the lanes, then the block joins the warps' sums.
template <class C>
__device__ __forceinline__ HeadSums attend_to_chunk(const Query& query, uint32_t head, uint32_t chunk,
                                                    const BlockSums& of_warps) {
  const Args& a = query.a;
  const Pointers& p = query.p;
  const Seen& view = query.view;
  const KvCells keys({a.kv, a.kv.k, p.keys, p.key_scales, p.pages}, view.slot(), head / a.group);
  const KvCells cached({a.kv, a.kv.v, p.values, p.value_scales, p.pages}, view.slot(), head / a.group);
  float top = -INFINITY, sum = 0, out[kPerLane] = {};
  const WarpSums own{threadIdx.x / 32, threadIdx.x % 32, top, sum, out};
  view.each(chunk, [&](Lanes& lanes) {
    float weight[kAtOnce];  // by cell: its score first
    query.scores<C>(keys, lanes, weight);
    if (!weigh(weight, own)) return;
    add_values<C>(a, cached, lanes, weight, own);
  });
  leave(own, of_warps);
  return join_warps(of_warps);
}

// A block is one query head of one row, or one chunk of it. The stages after the scores are those of attend_stages.cuh.
template <class C>
__global__ void __launch_bounds__(kThreads)
    attend_kernel(const __grid_constant__ Args a, const __grid_constant__ Pointers p, float* scratch,
                  uint32_t* counters) {
  extern __shared__ int32_t path[];
  __shared__ Shared shared;
  __shared__ float values[kWarps][kMostDim], tops[kWarps], sums[kWarps];
  cuda::wait();
  const BlockSums of_warps{values, tops, sums};
  const uint32_t live = min(*p.live, a.rows), head = blockIdx.x;
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    if (!is_attended(a, p, row)) continue;
    const Seen view(a, p, {shared, path}, row, head / a.group);
    const uint32_t chunks = max(1U, view.chunks());
    if (blockIdx.z >= chunks) continue;
    const Query query(a, p, view, row, head);
    HeadSums all;
    const bool is_shared = a.splits != 1 && chunks > 1;
    const uint32_t begin = is_shared ? blockIdx.z : 0, end = is_shared ? begin + 1 : chunks;
    for (uint32_t i = begin; i < end; ++i) fold(all, attend_to_chunk<C>(query, head, i, of_warps));
    if (is_shared) {
      const size_t row_head = size_t{row} * a.q_heads + head;
      const Partials partials(a, scratch, row_head);
      partials.put(blockIdx.z, all);
      if (!is_last(counters + row_head, chunks)) continue;
      all = {};
      for (uint32_t i = 0; i < chunks; ++i) fold(all, partials.take(i));
    }
    add_sink(p, head, all);
    write(a, p, {row, head}, all);
  }
}

// The softmax weights of each sequence's last rows, by cell, once their maxima and sums are known. A block is a share
// of the cells of a KV head of a sequence; a cell is one thread's for all heads of a row.
template <class C>
__global__ void __launch_bounds__(kThreads)
    weights_kernel(const __grid_constant__ Args a, const __grid_constant__ Pointers p) {
  extern __shared__ int32_t path[];
  __shared__ Shared shared;
  cuda::wait();
  const uint32_t kv_head = blockIdx.x, seq = blockIdx.y;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto mine = [](uint32_t cell) { return cell / 32 % kWeightBlocks == blockIdx.z; };
  const auto cells = static_cast<uint32_t>(a.kv.capacity());
  float* sums = p.weights + (size_t{static_cast<uint32_t>(p.seq_slot[seq])} * a.kv.heads + kv_head) * cells;
  for (uint32_t cell = threadIdx.x; cell < cells; cell += kThreads) {
    if (mine(cell)) sums[cell] = 0;
  }
  const auto end = static_cast<uint32_t>(p.seq_row[seq + 1]);
  const uint32_t begin = max(static_cast<uint32_t>(p.seq_row[seq]), end > a.weight_rows ? end - a.weight_rows : 0);
  for (uint32_t row = begin; row < end; ++row) {
    const Seen view(a, p, {shared, path}, row, kv_head);
    const KvCells keys({a.kv, a.kv.k, p.keys, p.key_scales, p.pages}, view.slot(), kv_head);
    for (uint32_t head = kv_head * a.group; head < (kv_head + 1) * a.group; ++head) {
      const Query query(a, p, view, row, head);
      const float2 stats = p.stats[row * a.q_heads + head];
      view.each([&](Lanes& lanes) {
        bool any = false;
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j) any |= lanes.seen[j] = lanes.seen[j] && mine(lanes.cell[j]);
        if (!any) return;
        float score[kAtOnce];
        query.scores<C>(keys, lanes, score);
        if (threadIdx.x % 32 != 0) return;
#pragma unroll
        for (uint32_t j = 0; j < kAtOnce; ++j) {
          if (lanes.seen[j]) sums[lanes.cell[j]] += expf(score[j] - stats.x) / stats.y;
        }
      });
    }
  }
}

inline Pointers pointers(const Args& a, const cuda::Launch& l) {
  return {l.ptr<const float>(kQ),
          l.ptr<float>(kOut),
          l.ptr<void>(kKeyPlane),
          l.ptr<void>(kValuePlane),
          l.ptr<void>(kKeyScales),
          l.ptr<void>(kValueScales),
          l.ptr<const int32_t>(kPages),
          l.ptr<const int32_t>(kPlace),
          l.ptr<const int32_t>(kUsed),
          l.ptr<const int32_t>(kTable),
          l.ptr<const uint32_t>(kLive),
          l.ptr<const int32_t>(kPos),
          l.ptr<const int32_t>(kOrder),
          l.ptr<const int32_t>(kSlot),
          l.ptr<const int32_t>(kParent),
          l.ptr<const int32_t>(kKvLen),
          l.ptr<const int32_t>(kSeqSlot),
          l.ptr<const int32_t>(kSeqRow),
          l.ptr<const int32_t>(kChosen),
          l.ptr<const float>(kRope),
          a.sinks != 0 ? l.ptr<const float>(kSinks) : nullptr,
          l.ptr<float>(kSums),
          l.ptr<float2>(kStats),
          nullptr};
}
inline size_t path_bytes(const Args& a) {
  return a.trees != 0 ? a.rows * sizeof(int32_t) : 0;
}
inline void attend(const Args& a, const cuda::Launch& l) {
  constexpr uint32_t kMostRowBlocks = 32768;  // further rows are taken in turns
  cuda::with_kv_codec(a.kv, [&]<class C>(C) {
    l(&attend_kernel<C>,
      {.blocks = {a.q_heads, std::min(a.rows, kMostRowBlocks), a.splits},
       .threads = {kThreads},
       .shared_bytes = path_bytes(a)},
      a, pointers(a, l), l.scratch<float>(), l.zeroed<uint32_t>());
  });
}
inline void weights(const Args& a, const cuda::Launch& l) {
  Pointers p = pointers(a, l);
  p.weights = l.ptr<float>(kWeights);
  cuda::with_kv_codec(a.kv.k.codec, [&]<class C>(C) {
    l(&weights_kernel<C>,
      {.blocks = {a.kv.heads, a.seqs, kWeightBlocks}, .threads = {kThreads}, .shared_bytes = path_bytes(a)}, a, p);
  });
}

// Throws Refused for what the kernels cannot do.
inline tenon_claim claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b) {
  using sdk::Refused;
  const tenon_claim claim = attention::claim_view(a, kv);
  for (const tenon_kv_view* view : {&kv, kv.recent_view}) {
    if (view == nullptr || view->format->k.codec == view->format->v.codec) continue;
    throw Refused("the cache stores keys and values in different codecs");
  }
  if (b.trees != 0 && b.rows > kMostTreeRows) {
    throw Refused("trees of drafts in steps of more than " + std::to_string(kMostTreeRows) + " rows");
  }
  if (a.k_dim > kMostDim || a.v_dim > kMostDim) {
    throw Refused("heads of " + std::to_string(a.k_dim) + " and " + std::to_string(a.v_dim) + " dimensions; 1 to " +
                  std::to_string(kMostDim) + " can be done");
  }
  return claim;
}

// Lanes are cut alike in all steps. Blocks share the chunks of a row where rows are few.
inline void set_chunks(Args& a) {
  constexpr uint32_t kLeastLanes = 64, kMostChunks = 64, kFewRows = 16;
  const auto cells = static_cast<uint32_t>(std::min<uint64_t>(a.kv.capacity(), UINT32_MAX / 2));
  const auto parts = [](uint32_t n, uint32_t of) { return (n + of - 1) / of; };
  a.chunk_lanes = std::max(1U, parts(parts(cells, kMostChunks), kLeastLanes)) * kLeastLanes;
  // A ring's lanes are positions: they need not begin with a chunk, nor its sinks end with one.
  a.most_chunks = parts(cells, a.chunk_lanes) + 3;
  a.splits = a.rows <= kFewRows ? a.most_chunks : 1;
}

// few_rows: only sequences of at most so many rows are attended to; 0: all are.
inline void record_half(const tenon_attn& a, const tenon_attn_call& call, const attention::Half& half, sdk::Recorder& r,
                        uint32_t few_rows = 0) {
  Args args{attention::view_args(a, call, half, r), few_rows, 0, 0, 0};
  args.seqs = std::max(1u, args.seqs);
  set_chunks(args);
  std::vector<tenon_operand> operands = attention::view_operands(call, half, r);
  operands.push_back({r.step(TENON_STEP_PLACE), TENON_READ});
  operands.push_back({args.sinks != 0 ? sdk::sinks_of(call.pro) : call.q, TENON_READ});
  operands.push_back(attention::result_operand(call, half));
  if (args.weight_rows != 0) {
    operands[kStats] = {r.temp(sdk::tensor(TENON_F32, {args.rows, args.q_heads, 2})), TENON_WRITE};
  }
  // Query heads share nothing of what they read.
  const double elements = attention::q_columns(a) + attention::out_columns(a);
  // Sequences of few rows are hardly any work beside the others.
  const tenon_cost cost = few_rows != 0 ? tenon_cost{}
                                        : attention::view_cost(a, *call.kv, half, r.bounds(),
                                                               elements * sdk::kv_element_bytes(args.kv.k.codec));
  sdk::OpSpec spec{
      .name = few_rows != 0 ? "attention_few" : "attention", .operands = operands, .chunks = {}, .cost = cost};
  if (args.splits != 1) {
    spec.scratch_bytes = Partials::bytes(args);
    spec.zeroed_bytes = uint64_t{args.rows} * args.q_heads * sizeof(uint32_t);
  }
  cuda::emit<attend>(r, spec, args);
  if (args.weight_rows == 0) return;
  operands[kOut] = operands[kQ];
  operands[kStats].access = TENON_READ;
  operands.push_back({call.kv->weights, TENON_WRITE});
  cuda::emit<weights>(r, {.name = "weights", .operands = operands, .chunks = {}}, args);
}

inline void record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) {
  attention::record_rotated_cuda(a, call, r, [&](const tenon_attn_call& rotated) {
    attention::record_halves(a, rotated, r,
                             [&](const tenon_attn& own, const tenon_attn_call& c, const attention::Half& half) {
                               record_half(own, c, half, r);
                             });
  });
}

}  // namespace tenon::exact
