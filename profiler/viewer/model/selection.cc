#include "model/selection.h"

#include <algorithm>
#include <unordered_map>

#include "model/sum.h"

namespace tenon::view {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

bool contains(std::string_view text, std::string_view part) {
  return std::ranges::search(text, part, [](char a, char b) { return lower(a) == lower(b); }).begin() != text.end();
}

}  // namespace

Table sum_area(const profiler::TraceFile& file, const Area& area) {
  struct Sum {
    uint64_t count = 0;
    int64_t within_ns = 0, whole_ns = 0, longest_ns = 0;
    uint32_t longest = 0;
  };
  std::unordered_map<uint32_t, Sum> sums;
  for (uint32_t t = area.first_track; t < std::min<size_t>(area.end_track, file.tracks.size()); ++t) {
    const profiler::TraceTrack& track = file.tracks[t];
    for (size_t d = 0; d < track.depth(); ++d) {
      const auto begin = file.slices.begin();
      const auto end = begin + track.lanes[d + 1];
      auto at = std::lower_bound(begin + track.lanes[d], end, area.from_ns,
                                 [](const profiler::TraceSlice& s, int64_t ns) { return s.end_ns() <= ns; });
      for (; at != end && at->begin_ns < area.to_ns; ++at) {
        Sum& sum = sums[at->name];
        ++sum.count;
        add_to(sum.within_ns, std::min(at->end_ns(), area.to_ns) - std::max(at->begin_ns, area.from_ns));
        add_to(sum.whole_ns, at->duration_ns);
        if (sum.count == 1 || at->duration_ns > sum.longest_ns) {
          sum.longest_ns = at->duration_ns;
          sum.longest = static_cast<uint32_t>(at - begin);
        }
      }
    }
  }
  Table table;
  table.columns = {{"name", false}, {"calls"}, {"time us"}, {"mean us"}, {"longest us"}, {"share %"}};
  const auto width = static_cast<double>(std::max<int64_t>(1, area.to_ns - area.from_ns));
  for (const auto& [name, sum] : sums) {
    const auto count = static_cast<double>(sum.count);
    const auto within = static_cast<double>(sum.within_ns);
    table.rows.push_back(
        {{text_cell(std::string(file.strings[name])), number_cell(count, 0), number_cell(within / 1e3, 3),
          number_cell(static_cast<double>(sum.whole_ns) / count / 1e3, 3),
          number_cell(static_cast<double>(sum.longest_ns) / 1e3, 3), number_cell(100 * within / width, 2)},
         sum.longest});
  }
  sort_by(table, 0, false);
  sort_by(table, 2, true);
  return table;
}

std::vector<uint32_t> search(const profiler::TraceFile& file, std::string_view text) {
  std::vector<uint32_t> found;
  if (text.empty()) return found;
  std::vector<bool> fits(file.strings.size());
  bool any = false;
  for (uint32_t id = 0; id < file.strings.size(); ++id) any |= fits[id] = contains(file.strings[id], text);
  if (!any) return found;
  for (uint32_t i = 0; i < file.slices.size(); ++i) {
    const profiler::TraceSlice& s = file.slices[i];
    if (fits[s.name] || fits[file.categories[s.category]] || file.args.has_text(s.args, fits)) found.push_back(i);
  }
  std::ranges::stable_sort(found, {}, [&](uint32_t i) { return file.slices[i].begin_ns; });
  return found;
}

}  // namespace tenon::view
