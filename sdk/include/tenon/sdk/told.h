// TENON_F_VERIFY tells the host of each row whose logits are wanted the token that was chosen for it, or why there is
// none. Its arguments in tenon_fop are
//
//   t[0] logits, f32[out_rows][vocab], as the model gave them
//   t[1] left, t[2] count: the candidates that the last processor of the sampler chain left, see below; 0 if there is no
//        processor
//   t[3] told, i32[out_rows]: TENON_STEP_NEXT, but kNoLogits for a row with a logit that is NaN or infinite, and
//        kNoCandidates for any other row in which a processor left what no processor may leave: a NaN or +infinity (a
//        candidate that is out is minus infinity) and, on devices with queues, an id outside of the vocabulary, a count
//        outside of 1 to cap, or no entry above minus infinity. A device that walks the program fails at once where
//        these are left
//   i[0..7] four pairs of left and count, as tensor ids: what the processors before the last one left; 0 = no more
//   id[0..4], cap[0..4], of a VerifyOp: the ids of what t[1] and the pairs name, and how many entries a row has room
//        for; 0 = the entries of a row are the vocabulary
//
// left is f32[out_rows][columns]; count, i32[out_rows], says how many entries of a row there are, and is 0 if all of
// them are; id is i32[out_rows][columns].
//
// NEXT itself becomes 0 where it is no token of the vocabulary, which told says as it was: samplers count by it, and the
// next step may look it up before the host has heard.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "tenon/abi/device.h"
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

inline constexpr uint32_t kMostLeft = 5;

// The host's ops of a step as devices with queues get them: longer than the struct of the binary boundary, as h.size
// says, so that a device that knows that struct alone reads what it knows.
struct VerifyOp {
  tenon_fop op;
  tenon_tid id[kMostLeft];
  uint32_t cap[kMostLeft];  // where there is an id

  // These are what a processor left, the last one's first.
  struct Left {
    tenon_tid left = 0, count = 0, id = 0;
    uint32_t cap = 0;
  };
  tenon_tid logits() const { return op.t[0]; }
  tenon_tid told() const { return op.t[3]; }
  void set_logits(tenon_tid tensor) { op.t[0] = tensor; }
  void set_told(tenon_tid tensor) { op.t[3] = tensor; }
  Left left(uint32_t n) const {
    if (n == 0) return {op.t[1], op.t[2], id[0], cap[0]};
    return {static_cast<tenon_tid>(op.i[2 * n - 2]), static_cast<tenon_tid>(op.i[2 * n - 1]), id[n], cap[n]};
  }
  void set_left(uint32_t n, const Left& l) {
    id[n] = l.id;
    cap[n] = l.cap;
    if (n == 0) {
      op.t[1] = l.left;
      op.t[2] = l.count;
    } else {
      op.i[2 * n - 2] = static_cast<int32_t>(l.left);
      op.i[2 * n - 1] = static_cast<int32_t>(l.count);
    }
  }
};
struct DraftPass {
  tenon_draft_pass pass;
  uint32_t vocab;  // what both models know; 0 = not said
  uint32_t reserved;

  // Returns what a choice that is no token is held against.
  uint32_t tokens() const { return vocab != 0 ? vocab : static_cast<uint32_t>(std::numeric_limits<int32_t>::max()); }
};

// A Longer whose first member is *in; what *in does not have is 0.
template <class Longer, class T>
Longer read_longer(const T* in) noexcept {
  Longer out{};
  std::memcpy(&out, static_cast<const void*>(in), std::min<size_t>(in->h.size, sizeof(out)));
  return out;
}

// This is what one processor left, as an op that looks at it needs it.
struct LeftRows {
  int64_t columns, stride, id_stride;  // elements
  uint32_t operand;                    // that of `left`
  uint32_t counted;                    // how many operands follow it: 0, 1 = `count`, 2 = `count` and `id`
};
struct AllLeft {
  std::array<LeftRows, kMostLeft> of;
  uint32_t n, reserved;
};

// All that verify, a TENON_F_VERIFY, names as left. Its tensors become operands after those that are there.
inline AllLeft add_left(const VerifyOp& verify, Recorder& rec, std::vector<tenon_operand>& operands) {
  constexpr auto kElement = static_cast<int64_t>(sizeof(float));
  AllLeft all{};
  for (uint32_t n = 0; n < kMostLeft; ++n) {
    const VerifyOp::Left l = verify.left(n);
    if (l.left == 0) continue;
    const tenon_tensor t = rec.describe(l.left);
    LeftRows& rows = all.of[all.n++];
    rows = {t.dim[1], t.stride[0] / kElement, 0, static_cast<uint32_t>(operands.size()), 0};
    operands.push_back({l.left, TENON_READ});
    if (l.count == 0) continue;
    operands.push_back({l.count, TENON_READ});
    rows.counted = 1;
    if (l.id == 0) continue;
    operands.push_back({l.id, TENON_READ});
    rows.counted = 2;
    rows.columns = l.cap;
    rows.id_stride = rec.describe(l.id).stride[0] / kElement;
  }
  return all;
}

}  // namespace tenon::sdk
