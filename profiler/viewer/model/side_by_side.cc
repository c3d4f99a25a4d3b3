// Steps of the two traces are matched by their numbers, counted from the first that decodes. A slice's counterpart lies
// in the matching step: the n-th operation of the same path, or else the n-th slice of the same name at the same depth
// of the same track.
#include "model/side_by_side.h"

#include <algorithm>

namespace tenon::view {
namespace {

int64_t first_decode(const std::vector<Step>& steps) {
  const auto at = std::ranges::find_if(steps, [](const Step& step) { return step.decodes(); });
  return at == steps.end() ? 0 : at - steps.begin();
}

// Returns the slices [first, last) of a lane that begin in [from_ns, to_ns).
std::pair<uint32_t, uint32_t> begin_within(const TraceFile& file, const profiler::TraceTrack& track, size_t depth,
                                           int64_t from_ns, int64_t to_ns) {
  const auto first = file.slices.begin() + track.lanes[depth], last = file.slices.begin() + track.lanes[depth + 1];
  const auto before = [](const TraceSlice& s, int64_t ns) { return s.begin_ns < ns; };
  const auto from = std::lower_bound(first, last, from_ns, before);
  const auto to = std::lower_bound(from, last, to_ns, before);
  return {static_cast<uint32_t>(from - file.slices.begin()), static_cast<uint32_t>(to - file.slices.begin())};
}

int64_t end_of_step(const Side& side, uint32_t step) {
  const std::vector<Step>& steps = side.analysis->steps;
  return step + 1 < steps.size() ? steps[step + 1].begin_ns : side.file->end_ns + 1;
}

}  // namespace

SideBySide::SideBySide(Side a, Side b) : sides_{a, b} {
  const auto &steps_a = a.analysis->steps, &steps_b = b.analysis->steps;
  zero_ = {first_decode(steps_a), first_decode(steps_b)};
  if (steps_a.empty() || steps_b.empty()) return;
  range_ = {
      -std::min(zero_[0], zero_[1]),
      std::min(static_cast<int64_t>(steps_a.size()) - zero_[0], static_cast<int64_t>(steps_b.size()) - zero_[1]) - 1};
}

void SideBySide::align(int64_t step) {
  aligned_ = range_.second < range_.first ? 0 : std::clamp(step, range_.first, range_.second);
}

uint32_t SideBySide::step_index(size_t side, int64_t step) const {
  const int64_t index = zero_[side] + step;
  const auto n = static_cast<int64_t>(sides_[side].analysis->steps.size());
  return index >= 0 && index < n ? static_cast<uint32_t>(index) : kNoIndex;
}

double SideBySide::origin_ns(size_t side) const {
  const uint32_t step = range_.second < range_.first ? kNoIndex : step_index(side, aligned_);
  if (step == kNoIndex) return 0;
  return static_cast<double>(sides_[side].analysis->steps[step].begin_ns - sides_[side].file->begin_ns);
}

std::pair<double, double> SideBySide::step_range() const {
  if (range_.second < range_.first) return whole_range();
  double longest = 1;
  for (size_t side = 0; side < 2; ++side) {
    const Step& step = sides_[side].analysis->steps[step_index(side, aligned_)];
    // On a GPU the step ends after its slice on the host.
    const TraceSlice& slice = sides_[side].file->slices[step.slice];
    longest = std::max({longest, static_cast<double>(slice.duration_ns), static_cast<double>(step.duration_ns)});
  }
  return {-0.04 * longest, 1.1 * longest};
}

std::pair<double, double> SideBySide::whole_range() const {
  double from = 0, to = 1;
  for (size_t side = 0; side < 2; ++side) {
    const double origin = origin_ns(side);
    from = std::min(from, -origin);
    to = std::max(to, static_cast<double>(sides_[side].file->end_ns - sides_[side].file->begin_ns) - origin);
  }
  const double margin = 0.01 * (to - from);
  return {from - margin, to + margin};
}

uint32_t SideBySide::step_of(size_t side, const TraceSlice& slice) const {
  const std::vector<Step>& steps = sides_[side].analysis->steps;
  if (const auto number = sides_[side].file->number(slice, "step")) {  // the GPU runs later than the host
    const auto named = std::ranges::find_if(steps, [&](const Step& s) { return s.number == *number; });
    if (named != steps.end()) return static_cast<uint32_t>(named - steps.begin());
  }
  const auto after = std::ranges::upper_bound(steps, slice.begin_ns, {}, &Step::begin_ns);
  return after == steps.begin() ? kNoIndex : static_cast<uint32_t>(after - steps.begin() - 1);
}

uint32_t SideBySide::counterpart(size_t side, uint32_t slice) const {
  const Side &mine = sides_[side], &other = sides_[1 - side];
  const uint32_t step = step_of(side, mine.file->slices[slice]);
  if (step == kNoIndex) return kNoIndex;
  const uint32_t other_step = step_index(1 - side, static_cast<int64_t>(step) - zero_[side]);
  if (other_step == kNoIndex) return kNoIndex;
  const Step &here = mine.analysis->steps[step], &there = other.analysis->steps[other_step];
  if (here.slice == slice) return there.slice;
  const std::vector<OpEvent>& ops = mine.analysis->ops;
  const auto first = ops.begin() + here.first_op, last = ops.begin() + here.end_op;
  const auto op = std::find_if(first, last, [slice](const OpEvent& o) { return o.slice == slice; });
  if (op == last) return named_counterpart(side, slice, step, other_step);
  const PathMatch is_same_here(*mine.file, path_of(*mine.file, mine.file->slices[slice]));
  const PathMatch is_same_there(*other.file, is_same_here.path());
  auto nth = std::count_if(first, op, [&](const OpEvent& o) { return is_same_here(mine.file->slices[o.slice]); });
  for (uint32_t i = there.first_op; i < there.end_op; ++i) {
    const uint32_t candidate = other.analysis->ops[i].slice;
    if (is_same_there(other.file->slices[candidate]) && nth-- == 0) return candidate;
  }
  return kNoIndex;
}

uint32_t SideBySide::named_counterpart(size_t side, uint32_t slice, uint32_t step, uint32_t other_step) const {
  const TraceFile &mine = *sides_[side].file, &other = *sides_[1 - side].file;
  const TraceSlice& s = mine.slices[slice];
  const profiler::TraceTrack& track = mine.tracks[s.track];
  const int64_t begin = sides_[side].analysis->steps[step].begin_ns,
                other_begin = sides_[1 - side].analysis->steps[other_step].begin_ns;
  const uint32_t name = other.strings.find(mine.name(s));
  uint32_t nth = 0;
  for (uint32_t i = begin_within(mine, track, s.depth, begin, s.begin_ns).first; i < slice; ++i) {
    nth += mine.slices[i].name == s.name ? 1 : 0;
  }
  for (const profiler::TraceTrack& t : other.tracks) {
    const bool same = t.name == track.name && other.processes[t.process].name == mine.processes[track.process].name;
    if (!same || s.depth >= t.depth()) continue;
    auto [i, last] = begin_within(other, t, s.depth, other_begin, end_of_step(sides_[1 - side], other_step));
    for (; i < last; ++i) {
      if (other.slices[i].name == name && nth-- == 0) return i;
    }
  }
  return kNoIndex;
}

PathMatch::PathMatch(const TraceFile& file, std::string path)
    : file_(&file), path_(std::move(path)), names_(file.strings.size()), op_key_(file.strings.find("op")) {
  const bool any_layer = path_.find('*') != std::string::npos;
  const size_t slash = path_.rfind('/');
  const std::string_view whole = path_, module = whole.substr(0, slash);
  if (slash != std::string::npos) op_ = file.strings.find(whole.substr(slash + 1));
  for (uint32_t id = 0; id < file.strings.size(); ++id) {
    const std::string_view text = file.strings[id];
    const auto is = [&](std::string_view t) {
      return t == whole ? Fit::kWhole : slash != std::string::npos && t == module ? Fit::kWithoutOp : Fit::kNone;
    };
    names_[id] = is(text);
    if (any_layer && names_[id] == Fit::kNone) names_[id] = is(without_numbers(text));
  }
}

bool PathMatch::operator()(const TraceSlice& slice) const {
  if (names_.empty() || names_[slice.name] == Fit::kNone) return false;
  return names_[slice.name] == Fit::kWhole || file_->args.text(slice.args, op_key_) == op_;
}

}  // namespace tenon::view
