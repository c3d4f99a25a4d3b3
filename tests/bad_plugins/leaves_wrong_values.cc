#include "leaves_wrong_values.h"

namespace tenon::bad {
namespace {

using Args = LeavesWrongValues::Args;
constexpr uint32_t kCap = LeavesWrongValues::kCap;

void leave(const Args& a, const sdk::Part& part) {
  for (uint32_t row = part.begin(); row < part.end(); ++row) {
    for (uint32_t i = 0; i < a.width; ++i)
      part.ptr<float>(LeavesWrongValues::kLogits)[size_t{row} * a.width + i] = a.logit;
    if (a.width != kCap) continue;
    for (uint32_t i = 0; i < kCap; ++i) part.ptr<int32_t>(LeavesWrongValues::kId)[size_t{row} * kCap + i] = a.id;
    part.ptr<int32_t>(LeavesWrongValues::kCount)[row] = a.count;
  }
}

}  // namespace

void LeavesWrongValues::emit(sdk::Recorder& r, std::span<const tenon_operand> operands, const Args& args) {
  r.emit<&leave>({.name = "leave", .operands = operands, .chunks = {args.rows}}, args);
}

}  // namespace tenon::bad

using tenon::bad::LeavesWrongValues;
TENON_PLUGIN(LeavesWrongValues);
