// Requests and counters in the trace.
#pragma once

#include <string_view>

#include "tenon/abi/scheduler.h"
#include "tenon/core/trace.h"

namespace tenon {

class RequestTrace {
 public:
  // read_rate: the name of the counter of what is read.
  RequestTrace(trace::Recorder& recorder, std::string_view read_rate)
      : life_(recorder.add_site(trace::request_site())),
        queued_(recorder.add_site(trace::request_phase_site("queued"))),
        prefill_(recorder.add_site(trace::request_phase_site("prefill"))),
        decode_(recorder.add_site(trace::request_phase_site("decode"))),
        first_token_(recorder.add_site(trace::request_phase_site("first token"))),
        kv_used_(recorder.add_site(trace::counter_site("kv_used_bytes"))),
        kv_blocks_(recorder.add_site(trace::counter_site("kv_blocks_used"))),
        tokens_per_second_(recorder.add_site(trace::counter_site("tok_per_s"))),
        read_gbps_(recorder.add_site(trace::counter_site(read_rate))) {}

  void queue(trace::Track& track, uint64_t id) const {
    track.request(trace::RequestPhase::kBegin, life_, id);
    track.request(trace::RequestPhase::kBegin, queued_, id);
  }
  void start(trace::Track& track, uint64_t id) const {
    track.request(trace::RequestPhase::kEnd, queued_, id);
    track.request(trace::RequestPhase::kBegin, prefill_, id);
  }
  // Its prompt is in the cache. first: for the first time.
  void generate(trace::Track& track, uint64_t id, bool first) const {
    track.request(trace::RequestPhase::kEnd, prefill_, id);
    if (first) track.request(trace::RequestPhase::kInstant, first_token_, id);
    track.request(trace::RequestPhase::kBegin, decode_, id);
  }
  // It was pre-empted.
  void requeue(trace::Track& track, uint64_t id, uint32_t phase) const {
    track.request(trace::RequestPhase::kEnd, site_of(phase), id);
    track.request(trace::RequestPhase::kBegin, queued_, id);
  }
  // phase: the TENON_SEQUENCE_* that it was in.
  void end(trace::Track& track, uint64_t id, uint32_t phase) const {
    track.request(trace::RequestPhase::kEnd, site_of(phase), id);
    track.request(trace::RequestPhase::kEnd, life_, id);
  }
  struct Counts {
    double kv_bytes = 0, kv_blocks = 0, tokens_per_second = 0;
    double read_gbps = 0;  // 0 where nobody accounts for it
  };
  void step(trace::Track& track, const Counts& counts) const {
    track.counter(kv_used_, counts.kv_bytes);
    track.counter(kv_blocks_, counts.kv_blocks);
    track.counter(tokens_per_second_, counts.tokens_per_second);
    if (counts.read_gbps > 0) track.counter(read_gbps_, counts.read_gbps);
  }

 private:
  trace::SiteId site_of(uint32_t phase) const {
    return phase == TENON_SEQUENCE_GENERATES ? decode_ : phase == TENON_SEQUENCE_PROMPT ? prefill_ : queued_;
  }

  trace::SiteId life_, queued_, prefill_, decode_, first_token_, kv_used_, kv_blocks_, tokens_per_second_, read_gbps_;
};

}  // namespace tenon
