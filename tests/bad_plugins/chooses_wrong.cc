#include "chooses_wrong.h"

namespace tenon::bad {
namespace {

void choose(const ChoosesWrong::Args& a, const sdk::Part& part) {
  for (uint32_t row = part.begin(); row < part.end(); ++row) part.ptr<int32_t>(0)[row] = a.token;
}

}  // namespace

void ChoosesWrong::emit(sdk::Recorder& r, std::span<const tenon_operand> operands, const Args& args) {
  r.emit<&choose>({.name = "choose", .operands = operands, .chunks = {args.rows}}, args);
}

}  // namespace tenon::bad

using tenon::bad::ChoosesWrong;
TENON_PLUGIN(ChoosesWrong);
