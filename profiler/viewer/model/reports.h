// These are tables and figures over an analysis. Times of operations are what they add to a step (OpEvent::added_ns).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/analysis.h"
#include "model/table.h"

namespace tenon::view {

// Returns a row for each operation, layers joined: calls, total, p50 and p99 of a call, bytes, GB/s, share of the
// measured peak, share of the steps. The biggest comes first; a click leads to its longest call.
Table op_table(const TraceFile& file, const Analysis& analysis, Phase phase, std::optional<double> peak_gbps);

// Returns a row for each step: what ran, how long, how it splits, the slowest first where `worst_first`.
Table step_table(const Analysis& analysis, Phase phase, bool worst_first);

// This is one step's tokens, as a cell.
struct TokenCell {
  uint32_t step = 0;
  std::string text{};  // it is empty if the trace has none; blanks are visible
  int64_t n_tokens = 0;
  int64_t duration_ns = 0;
  Work dominant = Work::kOther;  // this sort of work took most of it
  double over_median = 1;        // it is its time per token over the median's
  Work grew = Work::kOther;      // this sort of work took most more than in the median step
};
std::vector<TokenCell> token_strip(const Analysis& analysis);

// Rows are layers, the last row what is outside of layers; columns are operations in the order in which they first run.
struct HeatMap {
  struct Field {
    int64_t ns = 0;
    double bytes = 0;
    uint32_t longest = kNoIndex;  // it is the index of the longest slice
    int64_t longest_ns = -1;
    double gbps() const { return ns > 0 ? bytes / static_cast<double>(ns) : 0; }
  };
  std::vector<std::string> columns;
  int n_layers = 0;
  std::vector<Field> fields;  // (n_layers + 1, columns)
  int64_t total_ns = 0;       // it is the steps' total
  size_t n_steps = 0;

  const Field& at(int row, size_t column) const { return fields[static_cast<size_t>(row) * columns.size() + column]; }
};
HeatMap heat_map(const Analysis& analysis, Phase phase);

// The mean step, from its first part to its last; the parts add up to the step.
struct Waterfall {
  struct Part {
    std::string name;
    int64_t ns = 0;
    double bytes = 0;
    double limit_ns = 0;  // moving its bytes takes so long at the peak; 0 if that is unknown
  };
  std::vector<Part> parts;
  int64_t step_ns = 0;
  double bytes = 0;
  double limit_ns = 0;
  size_t n_steps = 0;
};
Waterfall waterfall(const Analysis& analysis, Phase phase, std::optional<double> peak_gbps);

// The pipeline panel shows these, and says what the trace does not say.
struct PipelineInfo {
  struct Text {
    std::string title, text;
  };
  std::vector<Text> texts;  // these are the TOML, the negotiation, the plan, if they are there
  Table facts;              // it has the rest of the metadata
  std::vector<std::string> missing;
};
PipelineInfo pipeline_info(const TraceFile& file, const Analysis& analysis);

}  // namespace tenon::view
