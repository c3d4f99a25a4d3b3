// Recording what happened, when and on which thread, at a cost that a step can bear.
//
// A Recorder owns one Track per thread. A track is a single-producer ring of 32-byte records {tick, site, payload}; a
// site is what all events of one place have in common and is interned once, at set-up, so that recording an event
// copies no text. A drain thread of the recorder empties the rings every few milliseconds into a Sink (trace_sink.h),
// so that a long run does not overflow them; what a full ring refuses is counted and reported, never hidden. Ticks are
// the TSC where it is constant and nonstop, else clock_gettime; they become nanoseconds on draining, through pairs of
// both clocks. That conversion and the ticks of one track are monotone, so spans that nest when recorded nest in the
// trace, to the nanosecond.
//
//   trace::Recorder recorder({.skip_steps = 2, .steps = 8}, std::move(sink));   // set-up
//   trace::SiteId matmul = recorder.add_site(trace::op_site("layers.0.qkv", "quantization.none", "matmul", 0));
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

using SiteId = uint32_t;

inline constexpr size_t kMaxValues = 10;  // that one event can carry
inline constexpr size_t kMaxText = 1024;  // bytes that one span can carry; what is longer is cut

enum class SiteKind : uint8_t {
  kSpan,     // an interval on the thread's track
  kInstant,  // a moment on the thread's track
  kCounter,  // a value over time, of the whole process
  kRequest,  // an interval or a moment in the life of one request, on the request's own track
};

enum class RequestPhase : uint8_t { kBegin, kInstant, kEnd };

struct Arg {
  std::string name;
  std::variant<int64_t, uint64_t, double, std::string> value;
};

// A site is what all events of one place share.
struct SiteInfo {
  SiteKind kind = SiteKind::kSpan;
  std::string name = {};
  std::string category = {};
  std::vector<Arg> args = {};            // the same for each event
  std::vector<std::string> values = {};  // names of what each event carries beside them; at most kMaxValues
  std::string text = {};                 // name of the text that a span may carry beside them
  bool numbered = false;  // the first value, or a request's id, is appended to the name: "ProfilerStep#7", "req 17"
};

enum class Gate : uint8_t { kClosed, kRequests, kOpen };

// Where one thread records. Made by Recorder::add_track; a default-constructed one records nothing, for code that runs
// untraced. Thread: one at a time, the one that is named by the track; recording() from any. Nothing here allocates,
// blocks or throws. Lives as long as its recorder.
class Track {
 public:
  Track() noexcept;
  ~Track();
  Track(const Track&) = delete;
  Track& operator=(const Track&) = delete;

  // Says whether spans, instants and counters are wanted now. If they are not, this is all that they cost.
  bool recording() const noexcept { return gate_.load(std::memory_order_relaxed) == Gate::kOpen; }

  // The time, in ticks of this recorder's clock. Never before what this track returned last. Not on a
  // default-constructed track.
  uint64_t now() noexcept;

  // A span from `begin` to `end`, both from now(). For loops in which one span's end is the next one's beginning; else
  // use Span. Spans of one track must nest. text: UTF-8.
  void span(SiteId site, uint64_t begin, uint64_t end, std::span<const uint64_t> values = {},
            std::string_view text = {}) noexcept;

  // These three ask recording() themselves. A request's phases nest, and one phase ends before the next begins.
  // Requests are recorded from the start of the capture, also while steps are skipped, so that none lacks its
  // beginning.
  void instant(SiteId site, std::span<const uint64_t> values = {}) noexcept;
  void counter(SiteId site, double value) noexcept;
  void request(RequestPhase phase, SiteId site, uint64_t id) noexcept;

 private:
  friend class Recorder;
  Track(const TickClock& clock, uint32_t ring_records, Gate gate);

  std::atomic<Gate> gate_;
  uint64_t last_tick_ = 0;
  const TickClock* clock_ = nullptr;
  std::unique_ptr<Ring> ring_;
};

