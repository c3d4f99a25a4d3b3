// These functions work out from a trace what its requests waited for, what they took, and who ran meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// This is a chunk of a prompt, or decoding.
struct RequestPart {
  uint32_t slice = 0;
  int64_t begin_ns = 0, end_ns = 0;
  bool is_prompt = false;
  int64_t first_step = 0, last_step = 0;  // these steps carried it; last_step < first_step: the trace does not say
  int64_t rows = 0;                       // these are tokens of the prompt, or those that were generated
};

// A request waits, or has a slot.
struct RequestStay {
  uint32_t slice = 0;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t slot = -1;        // -1: it waits
  bool again = false;       // it waits because it was pre-empted
  int64_t tokens = 0;       // with a slot: it had so many tokens at the end
  int64_t cached = 0;       // with a slot: the cache had so many at the begin
  std::string_view lost{};  // with a slot: it was pre-empted, and lost its "slot", its "pages", or found no "room"
  int64_t taker = -1;       // this request got what it lost; -1: none did, or the trace does not say
  std::vector<RequestPart> parts{};  // with a slot, by time
  std::vector<RequestPart> rests{};  // while it decoded, by time: it had no row in these steps

  bool waits() const { return slot < 0; }
  int64_t duration_ns() const { return end_ns - begin_ns; }
};

inline constexpr int64_t kNoTime = -1;

struct RequestLife {
  int64_t id = 0;
  uint32_t process = 0;  // requests of merged traces may have the same ids
  int64_t prompt = 0, priority = 0;
  int64_t cached = 0, generated = 0;  // the cache had so many of the prompt at first, and it gave so many
  int64_t arrived_ns = 0, ended_ns = 0;
  int64_t first_token_ns = kNoTime;
  bool is_whole = false;             // the trace has its arrival
  std::string_view end{};            // "length", "cancelled", ...; empty: it had not ended when the trace did
  std::vector<RequestStay> stays{};  // by time; at least one

  uint32_t preemptions() const;
  // These return durations, or kNoTime where there is none or the trace does not have all of it.
  int64_t queue_ns() const;             // from its arrival until it first had a slot
  int64_t first_token_took_ns() const;  // it counts from its arrival to its first token
  int64_t token_ns() const;             // the mean of the tokens after the first, pre-emptions included
  int64_t total_ns() const;             // from its arrival to its end
  int64_t waited_ns() const;            // all of its waits, as far as the trace has them
};

struct Requests {
  std::vector<RequestLife> all;  // by arrival
  int64_t slots = 0;             // so many requests can run at once; as many as did if the trace does not say
};
// The trace outlives what is returned.
Requests requests_of(const TraceFile& trace);
Requests requests_of(const TraceFile&& trace) = delete;

struct RequestPercentiles {
  const char* what = "";  // "queue", "first token", "per token", "total"
  uint64_t requests = 0;  // so many have such a time
  int64_t p50_ns = 0, p90_ns = 0, p99_ns = 0, max_ns = 0;
};
std::array<RequestPercentiles, 4> request_percentiles(const Requests& requests);

// This is a request that had a slot while another one waited.
struct RequestHolder {
  uint32_t request = 0;    // its index
  int64_t slot = 0;        // it is the last one, if it had several
  int64_t overlap_ns = 0;  // it had a slot for so long of the wait
  int64_t tokens = 0;      // the cache held so many of it at most
};
struct RequestWait {
  std::vector<RequestHolder> holders;     // the longest overlap comes first
  int64_t waited_ns = 0, no_slot_ns = 0;  // all waits; for so long of them every slot was taken
};
RequestWait who_ran_meanwhile(const Requests& requests, uint32_t request);

}  // namespace tenon::profiler
