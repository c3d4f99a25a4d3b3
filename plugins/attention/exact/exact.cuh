// This does attention in f32 as the formula says it, over every KV view: exact, and slower than kernels for one layout.
// The reference is this, and Flash attends with it to views that its fast kernels do not read.
//
//   return exact::claim(a, kv, bounds);          in claim(); throws Refused
//   exact::record(a, call, recorder);            in record()
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "../common/last_block.cuh"
#include "../common/rotated_heads.cuh"
#include "../common/view_operands.h"
#include "attend_phases.cuh"
#include "seen.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"
#include "tenon/sdk/attention.h"

namespace tenon::exact {

using enum attention::ChainOperand;
using enum attention::ViewOperand;
enum Operand {
  kOrder = kViewOperands,  // The PLACE of the step gives the order of its rows.
  kSinks,                  // An attention without learned sinks gives Q.
  kStats,                  // A view that wants no weights gives OUT for this and the next two.
  kScores,
  kWeights,
  kOperands
};
// clear_scores() has these.
enum ClearedOperand { kClearedLive, kCleared };

// This is a query head of a row. A lane has the elements d = lane + 32 i, and of keys before rope also the pair's other
// one, so that a key turned by the angles of its index meets the query as it is.
struct Query {
  const Args& a;
  const Pointers& p;
  const Seen& view;
  const uint32_t row;
  float own[kPerLane], other[kPerLane];

  __device__ Query(const Args& args, const Pointers& pointers, const Seen& seen, uint32_t step_row, uint32_t head)
      : a(args), p(pointers), view(seen), row(step_row) {
    const float* q = p.q + row * a.q_row + head * a.kv.k.dim;
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      const uint32_t d = cuda::lane_id() + 32 * i;
      own[i] = d < a.kv.k.dim ? q[d] : 0;
      other[i] = 0;
      const sdk::RopePairs pairs = a.rope_pairs();
      if (d >= pairs.rotated || d >= a.kv.k.dim) continue;
      const bool second = pairs.is_second(d);
      const float u = q[second ? pairs.partner(d) : d], v = q[second ? d : pairs.partner(d)];
      const float2 turn = angle(seen.position() - seen.shift(), d);
      const float first_turned = u * turn.x - v * turn.y, second_turned = u * turn.y + v * turn.x;
      own[i] = second ? second_turned : first_turned;
      other[i] = second ? -first_turned : second_turned;
    }
  }

  // Returns the cosine and the sine of the angle that a dimension turns by, of a row of the rope's table.
  __device__ float2 angle(uint32_t index, uint32_t d) const {
    const sdk::RopePairs pairs = a.rope_pairs();
    return reinterpret_cast<const float2*>(p.rope)[size_t{index} * pairs.half() + pairs.pair(d)];
  }

