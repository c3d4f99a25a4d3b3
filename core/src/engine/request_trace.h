// This puts requests and counters into the trace. Nothing here is called while nothing is recorded.
#pragma once

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <string_view>

#include "sequence.h"
#include "tenon/core/trace.h"

namespace tenon {

// This says that a sequence that runs lost its slot.
struct Preemption {
  std::string_view lost;  // "slot", "pages", or "room": it gave up by itself, as there was none for its next rows
  uint64_t taker = 0;     // the id of the sequence that got it; 0: none did
};

class RequestTrace {
 public:
  using Clock = std::chrono::steady_clock;

  // `read_rate` is the name of the counter of what is read.
  RequestTrace(trace::Recorder& recorder, std::string_view read_rate)
      : request_(recorder.add_origin(trace::request_origin())),
        kv_used_(recorder.add_origin(trace::counter_origin("kv_used_bytes"))),
        kv_blocks_(recorder.add_origin(trace::counter_origin("kv_blocks_used"))),
        tokens_per_second_(recorder.add_origin(trace::counter_origin("tok_per_s"))),
        running_(recorder.add_origin(trace::counter_origin("requests_running"))),
        waiting_(recorder.add_origin(trace::counter_origin("requests_waiting"))),
        read_gbps_(recorder.add_origin(trace::counter_origin(read_rate))) {}

  void arrived(trace::Track& track, const Sequence& s) const {
    const auto priority = static_cast<uint64_t>(int64_t{s.request().priority});
    record(track, trace::RequestEvent::kArrived, s, {since(s.submitted), s.prompt_size(), priority});
  }
  void admitted(trace::Track& track, const Sequence& s) const {
    record(track, trace::RequestEvent::kAdmitted, s, {s.slot, s.tokens().size(), s.kv_len});
  }
  // The newest `rows` tokens in its cache are of its prompt, or of what it had
  // before it was pre-empted. begin: the step's.
  void prompt(trace::Track& track, const Sequence& s, uint64_t step, uint32_t rows, Clock::time_point begin) const {
    record(track, trace::RequestEvent::kPrompt, s, {since(begin), step, rows, s.kv_len - rows});
  }
  void token(trace::Track& track, const Sequence& s, uint64_t step) const {
    record(track, trace::RequestEvent::kToken, s, {step, s.generated()});
  }
  void preempted(trace::Track& track, const Sequence& s, uint64_t last_step, const Preemption& why) const {
    record(track, trace::RequestEvent::kPreempted, s, {last_step, s.generated(), why.taker}, why.lost);
  }
  void rested(trace::Track& track, const Sequence& s, const Sequence::RestBegin& begin, uint64_t last_step) const {
    record(track, trace::RequestEvent::kRested, s, {since(begin.at), begin.step, last_step});
  }
  void ended(trace::Track& track, const Sequence& s, uint64_t last_step) const {
    record(track, trace::RequestEvent::kEnded, s, {last_step, s.generated()}, to_string(s.reason()));
  }

  struct Counts {
    double kv_bytes = 0, kv_blocks = 0, tokens_per_second = 0;
    double read_gbps = 0;             // 0 where nobody accounts for it
    size_t running = 0, waiting = 0;  // requests
  };
  void step(trace::Track& track, const Counts& counts) const {
    track.counter(kv_used_, counts.kv_bytes);
    track.counter(kv_blocks_, counts.kv_blocks);
    track.counter(tokens_per_second_, counts.tokens_per_second);
    track.counter(running_, static_cast<double>(counts.running));
    track.counter(waiting_, static_cast<double>(counts.waiting));
    if (counts.read_gbps > 0) track.counter(read_gbps_, counts.read_gbps);
  }

 private:
  void record(trace::Track& track, trace::RequestEvent event, const Sequence& s, std::initializer_list<uint64_t> values,
              std::string_view text = {}) const {
    track.request(event, request_, s.id, {values.begin(), values.size()}, text);
  }
  static uint64_t since(Clock::time_point begin) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    return static_cast<uint64_t>(std::max<int64_t>(0, ns));
  }

  trace::OriginId request_, kv_used_, kv_blocks_, tokens_per_second_, running_, waiting_, read_gbps_;
};

}  // namespace tenon
