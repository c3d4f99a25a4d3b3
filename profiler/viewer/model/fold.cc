#include "model/fold.h"

#include <algorithm>

namespace tenon::view {

void fold(const profiler::TraceFile& file, const LaneView& view, std::vector<Box>& out) {
  using profiler::TraceSlice;
  const int64_t to_ns = view.to_ns, min_ns = view.min_ns;
  out.clear();
  const auto begin = file.slices.begin();
  const auto end = begin + view.last;
  // Ends rise along a lane, so the first slice that reaches into the range is found by its end.
  const auto ends_before = [](const TraceSlice& s, int64_t ns) { return s.end_ns() < ns; };
  auto at = std::lower_bound(begin + view.first, end, view.from_ns, ends_before);
  while (at != end && at->begin_ns < to_ns) {
    Box box{at->begin_ns, at->end_ns(), static_cast<uint32_t>(at - begin), 1};
    if (at->duration_ns >= min_ns) {
      ++at;
    } else {
      const auto run = at;
      for (;;) {
        // All that end within the next min_ns are narrow themselves, as they begin after what is joined so far.
        const auto next = std::lower_bound(at + 1, end, box.end_ns + min_ns, ends_before);
        if (next == at + 1) {
          ++at;
          break;
        }
        at = next - 1;
        box.end_ns = at->end_ns();
        if (box.end_ns >= to_ns) {
          ++at;
          break;
        }
      }
      box.count = static_cast<uint32_t>(at - run);
    }
    out.push_back(box);
  }
}

}  // namespace tenon::view
