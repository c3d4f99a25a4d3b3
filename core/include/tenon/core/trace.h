// A trace records what happened, when and on which thread, at a cost that a step can bear.
//
// A Recorder owns one Track per thread. A track is a single-producer ring of 32-byte records {tick, origin, payload};
// an origin is what all events of one place in the program have in common, and is interned once, at set-up, so that
// recording an event copies no text. A drain thread of the recorder empties the rings every few milliseconds into a
// Sink (trace_sink.h), so that a long run does not overflow them; what a full ring refuses is counted and reported,
// never hidden. Ticks are the TSC where it is constant and nonstop, else clock_gettime; they become nanoseconds on
// draining, through pairs of both clocks. That conversion and the ticks of one track are monotone, so spans that nest
// when recorded nest in the trace, to the nanosecond.
//
//   trace::Recorder recorder({.skip_steps = 2, .steps = 8}, std::move(sink));   // set-up
//   trace::OriginId matmul = recorder.add_origin(trace::op_origin("layers.0.qkv", "quantization.none", "matmul", 0));
//   trace::Track& track = recorder.add_track("worker 0");                      // on the worker itself
//   { trace::Span span(track, matmul); ... }                                   // any number of times
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tenon/core/error.h"

namespace tenon::trace {

class Ring;
class Sink;
class TickClock;

using OriginId = uint32_t;

inline constexpr size_t kMaxValues = 10;  // one event can carry so many
inline constexpr size_t kMaxText = 1024;  // one span can carry so many bytes of text; longer texts are cut

enum class OriginKind : uint8_t {
  kSpan,     // an interval on the thread's track
  kInstant,  // a moment on the thread's track
  kCounter,  // a value over time, of the whole process
  kRequest,  // something that happened to one request, see RequestEvent
};

// These events happen to a request in this order; beside each stand its values. A request waits from its arrival until
// it is admitted, and again from each pre-emption. So that no clock is read before something has happened, `before_ns`
// says how long before the event it began.
enum class RequestEvent : uint8_t {
  kArrived,    // before_ns, tokens of its prompt, priority (two's complement)
  kAdmitted,   // slot, tokens that it has, how many of them the cache had already
  kPrompt,     // before_ns, step, rows, its tokens in the cache before: a step has run so many rows of it, a chunk
  kToken,      // step, tokens generated: its prompt is through, and each step gives it a token from now on
  kRested,     // before_ns, first step, last step: it generates, and had no row in these
  kPreempted,  // last step, tokens generated, the request that got what it lost or 0; the text says what it lost
  kEnded,      // last step, tokens generated; the text says how it ended
};

struct Arg {
  std::string name;
  std::variant<int64_t, uint64_t, double, std::string> value;
};

// An origin is what all events of one place share.
struct OriginInfo {
  OriginKind kind = OriginKind::kSpan;
  std::string name = {};
  std::string category = {};
  std::vector<Arg> args = {};            // these are the same for each event
  std::vector<std::string> values = {};  // the names of the values that each event carries besides; at most kMaxValues
  std::string text = {};                 // the name of the text that a span may carry besides
  bool numbered = false;  // true: the first value, or a request's id, ends the name: "ProfilerStep#7", "req 17"
};

// A gate says what is recorded now: nothing, requests alone, or everything.
enum class Gate : uint8_t { kClosed, kRequests, kOpen };

// One thread records on a track. Recorder::add_track makes it; a default-constructed one records nothing, for code that
// runs untraced. Thread: one at a time, the one that the track is named after; any may call recording(). Nothing here
// allocates, blocks or throws. A track lives as long as its recorder.
class Track {
 public:
  Track() noexcept;
  ~Track();
  Track(const Track&) = delete;
  Track& operator=(const Track&) = delete;

  // Says whether spans, instants and counters are wanted now. If they are not, this is all that they cost.
  bool recording() const noexcept { return gate_.load(std::memory_order_relaxed) == Gate::kOpen; }

  // Returns the time in ticks of this recorder's clock, never less than what this track returned last. It is
  // not called on a default-constructed track.
  uint64_t now() noexcept;

  // Records a span from `begin` to `end`, both from now(). It is meant for loops in which one span's end is the next
  // one's beginning; else use Span. Spans of one track must nest. text is UTF-8.
  void span(OriginId origin, uint64_t begin, uint64_t end, std::span<const uint64_t> values = {},
            std::string_view text = {}) noexcept;

  // These three ask recording() themselves. All events of a request are recorded on one track, from the start of the
  // capture, also while steps are skipped, so that none lacks its beginning. text is UTF-8.
  void instant(OriginId origin, std::span<const uint64_t> values = {}) noexcept;
  void counter(OriginId origin, double value) noexcept;
  void request(RequestEvent event, OriginId origin, uint64_t id, std::span<const uint64_t> values = {},
               std::string_view text = {}) noexcept;

 private:
  friend class Recorder;
  Track(const TickClock& clock, uint32_t ring_records, Gate gate);