  // Writes the scores of kAtOnce cells, which every lane of the warp has; -infinity for those that are not seen. A cell
  // without a page becomes one that is not seen.
  template <class C>
  __device__ void scores(const KvCells& keys, Spots& spots, float (&score)[kAtOnce]) const {
    auto& [cell, position, seen] = spots;
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
      const uint32_t d = cuda::lane_id() + 32 * i;
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
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      score[j] = cuda::warp_sum(score[j]) * a.scale;
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

// The block attends to a chunk of a query head of a row, and each warp to its share of the spots. Then the block joins
// the warps' sums.
template <class C>
__device__ __forceinline__ HeadSums attend_to_chunk(const Query& query, uint32_t head, uint32_t chunk,
                                                    const BlockSums& of_warps) {
  const Args& a = query.a;
  const Pointers& p = query.p;
  const Seen& view = query.view;
  const KvCells keys({a.kv, a.kv.k, p.keys, p.key_scales, p.pages}, view.slot(), head / a.group);
  const KvCells cached({a.kv, a.kv.v, p.values, p.value_scales, p.pages}, view.slot(), head / a.group);
  float top = -INFINITY, sum = 0, out[kPerLane] = {};
  const WarpSums own{threadIdx.x / 32, cuda::lane_id(), top, sum, out};
  float* const scores = a.weight_rows == 0 ? nullptr : p.scores + a.scores_at(query.row, head);
  view.each(chunk, [&](Spots& spots) {
    float weight[kAtOnce];  // by cell: its score first
    query.scores<C>(keys, spots, weight);
    if (scores != nullptr) leave_scores(spots, weight, scores);
    if (!weigh(weight, own)) return;
    add_values<C>(a, cached, spots, weight, own);
  });
  leave(own, of_warps);
  return join_warps(of_warps);
}

// A block is one query head of one row, or one chunk of it. The phases after the scores are those of attend_phases.cuh.
template <class C>
static __global__ void __launch_bounds__(kThreads)
    attend_kernel(const __grid_constant__ Args a, const __grid_constant__ Pointers p, float* scratch,
                  uint32_t* counters) {
  extern __shared__ int32_t path[];
  __shared__ Shared shared;
  __shared__ float values[kWarps][kMostDim], tops[kWarps], sums[kWarps];
  cuda::wait();
  const BlockSums of_warps{values, tops, sums};
  const uint32_t live = min(*p.live, a.end_row), head = blockIdx.x;
  for (uint32_t row = a.first_row + blockIdx.y; row < live; row += gridDim.y) {
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
      if (!attention::is_last(counters + row_head, chunks)) continue;
      all = {};
      for (uint32_t i = 0; i < chunks; ++i) fold(all, partials.take(i));
    }
    add_sink(p, head, all);
    write(a, p, {row, head}, all);
  }
}

// ---- the softmax weights of each sequence's last rows, by cell: sums over those rows and a KV head's query heads ----
// Cells that a row does not see have a score that weighs nothing. A block is a query head of a row.
static __global__ void __launch_bounds__(kThreads)
    clear_scores_kernel(const __grid_constant__ Args a, const uint32_t* live_rows, float* scores) {
  cuda::wait();
  const uint32_t live = min(*live_rows, a.end_row), row = a.first_row + blockIdx.y;
  if (row >= live) return;
  float* of_head = scores + a.scores_at(row, blockIdx.x);
  for (uint32_t cell = threadIdx.x; cell < a.kv.capacity(); cell += kThreads) of_head[cell] = -INFINITY;
}
// A thread has a cell of a KV head of a sequence. Ops for later rows add to what those for earlier ones have left.
static __global__ void __launch_bounds__(kThreads)
    weights_kernel(const __grid_constant__ Args a, const __grid_constant__ Pointers p) {
  cuda::wait();
  const uint32_t kv_head = blockIdx.x, seq = blockIdx.y, cell = blockIdx.z * kThreads + threadIdx.x;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0 || cell >= a.kv.capacity()) return;
  const size_t place = size_t{static_cast<uint32_t>(p.seq_slot[seq])} * a.kv.heads + kv_head;
  float& weight = p.weights[place * a.kv.capacity() + cell];
  const auto begin = static_cast<uint32_t>(p.seq_row[seq]), end = static_cast<uint32_t>(p.seq_row[seq + 1]);
  float sum = a.first_row == 0 ? 0 : weight;
  for (uint32_t row = max(max(begin, end > a.weight_rows ? end - a.weight_rows : 0), a.first_row);
       row < min(end, a.end_row); ++row) {
    for (uint32_t head = kv_head * a.group; head < (kv_head + 1) * a.group; ++head) {
      const float2 stats = p.stats[row * a.q_heads + head];
      if (stats.y != 0) sum += expf(p.scores[a.scores_at(row, head) + cell] - stats.x) / stats.y;
    }
  }
  weight = sum;
}

