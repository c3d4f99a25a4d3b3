#include "tenon/profiler/trace_file.h"

#include <algorithm>

namespace tenon::profiler {

size_t TraceFile::bytes() const {
  size_t bytes = sizeof(*this) + strings.bytes() + args.bytes();
  bytes += slices.capacity() * sizeof(slices[0]) + instants.capacity() * sizeof(instants[0]);
  bytes += flows.capacity() * sizeof(flows[0]);
  for (const TraceTrack& track : tracks) bytes += sizeof(track) + track.lanes.capacity() * sizeof(uint32_t);
  for (const TraceCounter& counter : counters) {
    bytes += sizeof(counter) + counter.points.capacity() * sizeof(counter.points[0]);
  }
  for (const auto& [key, value] : metadata) bytes += key.capacity() + value.capacity();
  return bytes;
}

uint32_t TraceFile::category_index(std::string_view name) const {
  const uint32_t text = strings.find(name);
  const auto at = std::ranges::find(categories, text);
  return text == TraceStrings::kNone || at == categories.end() ? kNoIndex
                                                               : static_cast<uint32_t>(at - categories.begin());
}

std::optional<std::string_view> TraceFile::meta(std::string_view key) const& {
  const auto at = std::ranges::find(metadata, key, &std::pair<std::string, std::string>::first);
  if (at == metadata.end()) return std::nullopt;
  return at->second;
}

std::optional<double> TraceFile::number(const TraceSlice& slice, std::string_view key) const {
  return args.number(slice.args, strings.find(key));
}

std::optional<std::string_view> TraceFile::text(const TraceSlice& slice, std::string_view key) const {
  const std::optional<uint32_t> text = args.text(slice.args, strings.find(key));
  if (!text) return std::nullopt;
  return strings[*text];
}

uint32_t TraceFile::slice_at(uint32_t track, size_t depth, int64_t ns) const {
  const TraceTrack& t = tracks[track];
  if (depth >= t.depth()) return kNoIndex;
  const auto first = slices.begin() + t.lanes[depth], last = slices.begin() + t.lanes[depth + 1];
  auto at = std::upper_bound(first, last, ns, [](int64_t value, const TraceSlice& s) { return value < s.begin_ns; });
  if (at == first) return kNoIndex;
  --at;
  if (at->end_ns() <= ns && at->duration_ns > 0) return kNoIndex;
  if (at->duration_ns == 0 && at->begin_ns != ns) return kNoIndex;
  return static_cast<uint32_t>(at - slices.begin());
}

uint32_t TraceFile::parent(uint32_t slice) const {
  const TraceSlice& s = slices[slice];
  return s.depth == 0 ? kNoIndex : slice_at(s.track, s.depth - 1U, s.begin_ns);
}

std::pair<uint32_t, uint32_t> TraceFile::children(uint32_t slice) const {
  const TraceSlice& s = slices[slice];
  const TraceTrack& t = tracks[s.track];
  const size_t depth = s.depth + 1U;
  if (depth >= t.depth()) return {0, 0};
  const auto first = slices.begin() + t.lanes[depth], last = slices.begin() + t.lanes[depth + 1];
  const auto begins_before = [](const TraceSlice& a, int64_t ns) { return a.begin_ns < ns; };
  const auto from = std::lower_bound(first, last, s.begin_ns, begins_before);
  const auto to = std::lower_bound(from, last, s.end_ns(), begins_before);
  return {static_cast<uint32_t>(from - slices.begin()), static_cast<uint32_t>(to - slices.begin())};
}

}  // namespace tenon::profiler
