#include "model/compare.h"

#include <algorithm>

#include "tenon/profiler/trace_compare.h"

namespace tenon::view {
namespace {

using profiler::OpChange;
using Verdict = OpChange::Verdict;

bool is_in(const OpChange& change, Phase phase) {
  if (phase == Phase::kAll) return true;
  return phase == Phase::kPrefill ? change.phase == "prefill" : change.phase == "decode" || change.phase == "verify";
}

Cell verdict_cell(Verdict verdict) {
  constexpr std::array<const char*, 5> kWords{"noise", "slower", "faster", "only in A", "only in B"};
  Cell cell = text_cell(kWords[static_cast<size_t>(verdict)]);
  if (verdict == Verdict::kSlower) cell.tone = Cell::Tone::kBad;
  if (verdict == Verdict::kFaster) cell.tone = Cell::Tone::kGood;
  return cell;
}

}  // namespace

Table comparison(const TraceFile& a, const TraceFile& b, Phase phase) {
  Table table;
  table.columns = {{"operation", false}, {"phase", false}, {"A us a step"}, {"B us a step"},   {"B - A us"},
                   {"change %"},         {"share %"},      {"p"},           {"verdict", false}};
  for (const OpChange& c : profiler::compare_traces(a, b)) {
    if (!is_in(c, phase)) continue;
    const std::string name = c.path.empty() ? "(the step)" : c.path + '/' + c.op;
    const bool both = c.steps_a > 0 && c.steps_b > 0;
    table.rows.push_back(
        {{text_cell(name), text_cell(c.phase), number_cell(c.steps_a > 0 ? c.us_a : kUnknown, 2),
          number_cell(c.steps_b > 0 ? c.us_b : kUnknown, 2), number_cell(both ? c.us_b - c.us_a : kUnknown, 2),
          number_cell(both ? 100 * c.change() : kUnknown, 1), number_cell(100 * c.share, 1),
          number_cell(both ? c.p : kUnknown, 4), verdict_cell(c.verdict)}});
  }
  return table;
}

}  // namespace tenon::view
