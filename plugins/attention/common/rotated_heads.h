// This is for views whose keys and values are stored rotated (tenon/sdk/hadamard.h): queries are rotated
// before attention, by an op of their own, and the means of values after it. So every attention reads such
// views, and its kernels know nothing of it.
//
//   attention::record_rotated(a, call, r, emit, [&](const tenon_attn_call& c) { ... });    in record()
//
// emit(operands, cost, args) records the device's op: rotated_heads_cpu.h, rotated_heads.cuh.
#pragma once

#include <span>
#include <vector>

#include "set_up.h"
#include "tenon/sdk/hadamard.h"

namespace tenon::attention {

struct RotateArgs {
  int64_t from_row, to_row;  // floats
  uint32_t heads, dim, rows, reserved = 0;
};
enum RotateOperand { kRotateFrom, kRotateTo, kRotateLive, kRotateOperands };

template <class Emit, class Record>
void record_rotated(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r, const Emit& emit,
                    const Record& record) {
  if ((call.kv->flags & sdk::kKvHadamard) == 0) return record(call);
  const auto rotate = [&](tenon_tid from, tenon_tid to, uint32_t dim) {
    const uint32_t both = from == to ? uint32_t{TENON_READ | TENON_WRITE} : 0;
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kRotateOperands, {{kRotateFrom, from, both | TENON_READ},
                                           {kRotateTo, to, both | TENON_WRITE},
                                           {kRotateLive, r.step(TENON_STEP_LIVE), TENON_READ}});
    const RotateArgs args{r.floats_of_row(from), r.floats_of_row(to), a.q_heads, dim, r.bounds().rows};
    tenon_cost cost{};
    cost.read[sdk::kCostPerRow] = cost.written[sdk::kCostPerRow] = double(a.q_heads) * dim * sizeof(float);
    emit(std::span<const tenon_operand>(operands), cost, args);
  };
  tenon_attn_call rotated = call;
  rotated.q = r.temp(sdk::tensor(TENON_F32, {r.bounds().rows, int64_t{a.q_heads} * a.k_dim}));
  rotate(call.q, rotated.q, a.k_dim);
  record(rotated);
  rotate(call.out, call.out, a.v_dim);
}

}  // namespace tenon::attention
