// A Chrome JSON trace in memory, laid out for looking at: what Tenon, Kineto and others write for Perfetto's JSON
// importer, gzipped or not, in array or object form. Below 120 bytes an event of usual size.
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

// Something that took time: X, a B with its E, a b with its e.
struct TraceSlice {
  int64_t begin_ns = 0;
  int64_t duration_ns = 0;  // >= 0
  uint32_t name = 0;        // of the strings
  uint32_t args = 0;        // of the args
  uint32_t track = 0;
  uint16_t category = 0;  // of the categories
  uint16_t depth = 0;     // slices of the track that it lies in

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
  int64_t pid = 0;  // below zero where the file has a text in its place
  std::string name;
  int64_t sort_index = 0;
};

struct TraceTrack {
  enum class Kind : uint8_t {
    kThread,
    kAsync,  // spans of any thread; those that overlap lie on further tracks of the same name
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
  std::vector<Point> points;  // sorted by time
};

// From a launch to what it launched.
struct TraceFlow {
  uint32_t from = 0, to = 0;  // slices
};

struct TraceFile {
  std::string path;
  TraceStrings strings;
  TraceArgs args;
  std::vector<uint32_t> categories;  // of the strings; 0 is the empty one
  std::vector<TraceProcess> processes;
  std::vector<TraceTrack> tracks;      // in the order of display: by process, then within it
  std::vector<TraceSlice> slices;      // by track, depth, begin
  std::vector<TraceInstant> instants;  // by track, time
  std::vector<TraceCounter> counters;
  std::vector<TraceFlow> flows;  // by from
  // Members of the top level's "metadata" or "otherData" under their own names, then of the top level itself. Strings
  // as they are, everything else as JSON.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> notices;  // what of the file is not in here, and why
  uint64_t n_events = 0;             // elements of traceEvents
  int64_t begin_ns = 0, end_ns = 0;  // of all events; 0, 0 if there are none

  size_t bytes() const;  // of memory, all in all

  std::string_view name(const TraceSlice& slice) const { return strings[slice.name]; }
  std::string_view category(const TraceSlice& slice) const { return strings[categories[slice.category]]; }
  // kNoIndex if no event has it.
  uint32_t category_index(std::string_view name) const;
  std::optional<std::string_view> meta(std::string_view key) const&;
  std::optional<std::string_view> meta(std::string_view key) const&& = delete;  // its texts go with it
  // Arguments by name; look the name's id up once where many slices are asked.
  std::optional<double> number(const TraceSlice& slice, std::string_view key) const;
  std::optional<std::string_view> text(const TraceSlice& slice, std::string_view key) const;

  // The slice of that depth of the track which holds `ns`, its begin included, its end not; kNoIndex if there is none.
  uint32_t slice_at(uint32_t track, size_t depth, int64_t ns) const;
  // The slice that holds this one; kNoIndex at depth 0.
  uint32_t parent(uint32_t slice) const;
  // The slices right below this one that begin within it: [first, second).
  std::pair<uint32_t, uint32_t> children(uint32_t slice) const;
};

struct TraceLimits {
  uint64_t max_events = 40'000'000;
  uint64_t max_bytes = uint64_t{1} << 36U;    // of unpacked text
  uint64_t max_strings = uint64_t{1} << 30U;  // bytes of different texts
  uint32_t max_depth = 64;                    // of JSON's nesting
};

// What can be read of a file. Damaged or cut: what stands before the damage, and a notice. Throws Error(kIo) if the
// file cannot be opened or read, and if no event and no metadata can be found in it.
TraceFile read_trace(const std::string& path, const TraceLimits& limits = {});
// The same of bytes in memory, gzipped or not; `path` is a name for messages.
TraceFile read_trace_bytes(std::string_view bytes, const std::string& path, const TraceLimits& limits = {});

}  // namespace tenon::profiler
