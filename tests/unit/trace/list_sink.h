// This sink keeps what it is told.
#pragma once

#include <string>
#include <vector>

#include "tenon/core/trace_sink.h"

namespace tenon::trace {

struct Heard {
  struct Copy {
    std::string origin;
    std::string track;
    RequestEvent request;
    int64_t begin_ns;
    int64_t end_ns;
    uint64_t id;
    double value;
    std::vector<uint64_t> values;
    std::string text;
  };
  std::vector<OriginInfo> origins;
  std::vector<TrackInfo> tracks;
  std::vector<Copy> events;
  uint64_t drains = 0;
  uint64_t drop_notes = 0;
  Summary summary{};
  bool finished = false;
  bool fail = false;  // the next drained() reports an error
};

// `heard` must outlive it.
class ListSink final : public Sink {
 public:
  explicit ListSink(Heard& heard) : heard_(heard) {}

  void begin(const TimeBase&) override {}
  void origin(OriginId, const OriginInfo& info) override { heard_.origins.push_back(info); }
  void track(uint32_t, const TrackInfo& info) override { heard_.tracks.push_back(info); }
  void event(const Event& e) override {
    heard_.events.push_back({heard_.origins.at(e.origin).name, heard_.tracks.at(e.track).name, e.request, e.begin_ns,
                             e.end_ns, e.id, e.value, std::vector<uint64_t>(e.values.begin(), e.values.end()),
                             std::string(e.text)});
  }
  Status drained(const Drain& drain) override {
    ++heard_.drains;
    for (const Drop& drop : drain.drops) heard_.drop_notes += drop.events;
    return heard_.fail ? Status::error(ErrorCode::kIo, "no room") : Status();
  }
  Status finish(const Summary& summary) override {
    heard_.summary = summary;
    heard_.finished = true;
    return {};
  }

 private:
  Heard& heard_;
};

}  // namespace tenon::trace
