// This is a Chrome JSON trace in memory, laid out for looking at. Tenon, Kineto and others write such traces for
// Perfetto's JSON importer, gzipped or not, in array or object form. An event of usual size takes less than 120 bytes.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/profiler/trace_args.h"
#include "tenon/profiler/trace_strings.h"

namespace tenon::profiler {

inline constexpr uint32_t kNoIndex = std::numeric_limits<uint32_t>::max();

// A slice is something that took time: an X, a B with its E, or a b with its e.
struct TraceSlice {
  int64_t begin_ns = 0;
  int64_t duration_ns = 0;  // >= 0
  uint32_t name = 0;        // its id in the strings
  uint32_t args = 0;        // its id in the args
  uint32_t track = 0;
  uint16_t category = 0;  // its index in the categories
  uint16_t depth = 0;     // it lies in so many slices of the track

  int64_t end_ns() const noexcept { return begin_ns + duration_ns; }
};

struct TraceInstant {
  int64_t ns = 0;
  uint32_t name = 0;
  uint32_t args = 0;
  uint32_t track = 0;
  uint16_t category = 0;
};

struct TraceProcess {
  int64_t pid = 0;  // below zero: the file has a text in its place
  std::string name;
  int64_t sort_index = 0;
};

struct TraceTrack {
  enum class Kind : uint8_t {
    kThread,
    kAsync,  // it has spans of any thread; those that overlap lie on further tracks of the same name
  };

  Kind kind = Kind::kThread;
  uint32_t process = 0;
  int64_t tid = 0;
  std::string name;
  int64_t sort_index = 0;
  // Slices of depth d are [lanes[d], lanes[d + 1]): sorted by begin, and none begins before its neighbour ends.
  std::vector<uint32_t> lanes;
  uint32_t first_instant = 0, end_instant = 0;

  size_t depth() const noexcept { return lanes.empty() ? 0 : lanes.size() - 1; }
};

struct TraceCounter {
  struct Point {
    int64_t ns;
    double value;
  };
  uint32_t process = 0;
  std::string name;
  std::vector<Point> points;  // they are sorted by time
};

// A flow leads from a launch to what it launched.
struct TraceFlow {
  uint32_t from = 0, to = 0;  // these are indices of slices
};

struct TraceFile {
  std::string path;
  TraceStrings strings;
  TraceArgs args;
  std::vector<uint32_t> categories;  // these are ids in the strings; the first is the empty text
  std::vector<TraceProcess> processes;
  std::vector<TraceTrack> tracks;      // they are in the order of display: by process, then within it
  std::vector<TraceSlice> slices;      // sorted by track, depth, begin
  std::vector<TraceInstant> instants;  // they are sorted by track, then by time
  std::vector<TraceCounter> counters;
  std::vector<TraceFlow> flows;  // they are sorted by from
  // These are the members of the top level's "metadata" or "otherData" under their own names, then those of the top
  // level itself. Strings are as they are, everything else is JSON.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> notices;  // they say what of the file is not in here, and why
  uint64_t n_events = 0;             // traceEvents has so many elements
  int64_t begin_ns = 0, end_ns = 0;  // all events lie between these; 0, 0 if there are none

  size_t bytes() const;  // it takes so much memory in all

  std::string_view name(const TraceSlice& slice) const { return strings[slice.name]; }
  std::string_view category(const TraceSlice& slice) const { return strings[categories[slice.category]]; }
  // Returns kNoIndex if no event has it.
  uint32_t category_index(std::string_view name) const;
  std::optional<std::string_view> meta(std::string_view key) const&;
  std::optional<std::string_view> meta(std::string_view key) const&& = delete;  // its texts go with it
  // These look an argument up by its name; for many slices, look the name's id up once instead.
  std::optional<double> number(const TraceSlice& slice, std::string_view key) const;
  std::optional<std::string_view> text(const TraceSlice& slice, std::string_view key) const;

  // Returns the track's slice of that depth with begin_ns <= ns < end_ns(); kNoIndex if there is none.
  uint32_t slice_at(uint32_t track, size_t depth, int64_t ns) const;
  // Returns the slice that holds this one; kNoIndex at depth 0.
  uint32_t parent(uint32_t slice) const;
  // Returns the slices right below this one that begin within it: [first, second).
  std::pair<uint32_t, uint32_t> children(uint32_t slice) const;
};

struct TraceLimits {
  uint64_t max_events = 40'000'000;
  uint64_t max_bytes = uint64_t{1} << 36U;    // the unpacked text has so many at most
  uint64_t max_strings = uint64_t{1} << 30U;  // different texts have so many bytes at most
  uint32_t max_depth = 64;                    // JSON's values nest so deep at most
};

// Returns what can be read of a file. If that is damaged or cut, the result has what stands before the damage, and a
// notice. Throws Error(kIo) if the file cannot be opened or read, and if no event and no metadata can be found in it.
TraceFile read_trace(const std::string& path, const TraceLimits& limits = {});
// Does the same for bytes in memory, gzipped or not; `path` is a name for messages.
TraceFile read_trace_bytes(std::string_view bytes, const std::string& path, const TraceLimits& limits = {});

}  // namespace tenon::profiler
