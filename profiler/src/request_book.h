// This makes slices of requests: one for each wait and each stay in a slot, which has its chunks of prompt and its
// decoding.
//
// A slot is a track, on which one request follows the other. Those that wait share a few tracks: a wait is placed when
// it has ended, on the first one that is free since it began. Where there is none it is drawn shorter, from when the
// first of them was free, and its argument `waited_us` alone says how long it was. So 10000 requests take no more
// tracks than the scheduler has slots, and kMaxQueueLanes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "tenon/core/trace_sink.h"

namespace tenon::profiler {

struct RequestSlice {
  enum class Lane : uint8_t { kSlot, kQueue };

  Lane lane = Lane::kSlot;
  uint32_t index = 0;      // it is the slot, or the number of the queue's track
  bool is_moment = false;  // it has no duration, not even 0
  // A wait has "request_queue", what lies within a slot's slice "request_part" or, within "decode", "request_rest".
  const char* category = "request";
  std::string name{};  // "req 17", "prompt", "decode", "rest"; of a moment what happened
  int64_t begin_ns = 0, end_ns = 0;
  std::vector<trace::Arg> args{};
};

// Thread: one. Events of a request come in their order.
class RequestBook {
 public:
  static constexpr size_t kMaxQueueLanes = 32;
  using Emit = std::function<void(const RequestSlice&)>;

  explicit RequestBook(Emit emit) : emit_(std::move(emit)) {}

  void add(const trace::Event& event);

  // Emits or forgets what ended by decided_ns, see trace::Drain.
  void decide(int64_t decided_ns, int64_t wanted_ns);

  // Decides upon the rest, and ends at end_ns what is still open.
  void close(int64_t end_ns);

  // Returns how many events were left out, as what precedes them was lost.
  uint64_t dropped() const noexcept { return dropped_; }

 private:
  // A wait, or the time in a slot: the outer slice first, then those within. It is empty if there is none.
  using Stay = std::vector<RequestSlice>;
  struct Request {
    uint64_t prompt = 0;
    int64_t priority = 0;
    bool had_token = false, was_preempted = false;
    Stay stay{};                                                 // it has not ended
    int64_t inner_ns = 0;                                        // the next slice within it begins no earlier
    int64_t decode_ns = 0;                                       // it generates since then, if it does
    uint64_t first_step = 0, token_step = 0, tokens_before = 0;  // in this stay; tokens it had at token_step
    bool ran = false, generates = false;                         // it had a step in this stay

    bool has_slot() const { return !stay.empty() && stay.front().lane == RequestSlice::Lane::kSlot; }
  };

  static bool follows(const trace::Event& event, const Request& request);
  static void wait(Request& request, uint64_t id, int64_t begin_ns);
  void admit(Request& request, const trace::Event& event);
  static void run_prompt(Request& request, const trace::Event& event);
  static void begin_decode(Request& request, const trace::Event& event);
  static void rest(Request& request, const trace::Event& event);
  void leave(Request& request, const trace::Event& event);
  static void end_decode(Request& request, int64_t end_ns, uint64_t last_step, uint64_t tokens);
  void end_stay(Request& request, int64_t end_ns);
  void place(Stay& stay);
  int64_t& lane_end(RequestSlice& outer);

  Emit emit_;
  std::unordered_map<uint64_t, Request> open_;
  std::deque<Stay> ended_;  // nobody knows yet whether they are wanted
  int64_t wanted_ns_ = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> slot_ends_, queue_ends_;  // the last slice of each track ends there
  uint64_t dropped_ = 0;
};

}  // namespace tenon::profiler
