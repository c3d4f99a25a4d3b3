// This checks what shows only when all events of a track, a request or a flow are seen together: nesting, pairs, order.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "finding_list.h"

namespace tenon::profiler {

// Texts become numbers. Beyond 64 MiB of different ones all new ones become "(many)".
class TextTable {
 public:
  uint32_t intern(std::string_view text);
  const std::string& at(uint32_t id) const { return *texts_[id]; }

 private:
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<const std::string*> texts_;
  size_t bytes_ = 0;
};

struct TrackId {
  int64_t pid;
  int64_t tid;
  auto operator<=>(const TrackId&) const = default;
};

// Events of a flow or a request that have the same key belong together.
struct PairKey {
  std::string_view category;
  std::string_view name;
  std::string_view id;
};

class TrackCheck {
 public:
  explicit TrackCheck(FindingList& findings) : findings_(findings) {}

  void slice(TrackId track, int64_t ts, int64_t dur, std::string_view name, Place at);
  // Checks phases B and E.
  void begin(TrackId track, int64_t ts, std::string_view name, Place at);
  void end(TrackId track, int64_t ts, std::string_view name, Place at);
  // Checks phases b and e.
  void request(char phase, const PairKey& key, int64_t ts, Place at);
  // Checks phases s, t and f.
  void flow(char phase, const PairKey& key, TrackId track, int64_t ts, Place at);

  // It is called once, after the last event.
  void finish();

 private:
  struct Slice {
    int64_t ts;
    int64_t dur;
    uint64_t offset;
    uint32_t line;
    uint32_t name;
  };
  struct Track {
    std::vector<Slice> slices;
    std::vector<Slice> open;     // these have a B and no E so far
    std::vector<int64_t> reach;  // the latest end among the slices up to this one
  };
  struct Paired {
    int64_t ts;
    uint64_t offset;
    uint32_t line;
    uint32_t scope;  // requests have the category; flows have category and name
    uint32_t name;
    uint32_t id;
    TrackId track;  // only flows have it
    char phase;
  };

  void check_nesting(Track& track);
  void check_requests();
  void check_request_end(std::vector<const Paired*>& open, const Paired& end);
  void check_flows();
  void report_lone_flow(const Paired& flow, const std::map<uint32_t, uint32_t>& start_scope);
  bool encloses(TrackId track, int64_t ts) const;
  static void sort_by_time(std::vector<Paired>& events);
  static Place place(const Paired& event) { return {event.offset, event.line}; }

  FindingList& findings_;
  TextTable texts_;
  std::map<TrackId, Track> tracks_;
  std::vector<Paired> requests_;
  std::vector<Paired> flows_;
};

}  // namespace tenon::profiler
