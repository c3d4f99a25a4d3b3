// What TENON_F_VERIFY tells the host of each row whose logits are wanted: the token that was chosen for it, or why
// there is none.
//
//   t[0] logits, f32[out_rows][vocab]: as the model gave them
//   t[1] left, t[2] count: what the last processor of the sampler chain left, see below; 0 if there is no processor
//   t[3] told, i32[out_rows]: TENON_STEP_NEXT, but kNoLogits for a row with a logit that is NaN or infinite, and
//   kNoCandidates
//        for any other row that has a NaN or +infinity in something that a processor left: a candidate that is out is
//        minus infinity
//   i[0..7] four pairs of left and count, as tensor ids: what the processors before the last one left; 0 = no more
//
// left is f32[out_rows][columns]; count, i32[out_rows], says how many entries of a row there are, and is 0 if all of
// them are.
//
// NEXT itself stays a token, since samplers count by it and the next step may look it up before the host has heard.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "tenon/sdk/recorder.h"

namespace tenon::sdk {

inline constexpr int32_t kNoLogits = std::numeric_limits<int32_t>::min();
inline constexpr int32_t kNoCandidates = kNoLogits + 1;

// Both are true of NaN. Of a number that is finite, what is left of it without itself is 0.
constexpr bool no_logit(float x) {
  return !(x - x == 0.0f);
}
constexpr bool no_candidate(float x) {
  return !(x <= std::numeric_limits<float>::max());
}

inline constexpr uint32_t kMostLeft = 5;

// A TENON_F_VERIFY by names.
struct VerifyOp {
  struct Left {
    tenon_tid left = 0, count = 0;
  };
  tenon_tid logits = 0, told = 0;
  std::array<Left, kMostLeft> left = {};  // the last processor's first

  VerifyOp() = default;
  explicit VerifyOp(const tenon_fop& op) : logits(op.t[0]), told(op.t[3]) {
    left[0] = {op.t[1], op.t[2]};
    for (uint32_t i = 1; i < kMostLeft; ++i) {
      left[i] = {static_cast<tenon_tid>(op.i[2 * i - 2]), static_cast<tenon_tid>(op.i[2 * i - 1])};
    }
  }
  tenon_fop fop() const {
    auto op = abi_struct<tenon_fop>();
    op.id = TENON_F_VERIFY;
    op.t[0] = logits;
    op.t[1] = left[0].left;
    op.t[2] = left[0].count;
    op.t[3] = told;
    for (uint32_t i = 1; i < kMostLeft; ++i) {
      op.i[2 * i - 2] = static_cast<int32_t>(left[i].left);
      op.i[2 * i - 1] = static_cast<int32_t>(left[i].count);
    }
    return op;
  }
};

// What one processor left, as an op that looks at it needs it.
struct LeftRows {
  int64_t columns, stride;    // elements
  uint32_t operand, counted;  // operand: of `left`; counted: 1 if that of `count` follows it
};
struct AllLeft {
  std::array<LeftRows, kMostLeft> of;
  uint32_t n, reserved;
};

// All that op, a TENON_F_VERIFY, names as left. Its tensors become operands after those that are there.
inline AllLeft add_left(const tenon_fop& op, Recorder& rec, std::vector<tenon_operand>& operands) {
  AllLeft all{};
  for (const auto& [left, count] : VerifyOp(op).left) {
    if (left == 0) continue;
    const tenon_tensor t = rec.describe(left);
    all.of[all.n++] = {t.dim[1], t.stride[0] / static_cast<int64_t>(sizeof(float)),
                       static_cast<uint32_t>(operands.size()), count != 0 ? 1U : 0U};
    operands.push_back({left, TENON_READ});
    if (count != 0) operands.push_back({count, TENON_READ});
  }
  return all;
}

}  // namespace tenon::sdk
