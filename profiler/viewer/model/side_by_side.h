// This lays two traces on one time axis: which moments lie over one another, and
// which slice of one is which of the other.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/analysis.h"

namespace tenon::view {

struct Side {
  const TraceFile* file;
  const Analysis* analysis;
};

// Steps are counted from the first that decodes in each trace, or from its first one where none does, so that prompts
// of different lengths leave step 0 where it is. Both traces and their analyses must outlive this.
class SideBySide {
 public:
  SideBySide(Side a, Side b);

  // Returns the steps that both traces have: [first, second], with 0 among them, or {0, -1} if one of the traces has
  // none.
  std::pair<int64_t, int64_t> steps() const { return range_; }
  // Puts the begins of that step over one another; the nearest of steps() is taken. Without steps the begins of the
  // traces are.
  void align(int64_t step);
  int64_t aligned() const { return aligned_; }

  // Returns the step's index in the analysis of side 0 or 1; kNoIndex if that has no such step.
  uint32_t step_index(size_t side, int64_t step) const;
  // Returns the aligned moment, counted from the begin of that side's trace.
  double origin_ns(size_t side) const;
  // Returns a range that shows the aligned step of both, around that moment.
  std::pair<double, double> step_range() const;
  // Returns a range that shows all of both traces.
  std::pair<double, double> whole_range() const;

  // Returns the slice of the other trace that corresponds to one of `side`: the same operation of the same layer
  // in the same step, the n-th for the n-th; for a slice that is no operation, the slice of that name on the track
  // of that name. kNoIndex if there is none.
  uint32_t counterpart(size_t side, uint32_t slice) const;

 private:
  uint32_t step_of(size_t side, const TraceSlice& slice) const;
  uint32_t named_counterpart(size_t side, uint32_t slice, uint32_t step, uint32_t other_step) const;

  std::array<Side, 2> sides_;
  std::array<int64_t, 2> zero_{};  // it is the index of step 0
  std::pair<int64_t, int64_t> range_{0, -1};
  int64_t aligned_ = 0;
};

// Slices of a trace by the path of their operation (see path_of). A '*' in the path stands for any layer or step.
class PathMatch {
 public:
  PathMatch() = default;
  PathMatch(const TraceFile& file, std::string path);

  bool empty() const { return names_.empty(); }
  const std::string& path() const { return path_; }
  bool operator()(const TraceSlice& slice) const;

 private:
  enum class Fit : uint8_t { kNone, kWhole, kWithoutOp };

  const TraceFile* file_ = nullptr;
  std::string path_;
  std::vector<Fit> names_;  // each string has one
  uint32_t op_key_ = 0, op_ = 0;
};

}  // namespace tenon::view
