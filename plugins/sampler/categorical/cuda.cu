// This has the arithmetic of draw_body.h, operation by operation, for one candidate: the bits are the same, provided
// that the compiler fuses no multiplication with an addition (-fmad=false).
#include "plugin.h"
#include "tenon/cuda/candidates.cuh"
#include "tenon/sdk/cpu/philox.h"

namespace tenon::categorical {
namespace {

enum Operand : uint32_t { kNext = sdk::cpu::kOwnOperand, kPos, kRng };

__device__ float log_near_one(float d) {
  const float s = d / (2.0F + d), z = s * s;
  return 2.0F * s + 2.0F * s * z * (1.0F / 3 + z * (1.0F / 5 + z * (1.0F / 7 + z * (1.0F / 9))));
}
struct Binary {
  float exponent, rest;
};
__device__ Binary split_binary(float x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;  // the bits of sqrt(1/2)
  const uint32_t above = __float_as_uint(x) - kRootHalf;
  return {static_cast<float>(static_cast<int32_t>(above) >> 23),
          __uint_as_float((above & 0x7fffffu) + kRootHalf) - 1.0F};
}

// Returns -log(q) of a word.
__device__ float noise_of(uint32_t word) {
  const float u = (static_cast<float>(static_cast<int32_t>(word >> 1)) + 0.5F) * 0x1p-31F;
  const float rest = 1.0F - u;
  Binary b = split_binary(rest > 0.0F ? rest : 0x1p-25F);
  b.rest = b.exponent == 0.0F ? -u : b.rest;
  b = split_binary(-(b.exponent * 0x1.62e43p-1F + log_near_one(b.rest)));
  return -(b.exponent * 0x1.62e43p-1F + log_near_one(b.rest));
}

__global__ void draw_kernel(cuda::CandidateInput in, int32_t* next, cuda::Selection* selections, const int32_t* pos,
                            const uint32_t* rng) {
  cuda::select(in, next, selections, [&](const cuda::CandidateRow& row, uint32_t i, float logit) {
    if (!(logit > cuda::kOut)) return cuda::kOut;
    const auto position = static_cast<uint32_t>(pos[row.step_row]) + 1, id = static_cast<uint32_t>(row.id_of(i));
    const uint32_t* key = rng + size_t{4} * static_cast<uint32_t>(row.slot);
    const sdk::cpu::PhiloxWords w = sdk::cpu::philox4x32({{position, 0, id / 4, 0}}, key[0], key[1]);
    const uint32_t low = id % 2 == 0 ? w.word[0] : w.word[1], high = id % 2 == 0 ? w.word[2] : w.word[3];
    return logit + noise_of(id % 4 < 2 ? low : high);
  });
}

void choose(const cuda::CandidateGrid& g, const cuda::Launch& l) {
  l(&draw_kernel, cuda::entry_grid(g), cuda::CandidateInput(g, l), l.ptr<int32_t>(kNext), l.zeroed<cuda::Selection>(),
    l.ptr<const int32_t>(kPos), l.ptr<const uint32_t>(kRng));
}

}  // namespace

Categorical::Categorical(const sdk::Params&, const sdk::Env&) : kernel_(0) {}

void Categorical::record_select(const tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const {
  const sdk::cpu::CandidateOp op(
      c, r, {{s.next, TENON_WRITE}, {r.step(TENON_STEP_POS), TENON_READ}, {r.step(TENON_STEP_RNG), TENON_READ}});
  cuda::emit<choose>(r,
                     {.name = "draw",
                      .operands = op.operands,
                      .chunks = {},
                      .cost = op.cost(130, false),
                      .zeroed_bytes = cuda::selection_bytes(op.grid)},
                     op.grid);
}

}  // namespace tenon::categorical

TENON_PLUGIN(tenon::categorical::Categorical);
