// This looks in every step at the candidates that a sampler has left: how many they are, whether their ids are tokens,
// and whether one can be chosen. What the sampler was given excuses it: a row that had no choice, or numbers that are
// not finite, may leave such a row, which VERIFY tells of. The loops have no branch an entry, so that they cost a small
// part of what a sampler does.
#include "candidates_check.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <vector>

#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
namespace {

using sdk::Part;

// These operands state one set of candidates; id and count belong to SPARSE alone.
struct Form {
  uint32_t sparse, cap, vocab;
  int32_t logits, id, count;  // numbers of operands
  uint32_t logits_stride;     // elements from row to row
  uint32_t id_stride;
};
struct CheckArgs {
  Form given, left;
  int32_t live;
};

CandidateRow row_of(const Form& form, const Part& p, uint32_t row) {
  const float* const logits = p.ptr<const float>(form.logits) + size_t{row} * form.logits_stride;
  if (form.sparse == 0) return {form.vocab, form.vocab, logits, nullptr, static_cast<int32_t>(form.vocab)};
  return {form.vocab, form.cap, logits, p.ptr<const int32_t>(form.id) + size_t{row} * form.id_stride,
          p.ptr<const int32_t>(form.count)[row]};
}

// Returns true for NaN and +infinity, which VERIFY tells of. -ffast-math would fold std::isnan() away.
bool special(float logit) {
  constexpr uint32_t kExponent = 0x7F800000U, kMinusInfinity = 0xFF800000U;
  const uint32_t bits = std::bit_cast<uint32_t>(logit);
  return (bits & kExponent) == kExponent && bits != kMinusInfinity;
}

bool count_is_sound(const CandidateRow& row) {
  return row.count >= 0 && row.count <= static_cast<int32_t>(row.cap);
}

// It has no branch for each logit, so that the loop is done for several at once.
bool can_choose(const CandidateRow& row) {
  constexpr uint32_t kMinusInfinity = 0xFF800000U;
  uint32_t possible = 0;
  for (int32_t i = 0; i < row.count; ++i) {
    possible |= std::bit_cast<uint32_t>(row.logits[i]) != kMinusInfinity ? 1U : 0U;
  }
  return possible != 0;
}

std::string row_problem(const CandidateRow& given, const CandidateRow& left) {
  if (std::string problem = entries_problem(left); !problem.empty()) return problem;
  std::string problem = choice_problem(left);
  // Whoever was given such a row, or one that VERIFY tells of, may leave such a row.
  const bool excused = !problem.empty() && (!count_is_sound(given) || !can_choose(given) ||
                                            std::any_of(given.logits, given.logits + given.count, special));
  return excused ? "" : problem;
}

void check(const CheckArgs& a, const Part& p) {
  const uint32_t live = p.ptr<const uint32_t>(a.live)[sdk::kLiveOutRows];
  for (uint32_t row = p.begin(); row < std::min(p.end(), live); ++row) {
    const std::string problem = row_problem(row_of(a.given, p, row), row_of(a.left, p, row));
    if (!problem.empty()) throw std::runtime_error(problem);
  }
}

// Notes the tensors as operands.
Form form_of(const tenon_candidates& c, sdk::Recorder& rec, std::vector<tenon_operand>& operands) {
  const auto number = [&](tenon_tid id) {
    const auto known = std::find_if(operands.begin(), operands.end(), [&](const auto& o) { return o.tensor == id; });
    if (known != operands.end()) return static_cast<int32_t>(known - operands.begin());
    operands.push_back({id, TENON_READ});
    return static_cast<int32_t>(operands.size() - 1);
  };
  const auto stride = [&](tenon_tid id) { return static_cast<uint32_t>(rec.describe(id).stride[0] / 4); };
  Form form{.sparse = c.form == TENON_SPARSE ? 1U : 0U,
            .cap = c.cap,
            .vocab = c.vocab,
            .logits = number(c.logits),
            .id = -1,
            .count = -1,
            .logits_stride = stride(c.logits),
            .id_stride = 0};
  if (form.sparse != 0) {
    form.id = number(c.id);
    form.count = number(c.count);
    form.id_stride = stride(c.id);
  }
  return form;
}

}  // namespace

std::string entries_problem(const CandidateRow& row) {
  if (!count_is_sound(row)) {
    return "leaves " + std::to_string(row.count) + " candidates; it has room for " + std::to_string(row.cap);
  }
  if (row.id == nullptr) return "";
  const auto vocab = static_cast<int32_t>(row.vocab);
  const auto* const wrong =
      std::find_if(row.id, row.id + row.count, [vocab](int32_t id) { return id < 0 || id >= vocab; });
  if (wrong == row.id + row.count) return "";
  return "leaves candidate " + std::to_string(*wrong) + ", outside of the vocabulary of " + std::to_string(vocab);
}

std::string choice_problem(const CandidateRow& row) {
  if (row.count == 0) return "leaves no candidate";
  return can_choose(row) ? "" : "leaves no candidate with a logit above -infinity";
}

void record_candidates_check(const tenon_candidates& given, const tenon_candidates& left, const tenon_recorder* raw) {
  sdk::Recorder rec(raw);
  std::vector<tenon_operand> operands;
  CheckArgs args{.given = form_of(given, rec, operands), .left = form_of(left, rec, operands), .live = 0};
  args.live = static_cast<int32_t>(operands.size());
  operands.push_back({rec.step(TENON_STEP_LIVE), TENON_READ});
  tenon_cost cost{};
  // These are the bytes of a row; how much of a SPARSE one is filled is known in the step.
  cost.read[sdk::kCostPerRow] = left.form == TENON_SPARSE ? 0 : 4.0 * left.vocab;
  rec.emit<&check>({.name = "check", .operands = operands, .chunks = {rec.bounds().out_rows}, .cost = cost}, args);
}

}  // namespace tenon
