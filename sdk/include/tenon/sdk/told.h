// TENON_F_VERIFY tells the host of each row whose logits are wanted the token that was chosen for it, or why there is
// none. Its arguments in tenon_fop are
//
//   t[0] logits, f32[out_rows][vocab], as the model gave them
//   t[1] left, t[2] count: the candidates that the last processor of the sampler chain left, see below; 0 if there is no
//        processor
//   t[3] told, i32[out_rows]: TENON_STEP_NEXT, but kNoLogits for a row with a logit that is NaN or infinite, and
//        kNoCandidates for any other row that has a NaN or +infinity in something that a processor left (a candidate that
//        is out is minus infinity)
//   i[0..7] four pairs of left and count, as tensor ids: the processors before the last one left these; 0 = no more
//
// left is f32[out_rows][columns]; count, i32[out_rows], says how many entries of a row there are, and is 0 if all of
// them are.
//
// NEXT itself stays a token, since samplers count by it, and the next step may look it up before the host has been told.
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

// Both are true for NaN. no_logit is also true for infinities, since x - x is 0 for finite numbers only; no_candidate is
// also true for +infinity.
constexpr bool no_logit(float x) {
  return !(x - x == 0.0f);
}
constexpr bool no_candidate(float x) {
  return !(x <= std::numeric_limits<float>::max());
}

// An op that looks at what one processor left needs this of it.
struct LeftRows {
  int64_t columns, stride;    // a row has so many elements, and the next one begins so many further on
  uint32_t operand, counted;  // operand is the number of `left`; counted is 1 if `count` is the operand after it
};
inline constexpr uint32_t kMostLeft = 5;
struct AllLeft {
  std::array<LeftRows, kMostLeft> of;
  uint32_t n, reserved;
};

// It gives everything that op, a TENON_F_VERIFY, names as left, and appends its tensors to the operands.
inline AllLeft add_left(const tenon_fop& op, Recorder& rec, std::vector<tenon_operand>& operands) {
  AllLeft all{};
  const auto add = [&](tenon_tid left, tenon_tid count) {
    if (left == 0) return;
    const tenon_tensor t = rec.describe(left);
    all.of[all.n++] = {t.dim[1], t.stride[0] / static_cast<int64_t>(sizeof(float)),
                       static_cast<uint32_t>(operands.size()), count != 0 ? 1U : 0U};
    operands.push_back({left, TENON_READ});
    if (count != 0) operands.push_back({count, TENON_READ});
  };
  add(op.t[1], op.t[2]);
  for (uint32_t i = 0; i + 1 < kMostLeft; ++i) {
    add(static_cast<tenon_tid>(op.i[2 * i]), static_cast<tenon_tid>(op.i[2 * i + 1]));
  }
  return all;
}

}  // namespace tenon::sdk
