// The op TENON_F_VERIFY reports the outcome of sampling to the host. For each row whose logits are wanted it writes one
// number: the token that was chosen, or a code that says why there is none. It has two tensors in tenon_fop:
//
//   t[0] logits, f32[out_rows][vocab], as the model gave them
//   t[1] told, i32[out_rows], which the op writes. For each row it is one of these:
//          kNoLogits      a logit of the row is NaN or infinite
//          kNoCandidates  the logits are finite, and a processor left a NaN or +infinity. (A processor takes a candidate out
//                         by making its logit minus infinity.) On devices with queues the code also says that a processor left
//                         an id outside of the vocabulary, a count outside of 1 to cap, or no entry above minus infinity. A
//                         device that walks the program fails at once in these cases.
//          otherwise      TENON_STEP_NEXT, the token that was chosen
//
// VerifyOp adds to them what every processor of the sampler chain left.
//
// If TENON_STEP_NEXT is not a token of the vocabulary, the op sets it to 0, and told keeps the value as it was. It has
// to be a token, since samplers count by it, and the next step may look it up before the host has read told.
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

// Both are true for NaN. no_logit is also true for infinities, since x - x is 0 for finite numbers only;
// no_candidate is also true for +infinity.
constexpr bool no_logit(float x) {
  return !(x - x == 0.0f);
}
constexpr bool no_candidate(float x) {
  return !(x <= std::numeric_limits<float>::max());
}

// These tensors are the candidates that one processor left.
struct Left {
  tenon_tid left;   // f32[out_rows][columns]
  tenon_tid count;  // i32[out_rows]: how many entries a row has; 0 = all of its columns
  tenon_tid id;     // i32[out_rows][columns]; 0 = the entries of a row are the vocabulary
  uint32_t cap;     // how many entries a row has room for, if there is an id
};

// VerifyOp and DraftPass begin with a struct of the binary boundary and have more members after it;
// h.size counts all of them. A device that knows only the struct of the boundary reads that part;
// others read all of it with read_longer().
struct VerifyOp {
  tenon_fop op;
  const Left* left;  // the caller owns it; valid during the call
  uint64_t left_count;

  tenon_tid logits() const { return op.t[0]; }
  tenon_tid told() const { return op.t[1]; }
  void set_logits(tenon_tid tensor) { op.t[0] = tensor; }
  void set_told(tenon_tid tensor) { op.t[1] = tensor; }
  std::span<const Left> all_left() const { return {left, left_count}; }
};
struct DraftPass {
  tenon_draft_pass pass;
  uint32_t vocab;  // the tokens that both models know; 0 = not said
  uint32_t reserved;

  // Returns the number of tokens. A choice outside of 0 to tokens() - 1 is not a token.
  uint32_t tokens() const { return vocab != 0 ? vocab : static_cast<uint32_t>(std::numeric_limits<int32_t>::max()); }
};

// The op of a draft model's pass has these operands, on every device.
enum DraftPassOperand : uint32_t {
  kPassNext,
  kPassStepToken,
  kPassStepLive,
  kPassStepPos,
  kPassStepSlot,
  kPassStepKvLen,
  kPassLive,
  kPassToken,
  kPassPos,
  kPassSlot,
  kPassParent,
  kPassSeqRow,
  kPassKvLen,
  kPassOutRow,
  kPassChoiceLive,
  kPassChoiceRow,
  kPassOperands
};
inline std::vector<tenon_operand> draft_pass_operands(const tenon_draft_pass& to, Recorder& rec) {
  return operands_by(kPassOperands, {{kPassNext, to.next, TENON_READ},
                                     {kPassStepToken, rec.step(TENON_STEP_TOKEN), TENON_READ | TENON_WRITE},
                                     {kPassStepLive, rec.step(TENON_STEP_LIVE), TENON_READ},
                                     {kPassStepPos, rec.step(TENON_STEP_POS), TENON_READ},
                                     {kPassStepSlot, rec.step(TENON_STEP_SLOT), TENON_READ},
                                     {kPassStepKvLen, rec.step(TENON_STEP_KV_LEN), TENON_READ},
                                     {kPassLive, to.live, TENON_WRITE},
                                     {kPassToken, to.token, TENON_WRITE},
                                     {kPassPos, to.pos, TENON_WRITE},
                                     {kPassSlot, to.slot, TENON_WRITE},
                                     {kPassParent, to.parent, TENON_WRITE},
                                     {kPassSeqRow, to.seq_row, TENON_WRITE},
                                     {kPassKvLen, to.kv_len, TENON_WRITE},
                                     {kPassOutRow, to.out_row, TENON_WRITE},
                                     {kPassChoiceLive, to.choice_live, TENON_WRITE},
                                     {kPassChoiceRow, to.choice_row, TENON_WRITE}});
}

// Returns a Longer that begins with a copy of *in. Members for which in->h.size is too small are 0.
template <class Longer, class T>
Longer read_longer(const T* in) noexcept {
  Longer out{};
  std::memcpy(&out, static_cast<const void*>(in), std::min<size_t>(in->h.size, sizeof(out)));
  return out;
}

// An op that checks what one processor left finds the tensors by this.
struct LeftRows {
  int64_t columns, stride, id_stride;  // elements
  uint32_t operand;                    // LeftOperand counts from here
  uint32_t counted;                    // how many operands follow the first: 0, 1 = `count`, 2 = `count` and `id`
};
enum LeftOperand : uint32_t { kLeftLogits, kLeftCount, kLeftId };
inline constexpr uint32_t kLeftOfAnOp = 5;
struct SomeLeft {
  std::array<LeftRows, kLeftOfAnOp> of;
  uint32_t n, reserved;
};

// Appends the tensors of `left`, kLeftOfAnOp entries at most, to the operands, and returns where each of them stands.
inline SomeLeft add_left(std::span<const Left> left, Recorder& rec, std::vector<tenon_operand>& operands) {
  SomeLeft some{};
  for (const Left& l : left) {
    LeftRows& rows = some.of[some.n++];
    rows = {rec.describe(l.left).dim[1], rec.floats_of_row(l.left), 0, static_cast<uint32_t>(operands.size()), 0};
    operands.push_back({l.left, TENON_READ});
    if (l.count == 0) continue;
    operands.push_back({l.count, TENON_READ});
    rows.counted = 1;
    if (l.id == 0) continue;
    operands.push_back({l.id, TENON_READ});
    rows.counted = 2;
    rows.columns = l.cap;
    rows.id_stride = rec.floats_of_row(l.id);  // an id is as long as a float
  }
  return some;
}

// Distributes `left` over ops that each have room for kLeftOfAnOp entries: calls record(entries, first) once for each
// op, and once in all if `left` is empty. `first` is true for the first op, which checks the logits too.
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
