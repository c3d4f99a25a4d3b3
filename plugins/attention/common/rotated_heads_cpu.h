// This is the op of rotated_heads.h on the CPU.
#pragma once

#include <algorithm>

#include "rotated_heads.h"
#include "tenon/sdk/live.h"

namespace tenon::attention {

// A chunk is a row.
inline void rotate_rows(const RotateArgs& a, const sdk::Part& part) {
  const uint32_t end = std::min({part.end(), part.ptr<uint32_t>(kRotateLive)[sdk::kLiveRows], a.rows});
  for (uint32_t row = part.begin(); row < end; ++row) {
    const float* from = part.ptr<const float>(kRotateFrom) + row * a.from_row;
    float* to = part.ptr<float>(kRotateTo) + row * a.to_row;
    if (to != from) std::copy_n(from, size_t{a.heads} * a.dim, to);
    for (uint32_t h = 0; h < a.heads; ++h) sdk::rotate_head(to + size_t{h} * a.dim, a.dim);
  }
}

template <class Record>
void record_rotated_cpu(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r, const Record& record) {
  const auto emit = [&](std::span<const tenon_operand> operands, const tenon_cost& cost, const RotateArgs& args) {
    r.emit<rotate_rows>({.name = "rotate", .operands = operands, .chunks = {args.rows}, .cost = cost}, args);
  };
  record_rotated(a, call, r, emit, record);
}

}  // namespace tenon::attention
