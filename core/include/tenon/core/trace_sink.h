// A trace::Recorder hands its events to a sink: a writer of files, a list of a test.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tenon/core/trace.h"

namespace tenon::trace {

// This says from when a capture's times count, and which clock its ticks come from.
struct TimeBase {
  int64_t start_realtime_ns;  // nanoseconds since the epoch; all times below count from here
  bool tsc;                   // false: ticks come from clock_gettime
};

struct TrackInfo {
  std::string name;
  int64_t tid;  // the operating system's number of the thread
};

// This is one span, instant, counter value or event of a request; its origin says which.
struct Event {
  OriginId origin = 0;
  uint32_t track = 0;
  RequestEvent request = RequestEvent::kArrived;  // only requests have it
  int64_t begin_ns = 0;                           // never negative
  int64_t end_ns = 0;                             // only spans have it; never before begin_ns
  uint64_t id = 0;                                // only requests have it
  double value = 0;                               // only counters have it
  std::span<const uint64_t> values = {};          // counters have none; valid during the call
  std::string_view text = {};                     // spans and requests have it; valid during the call
};

// This tells how many events a full ring refused between two drains.
struct Drop {
  uint32_t track;
  uint64_t events;
};

// This tells of a drain, which empties all rings.
struct Drain {
  int64_t previous_ns;  // the drain before it began then
  int64_t begin_ns;
  int64_t end_ns;
  uint64_t events;
  std::span<const Drop> drops;
  // A request is wanted if it was there during a step that is recorded. What of it ended by decided_ns is wanted if it
  // began by wanted_ns; of the rest nobody knows yet.
  int64_t decided_ns;
  int64_t wanted_ns;
};

// This ends a capture: when it ended, and how many events were lost in all.
struct Summary {
  int64_t end_ns;
  uint64_t dropped;
};

// Thread: one at a time calls it, whichever it is, and never a thread that records. Origins and tracks are told
// before their first event, numbered from 0. Events of one track arrive in the order in which they were
// recorded (a span at its end), tracks one after the other. After a drained() that fails only destruction
// follows. What is handed in is valid during the call.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void begin(const TimeBase& time_base) = 0;
  virtual void origin(OriginId id, const OriginInfo& info) = 0;
  virtual void track(uint32_t index, const TrackInfo& info) = 0;
  virtual void event(const Event& event) = 0;
  virtual Status drained(const Drain& drain) = 0;
  virtual Status finish(const Summary& summary) = 0;
};

}  // namespace tenon::trace