  std::atomic<Gate> gate_;
  uint64_t last_tick_ = 0;
  const TickClock* clock_ = nullptr;
  std::unique_ptr<Ring> ring_;
};

// This records a span from its construction to its destruction. A span that begins while the gate is open is
// recorded even if the gate closes meanwhile.
class Span {
 public:
  Span(Track& track, OriginId origin) noexcept : track_(track.recording() ? &track : nullptr), origin_(origin) {
    if (track_ != nullptr) [[unlikely]]
      begin_ = track_->now();
  }
  ~Span() {
    if (track_ != nullptr) [[unlikely]]
      track_->span(origin_, begin_, track_->now(), {values_.data(), n_values_}, text_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // Says whether it will be recorded, for values that are costly to gather.
  bool active() const noexcept { return track_ != nullptr; }

  // Sets what the span carries, in the order of OriginInfo::values. More than kMaxValues are cut.
  void set(std::initializer_list<uint64_t> values) noexcept {
    n_values_ = 0;
    for (const uint64_t value : values) {
      if (n_values_ < kMaxValues) values_[n_values_++] = value;
    }
  }
  // Sets the text, which is borrowed until the span ends.
  void set_text(std::string_view text) noexcept { text_ = text; }

 private:
  Track* track_;
  OriginId origin_;
  uint32_t n_values_ = 0;
  uint64_t begin_ = 0;
  std::string_view text_;
  std::array<uint64_t, kMaxValues> values_;
};

enum class ClockSource : uint8_t { kBest, kMonotonic };

struct RecorderOptions {
  // This many steps pass before spans are recorded; 0 also records what precedes the first step.
  uint64_t skip_steps = 0;
  uint64_t steps = 0;  // then this many are recorded, and the capture ends; 0 = it goes on until stop()
  // > 0: the events of the newest so many steps are held back. They, and no other spans, instants and counters, reach
  // the sink when a step takes slow_step (0 = no step is slow) or capture() asks for them. `steps` counts the steps
  // whose events did. An event that is held back takes some 200 bytes.
  uint32_t keep_steps = 0;
  std::chrono::nanoseconds slow_step{0};
  // If keep_steps is set, it is told of each step, in their order, whether that is written. The first that begins has
  // number 0, and those that are still held at the end are not told. The thread that drains calls it, and waits for it.
  std::function<void(uint64_t step, bool written)> decided = {};
  uint32_t ring_records = 1U << 15U;  // each thread's ring has so many, 32 bytes each; a power of two or rounded up
  std::chrono::milliseconds drain_interval{10};  // 0 = no thread drains: drain() and stop() alone empty the rings
  ClockSource clock = ClockSource::kBest;
};

// A recorder makes one capture. Thread: any may call add_origin, add_track and drain; the one that runs the steps
// calls begin_step and end_step; stop and destruction come after the last of them. Threads may go on recording into
// their tracks at any time until destruction.
class Recorder {
 public:
  // Takes the sink, whose errors do not interrupt the run: they end the capture, and stop() returns them.
  Recorder(RecorderOptions options, std::unique_ptr<Sink> sink);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // [setup] It is called once for each place and set of args. Throws Error(kInternal) for more than kMaxValues values.
  OriginId add_origin(OriginInfo info);

  // [setup] Each thread calls it once for itself.
  Track& add_track(std::string name);

  // These two bracket each step, outside of its spans; they open and close the capture's window of steps. After its
  // last step the capture is handed on at once, however long the process lives.
  void begin_step();
  void end_step();

  // Says whether spans are being recorded.
  bool capturing() const noexcept;

  // The next drain sends what keep_steps holds back to the sink. Thread: any, also a signal handler.
  void capture() noexcept;
  // This is how things stood at the last drain, if keep_steps is set.
  struct Kept {
    uint64_t steps_seen = 0, steps_written = 0;
    std::chrono::nanoseconds slowest{0};
  };
  Kept kept() const;

  // Empties the rings into the sink now.
  void drain();

  // Ends the capture and finishes the sink, once. Returns what went wrong with the sink at any time.
  Status stop();

  // Returns how many events full rings had refused by the last drain.
  uint64_t dropped() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// These make the origins of the schema (docs/profiling.md), so that all who record agree on names and categories.

// A step is "ProfilerStep#<step>"; its values are step, n_ctx_req, n_ctx_tok, n_gen_req, n_gen_tok, drafted and
// accepted, its text is tokens. phase is "prefill", "decode" or "verify".
OriginInfo step_origin(std::string_view phase);
// A section of a step is prefill, decode, sample, or a layer.
OriginInfo section_origin(std::string_view name);
// A draft proposes tokens for one sequence, before the step that verifies them; its value is proposed.
OriginInfo draft_origin(std::string_view component);
// An op belongs to a step program; its values are bytes_read, bytes_written and
// flops. layer < 0: it belongs to no layer.
OriginInfo op_origin(std::string_view module_path, std::string_view component, std::string_view op, int64_t layer);
// A counter is kv_used_bytes, kv_blocks_used, tok_per_s, hbm_read_gbps and so on.
OriginInfo counter_origin(std::string_view name);
// A request is "req <id>".
OriginInfo request_origin();

}  // namespace tenon::trace