// A span from construction to destruction. A span that begins while the gate is open is recorded although it closes
// meanwhile.
class Span {
 public:
  Span(Track& track, SiteId site) noexcept : track_(track.recording() ? &track : nullptr), site_(site) {
    if (track_ != nullptr) [[unlikely]]
      begin_ = track_->now();
  }
  ~Span() {
    if (track_ != nullptr) [[unlikely]]
      track_->span(site_, begin_, track_->now(), {values_.data(), n_values_}, text_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // Says whether it will be recorded, for values that are costly to gather.
  bool active() const noexcept { return track_ != nullptr; }

  // Sets what the span carries, in the order of SiteInfo::values. More than kMaxValues are cut.
  void set(std::initializer_list<uint64_t> values) noexcept {
    n_values_ = 0;
    for (const uint64_t value : values) {
      if (n_values_ < kMaxValues) values_[n_values_++] = value;
    }
  }
  // Borrowed until the span ends.
  void set_text(std::string_view text) noexcept { text_ = text; }

 private:
  Track* track_;
  SiteId site_;
  uint32_t n_values_ = 0;
  uint64_t begin_ = 0;
  std::string_view text_;
  std::array<uint64_t, kMaxValues> values_;
};

enum class ClockSource : uint8_t { kBest, kMonotonic };

struct RecorderOptions {
  uint64_t skip_steps =
      0;               // let that many steps pass before spans are recorded; 0 also records what precedes the first
  uint64_t steps = 0;  // then record that many and end the capture; 0 = until stop()
  // > 0: the events of the newest so many steps are held back; they, and nothing else of what spans, instants and
  // counters say, reach the sink when a step takes slow_step (0 = none does) or capture() asks for them. `steps` counts
  // the steps that did. An event held back takes some 200 bytes.
  uint32_t keep_steps = 0;
  std::chrono::nanoseconds slow_step{0};
  // With keep_steps, if there is one: told of each step, in their order, whether it is written; the first that begins
  // is 0, and those that are still held at the end are not. On the thread that drains, which waits for it.
  std::function<void(uint64_t step, bool written)> decided = {};
  uint32_t ring_records = 1U << 15U;             // per thread, 32 bytes each; rounded up to a power of two
  std::chrono::milliseconds drain_interval{10};  // 0 = no drain thread: drain() and stop() alone empty the rings
  ClockSource clock = ClockSource::kBest;
};

// One capture. Thread: add_site, add_track and drain from any; begin_step and end_step from the one that runs the
// steps; stop and destruction after the last of them. Threads may go on recording into their tracks at any time until
// destruction.
class Recorder {
 public:
  // Takes the sink; its errors do not interrupt the run: they end the capture and are returned by stop().
  Recorder(RecorderOptions options, std::unique_ptr<Sink> sink);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // [setup] Once per place and set of args. Throws Error(kInternal) for more than kMaxValues values.
  SiteId add_site(SiteInfo info);

  // [setup] Once per thread, on that thread.
  Track& add_track(std::string name);

  // Bracket each step, outside of its spans; they open and close the capture's window of steps. After its last step the
  // capture is handed on at once, however long the process lives.
  void begin_step();
  void end_step();

  // Says whether spans are being recorded.
  bool capturing() const noexcept;

  // With keep_steps: what is held back goes to the sink with the next drain. Thread: any; also from a signal handler.
  void capture() noexcept;
  // With keep_steps, as of the last drain.
  struct Kept {
    uint64_t steps_seen = 0, steps_written = 0;
    std::chrono::nanoseconds slowest{0};
  };
  Kept kept() const;

  // Empties the rings into the sink now.
  void drain();

  // Ends the capture and finishes the sink, once; says what went wrong with it at any time.
  Status stop();

  // Events lost to full rings so far, as of the last drain.
  uint64_t dropped() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The sites of the schema (docs/profiling.md), so that all who record agree on names and categories.

// "ProfilerStep#<step>"; values: step, n_ctx_req, n_ctx_tok, n_gen_req, n_gen_tok, drafted, accepted; text: tokens.
// phase: "prefill", "decode" or "verify".
SiteInfo step_site(std::string_view phase);
// A part of a step: prefill, decode, sample, a layer.
SiteInfo section_site(std::string_view name);
// What a draft took to propose tokens for one sequence, before the step that verifies them; value: proposed.
SiteInfo draft_site(std::string_view component);
// One operation of the step program; values: bytes_read, bytes_written, flops. layer < 0 = belongs to no layer.
SiteInfo op_site(std::string_view module_path, std::string_view component, std::string_view op, int64_t layer);
// kv_used_bytes, kv_blocks_used, tok_per_s, hbm_read_gbps, ...
SiteInfo counter_site(std::string_view name);
// "req <id>", the whole life of a request.
SiteInfo request_site();
// A part or a moment of that life: queued, prefill, decode, first token.
SiteInfo request_phase_site(std::string_view name);

}  // namespace tenon::trace