inline Pointers pointers(const Args& a, const cuda::Launch& l) {
  Pointers p{};
  p.q = l.ptr<const float>(kQ);
  p.out = l.ptr<float>(kOut);
  p.keys = l.ptr<void>(kKeyPlane);
  p.values = l.ptr<void>(kValuePlane);
  p.key_scales = l.ptr<void>(kKeyScales);
  p.value_scales = l.ptr<void>(kValueScales);
  p.pages = l.ptr<const int32_t>(kPages);
  p.place = l.ptr<const int32_t>(kPlace);
  p.used = l.ptr<const int32_t>(kUsed);
  p.table = l.ptr<const int32_t>(kTable);
  p.live = l.ptr<const uint32_t>(kLive);
  p.pos = l.ptr<const int32_t>(kPos);
  p.order = l.ptr<const int32_t>(kOrder);
  p.slot = l.ptr<const int32_t>(kSlot);
  p.parent = l.ptr<const int32_t>(kParent);
  p.kv_len = l.ptr<const int32_t>(kKvLen);
  p.seq_slot = l.ptr<const int32_t>(kSeqSlot);
  p.seq_row = l.ptr<const int32_t>(kSeqRow);
  p.chosen = l.ptr<const int32_t>(kChosen);
  p.rope = l.ptr<const float>(kRope);
  if (a.sinks != 0) p.sinks = l.ptr<const float>(kSinks);
  p.half_sums = l.ptr<float>(kSums);
  p.stats = l.ptr<float2>(kStats);
  p.scores = l.ptr<float>(kScores);
  return p;
}
inline size_t path_bytes(const Args& a) {
  return a.trees != 0 ? a.rows * sizeof(int32_t) : 0;
}
inline void attend(const Args& a, const cuda::Launch& l) {
  constexpr uint32_t kMostRowBlocks = 32768;  // further rows are taken in turns
  cuda::with_kv_codec(a.kv, [&]<class C>(C) {
    l(&attend_kernel<C>,
      {.blocks = {a.q_heads, std::min(a.end_row - a.first_row, kMostRowBlocks), a.splits},
       .threads = {kThreads},
       .shared_bytes = path_bytes(a)},
      a, pointers(a, l), l.scratch<float>(), l.zeroed<uint32_t>());
  });
}
inline void clear_scores(const Args& a, const cuda::Launch& l) {
  l(&clear_scores_kernel, {.blocks = {a.q_heads, a.end_row - a.first_row}, .threads = {kThreads}}, a,
    l.ptr<const uint32_t>(kClearedLive), l.ptr<float>(kCleared));
}
inline void weights(const Args& a, const cuda::Launch& l) {
  Pointers p = pointers(a, l);
  p.weights = l.ptr<float>(kWeights);
  const auto blocks = static_cast<uint32_t>((a.kv.capacity() + kThreads - 1) / kThreads);
  l(&weights_kernel, {.blocks = {a.kv.heads, a.seqs, blocks}, .threads = {kThreads}}, a, p);
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

// Spots are cut alike in all steps. Blocks share the chunks of a row where rows are few.
inline void set_chunks(Args& a) {
  constexpr uint32_t kLeastSpots = 64, kMostChunks = 64, kFewRows = 16;
  const auto cells = static_cast<uint32_t>(std::min<uint64_t>(a.kv.capacity(), UINT32_MAX / 2));
  const auto parts = [](uint32_t n, uint32_t of) { return (n + of - 1) / of; };
  a.chunk_spots = std::max(1U, parts(parts(cells, kMostChunks), kLeastSpots)) * kLeastSpots;
  // A ring's spots are positions: they need not begin with a chunk, nor its sinks end with one.
  a.most_chunks = parts(cells, a.chunk_spots) + 3;
  a.splits = a.rows <= kFewRows ? a.most_chunks : 1;
}

// Where the cache wants softmax weights, attention leaves its scores, of as many rows at once as there is memory for.
inline uint32_t rows_of_scores(const Args& a) {
  constexpr uint64_t kMostBytes = 128 << 20, kMostBlocks = 65535;
  const uint64_t bytes = uint64_t{a.q_heads} * a.kv.capacity() * sizeof(float);
  return static_cast<uint32_t>(std::clamp<uint64_t>(kMostBytes / bytes, 1, std::min<uint64_t>(a.rows, kMostBlocks)));
}
inline void record_with_weights(Args args, std::vector<tenon_operand> operands, const sdk::OpSpec& attention,
                                tenon_tid weights_of_cells, sdk::Recorder& r) {
  const uint32_t rows = rows_of_scores(args);
  const tenon_tid stats = r.temp(sdk::tensor(TENON_F32, {args.rows, args.q_heads, 2})),
                  scores =
                      r.temp(sdk::tensor(TENON_F32, {rows, args.q_heads, static_cast<int64_t>(args.kv.capacity())}));
  sdk::OpSpec spec = attention;
  for (args.first_row = 0; args.first_row < args.end_row; args.first_row += rows) {
    Args own = args;
    own.end_row = std::min(args.first_row + rows, args.end_row);
    tenon_operand cleared[2];
    cleared[kClearedLive] = operands[kLive];
    cleared[kCleared] = {scores, TENON_WRITE};
    cuda::emit<clear_scores>(r, {.name = "clear_scores", .operands = cleared, .chunks = {}}, own);
    std::vector<tenon_operand> of_op = operands;
    const uint32_t later = args.first_row != 0 ? TENON_READ : 0;  // what ops for earlier rows have left stays
    for (tenon_operand& o : of_op) {
      if (o.tensor == operands[kOut].tensor || o.tensor == operands[kSums].tensor) o.access |= later;
    }
    of_op[kStats] = {stats, TENON_WRITE | later};
    of_op[kScores] = {scores, TENON_READ | TENON_WRITE};
    spec.operands = of_op;
    cuda::emit<attend>(r, spec, own);
    of_op[kOut] = of_op[kQ];
    of_op[kStats].access = of_op[kScores].access = TENON_READ;
    of_op[kWeights] = {weights_of_cells, TENON_WRITE | later};
    cuda::emit<weights>(r, {.name = "weights", .operands = of_op, .chunks = {}}, own);
    spec.cost = {};
  }
}

// few_rows: only sequences of at most so many rows are attended to; 0: all are.
inline void record_half(const tenon_attn& a, const tenon_attn_call& call, const attention::Half& half, sdk::Recorder& r,
                        uint32_t few_rows = 0) {
  Args args{};
  static_cast<attention::ViewArgs&>(args) = attention::view_args(a, call, half, r);
  args.few_rows = few_rows;
  args.seqs = std::max(1u, args.seqs);
  args.end_row = args.rows;
  set_chunks(args);
  std::vector<tenon_operand> operands = attention::view_operands(call, half, r);
  operands.resize(kOperands, operands[kOut]);
  operands[kOrder] = {r.step(TENON_STEP_PLACE), TENON_READ};
  operands[kSinks] = {args.sinks != 0 ? sdk::sinks_of(call.pro) : call.q, TENON_READ};
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
  if (args.weight_rows != 0) return record_with_weights(args, operands, spec, call.kv->weights, r);
  cuda::emit<attend>(r, spec, args);
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
