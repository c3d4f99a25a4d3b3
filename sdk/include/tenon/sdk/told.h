// TENON_F_VERIFY tells the host of each row whose logits are wanted the token that was chosen for it, or why there is
// none. Its arguments in tenon_fop are
//
//   t[0] logits, f32[out_rows][vocab], as the model gave them
//   t[1] told, i32[out_rows]: TENON_STEP_NEXT, but kNoLogits for a row with a logit that is NaN or infinite, and
//        kNoCandidates for any other row in which a processor left what no processor may leave: a NaN or +infinity (a
//        candidate that is out is minus infinity) and, on devices with queues, an id outside of the vocabulary, a count
//        outside of 1 to cap, or no entry above minus infinity. A device that walks the program fails at once where
//        these are left
//
// and what every processor of the sampler chain left, in VerifyOp.
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

// What a processor left, as tensors.
struct Left {
  tenon_tid left;   // f32[out_rows][columns]
  tenon_tid count;  // i32[out_rows]: how many entries a row has; 0 = all of its columns
  tenon_tid id;     // i32[out_rows][columns]; 0 = the entries of a row are the vocabulary
  uint32_t cap;     // how many entries a row has room for, where there is an id
};

// The host's ops of a step as devices get them: longer than the struct of the binary boundary, as h.size says, so that a
// device that knows that struct alone reads what it knows.
struct VerifyOp {
  tenon_fop op;
  const Left* left;  // the caller's, during the call
  uint64_t left_count;

  tenon_tid logits() const { return op.t[0]; }
  tenon_tid told() const { return op.t[1]; }
  void set_logits(tenon_tid tensor) { op.t[0] = tensor; }
  void set_told(tenon_tid tensor) { op.t[1] = tensor; }
  std::span<const Left> all_left() const { return {left, left_count}; }
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
inline constexpr uint32_t kLeftOfAnOp = 5;
struct SomeLeft {
  std::array<LeftRows, kLeftOfAnOp> of;
  uint32_t n, reserved;
};

// `left` are kLeftOfAnOp at most. Their tensors become operands after those that are there.
inline SomeLeft add_left(std::span<const Left> left, Recorder& rec, std::vector<tenon_operand>& operands) {
  constexpr auto kElement = static_cast<int64_t>(sizeof(float));
  SomeLeft some{};
  for (const Left& l : left) {
    const tenon_tensor t = rec.describe(l.left);
    LeftRows& rows = some.of[some.n++];
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
  return some;
}

// Calls record(left, first) with what one op looks at, until all is looked at; once if nothing is left. The first op looks
// at the logits too.
template <class Record>
void record_by_op(std::span<const Left> left, Record record) {
  bool first = true;
  do {
    const size_t n = std::min<size_t>(left.size(), kLeftOfAnOp);
    record(left.first(n), first);
    left = left.subspan(n);
    first = false;
  } while (!left.empty());
}

}  // namespace tenon::sdk
