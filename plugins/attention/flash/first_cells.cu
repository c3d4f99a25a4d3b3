// This attends to a ring's first cells (gather.h), in f32. A warp has a query head of a row; a lane has the elements d =
// lane + 32 i.
#include <type_traits>

#include "gather.cuh"
#include "softmax.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::flash {
namespace {

using attention::after_window;

constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;

template <class C>
__global__ void __launch_bounds__(kThreads)
    first_kernel(const __grid_constant__ ViewArgs a, const __grid_constant__ ViewPointers p, const float* learned) {
  constexpr uint32_t kOwn = 256 / 32;
  cuda::wait();
  const uint32_t row = blockIdx.y, head = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= *p.live || head >= a.q_heads || p.slot[row] < 0) return;
  const auto slot = static_cast<uint32_t>(p.slot[row]), n = static_cast<uint32_t>(p.pos[row]);
  const KvCells keys({a.kv, a.kv.k, p.keys, p.key_scales, p.pages}, slot, head / a.group);
  const KvCells values({a.kv, a.kv.v, p.values, p.value_scales, p.pages}, slot, head / a.group);
  const float* q = p.q + row * a.q_row + head * a.kv.k.dim;
  const auto query = [&](uint32_t d) { return q[d]; };
  float own[kOwn], out[kOwn] = {}, top = kNothing, sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < kOwn; ++i) {
    const uint32_t d = lane + 32 * i;
    own[i] = d < a.kv.k.dim ? turned(a, p.rope, static_cast<int32_t>(n - a.kv.shift_at(n)), d, query) : 0;
  }
  const uint32_t end = min(a.kv.sinks, after_window(n, a.kv.window));
  for (uint32_t cell = after_window(n, a.window); cell < end; ++cell) {
    const auto* key = reinterpret_cast<const typename C::Stored*>(keys.at(cell));
    const auto* value = reinterpret_cast<const typename C::Stored*>(values.at(cell));
    if (key == nullptr || value == nullptr) continue;
    const float key_scale = keys.scale(cell), value_scale = values.scale(cell);
    float score = 0;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t d = lane + 32 * i;
      if (d >= a.kv.k.dim) break;
      score += own[i] * turned(a, p.rope, static_cast<int32_t>(cell), d,
                               [&](uint32_t e) { return C::decode(sdk::kv_code<C>(key, e), key_scale); });
    }
    score = cuda::warp_sum(score);
    score *= a.scale;
    if (a.softcap != 0) score = a.softcap * tanhf(score / a.softcap);
    score *= kLog2E;
    const float higher = fmaxf(top, score), shrink = exp2f(top - higher), weight = exp2f(score - higher);
    top = higher;
    sum = sum * shrink + weight;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t d = lane + 32 * i;
      if (d < a.kv.v.dim) out[i] = out[i] * shrink + weight * C::decode(sdk::kv_code<C>(value, d), value_scale);
    }
  }
  if (learned != nullptr) {  // it weighs no value
    const float score = learned[head] * kLog2E, higher = fmaxf(top, score), shrink = exp2f(top - higher);
    sum = sum * shrink + exp2f(score - higher);
    for (float& o : out) o *= shrink;
    top = higher;
  }
#pragma unroll
  for (uint32_t i = 0; i < kOwn; ++i) {
    const uint32_t d = lane + 32 * i;
    if (d < a.kv.v.dim) p.out[row * a.out_row + head * a.kv.v.dim + d] = sum == 0 ? 0 : out[i] / sum;
  }
  if (lane == 0) p.sums[row * a.q_heads + head] = sum == 0 ? kNothing : top + log2f(sum);
}

}  // namespace

void attend_to_first(const ViewArgs& a, const cuda::Launch& l) {
  cuda::with_kv_codec(a.kv.k.codec, [&]<class C>(C) {
    if constexpr (!std::is_same_v<C, sdk::KvF32>) {
      l(&first_kernel<C>, {.blocks = {(a.q_heads + kWarps - 1) / kWarps, a.rows}, .threads = {kThreads}}, a,
        ViewPointers(l), a.sinks != 0 ? l.ptr<const float>(kLearnedSinks) : nullptr);
    }
  });
}

}  // namespace tenon::flash
