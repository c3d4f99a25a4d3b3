// The drain works under one lock: it reads how far each track's ring is filled, takes a pair of both clocks, and passes
// the records up to there to the sink as events in nanoseconds. A record is always older than the last pair of clocks,
// so its time is interpolated and never guessed.
//
// With keep_steps the drain passes events to KeptSteps, which decides step by step which of them the sink gets. A
// thread records an event without a lock (track.cc): a full ring refuses the event instead.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "clock.h"
#include "kept_steps.h"
#include "ring.h"
#include "tenon/core/trace_sink.h"

namespace tenon::trace {
namespace {

// A recorder that keeps steps may live for days; no span is longer than this.
constexpr int64_t kForgetNs = 600'000'000'000;

}  // namespace

class Recorder::Impl {
 public:
  Impl(RecorderOptions options, std::unique_ptr<Sink> sink);

  OriginId add_origin(OriginInfo info);
  Track& add_track(std::string name);
  void begin_step();
  void end_step();
  bool capturing() const noexcept { return gate_.load(std::memory_order_relaxed) == Gate::kOpen; }
  void capture() noexcept { wanted_.store(true, std::memory_order_relaxed); }
  Kept kept() const;
  void drain();
  Status stop();
  uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

 private:
  struct StepTicks {
    uint64_t number, begin, end;
  };

  struct KnownTrack {
    KnownTrack(TrackInfo told, const TickClock& clock, uint32_t ring_records, Gate gate)
        : info(std::move(told)), track(clock, ring_records, gate) {}

    TrackInfo info;
    Track track;
    uint64_t known_dropped = 0;
  };

  void set_gate(Gate gate);
  void drain_loop(const std::stop_token& stop);
  void drain_locked();
  void pass_on_all();
  uint64_t pass_on(uint32_t index, Ring& ring, uint64_t head);
  void take_steps();
  void say_what_is_wanted(Drain& drain) const;
  void introduce();
  void finish_locked();
  void lose() noexcept;

  const RecorderOptions options_;
  const TickClock clock_;
  TickConverter converter_;
  std::unique_ptr<Sink> sink_;
  std::atomic<Gate> gate_;
  std::atomic<uint64_t> dropped_{0};
  uint64_t steps_begun_ = 0;
  uint64_t step_begin_ = 0;  // ticks, with keep_steps
  std::atomic<bool> wanted_{false};
  std::mutex steps_mutex_;  // it is held for so short a time that a step can wait for it
  std::vector<StepTicks> ended_steps_;

  mutable std::mutex mutex_;  // guards all below, the converter and the sink
  std::condition_variable_any wake_;
  std::deque<OriginInfo> origins_;
  std::deque<KnownTrack> tracks_;
  size_t introduced_origins_ = 0;
  size_t introduced_tracks_ = 0;
  std::vector<uint64_t> heads_;
  std::vector<Drop> drops_;
  std::vector<StepTicks> taken_steps_;
  std::optional<KeptSteps> kept_;
  std::string text_;
  int64_t previous_ns_ = 0;
  bool ended_ = false;     // no step will be recorded any more
  bool finished_ = false;  // the sink is done or has failed
  bool out_of_memory_ = false;
  Status status_;
  std::jthread thread_;
};

Recorder::Impl::Impl(RecorderOptions options, std::unique_ptr<Sink> sink)
    : options_(std::move(options)),
      clock_(options_.clock),
      converter_(clock_),
      sink_(std::move(sink)),
      gate_(options_.skip_steps == 0 ? Gate::kOpen : Gate::kRequests) {
  if (options_.keep_steps > 0) kept_.emplace(options_.keep_steps, options_.slow_step.count(), options_.decided);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  sink_->begin({int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec, clock_.tsc()});
  if (options_.drain_interval.count() <= 0) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { drain_loop(stop); });
  } catch (const std::system_error& e) {
    throw Error(ErrorCode::kInternal, "trace: the thread that writes it cannot be started: " + e.code().message());
  }
}

OriginId Recorder::Impl::add_origin(OriginInfo info) {
  if (info.values.size() > kMaxValues) {
    throw Error(ErrorCode::kInternal, "trace origin \"" + info.name + "\" names " + std::to_string(info.values.size()) +
                                          " values; an event carries at most " + std::to_string(kMaxValues));
  }
  const std::lock_guard lock(mutex_);
  origins_.push_back(std::move(info));
  return static_cast<OriginId>(origins_.size() - 1);
}

Track& Recorder::Impl::add_track(std::string name) {
  const std::lock_guard lock(mutex_);
  const Gate gate = gate_.load(std::memory_order_relaxed);
  return tracks_.emplace_back(TrackInfo{std::move(name), gettid()}, clock_, options_.ring_records, gate).track;
}

void Recorder::Impl::set_gate(Gate gate) {
  gate_.store(gate, std::memory_order_relaxed);
  for (KnownTrack& known : tracks_) known.track.gate_.store(gate, std::memory_order_relaxed);
}

void Recorder::Impl::begin_step() {
  if (kept_) step_begin_ = clock_.ticks();
  if (steps_begun_++ != options_.skip_steps || options_.skip_steps == 0) return;
  const std::lock_guard lock(mutex_);
  if (!finished_) set_gate(Gate::kOpen);
}

void Recorder::Impl::end_step() {
  if (kept_) {
    if (!capturing()) return;
    const uint64_t end = clock_.ticks();
    const std::lock_guard lock(steps_mutex_);
    ended_steps_.push_back({steps_begun_ - 1, step_begin_, end});
    return;
  }
  if (options_.steps == 0 || steps_begun_ != options_.skip_steps + options_.steps) return;
  {
    const std::lock_guard lock(mutex_);
    set_gate(Gate::kClosed);
    ended_ = true;
  }
  wake_.notify_one();
}

void Recorder::Impl::drain_loop(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!finished_) {
    wake_.wait_for(lock, stop, options_.drain_interval, [this] { return ended_; });
    if (stop.stop_requested()) return;
    drain_locked();
    if (ended_) finish_locked();
  }
}

void Recorder::Impl::introduce() {
  for (; introduced_origins_ < origins_.size(); ++introduced_origins_) {
    sink_->origin(static_cast<OriginId>(introduced_origins_), origins_[introduced_origins_]);
  }
  for (; introduced_tracks_ < tracks_.size(); ++introduced_tracks_) {
    sink_->track(static_cast<uint32_t>(introduced_tracks_), tracks_[introduced_tracks_].info);
  }
}

uint64_t Recorder::Impl::pass_on(uint32_t index, Ring& ring, uint64_t head) {
  uint64_t events = 0;
  uint64_t i = ring.tail();
  while (i != head) {
    const Record& record = ring.at(i++);
    std::array<uint64_t, 1 + kMaxValues + kValuesPerRecord> values{record.value};
    for (size_t n = 1; n < record.n_values; n += kValuesPerRecord) {
      const auto block = std::bit_cast<std::array<uint64_t, kValuesPerRecord>>(ring.at(i++));
      std::copy(block.begin(), block.end(), values.begin() + static_cast<ptrdiff_t>(n));
    }
    Event event{
        .origin = record.origin, .track = index, .request = record.request, .begin_ns = converter_.to_ns(record.begin)};
    event.values = {values.data(), record.n_values};
    if (record.kind == RecordKind::kSpan) event.end_ns = converter_.to_ns(record.end);
    if (record.kind == RecordKind::kCounter) event.value = std::bit_cast<double>(record.end);
    if (record.kind == RecordKind::kRequest) event.id = record.end;
    if (record.text_records > 0) {
      ring.read_text(i, record.text_records, text_);
      event.text = text_;
      i += record.text_records;
    }
    if (kept_ && record.kind != RecordKind::kRequest) {
      kept_->event(event, *sink_);
    } else {
      sink_->event(event);
      ++events;
    }
  }
  ring.release(head);
  return events;
}

void Recorder::Impl::say_what_is_wanted(Drain& drain) const {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max(), kNone = -1;
  const bool skipping = gate_.load(std::memory_order_relaxed) == Gate::kRequests;
  drain.decided_ns = kept_ && !skipping ? kept_->decided_ns() : kAll;
  drain.wanted_ns = skipping ? kNone : kept_ ? kept_->passed_ns() : kAll;
}

// Takes the steps whose events are all in the rings.
void Recorder::Impl::take_steps() {
  const std::lock_guard lock(steps_mutex_);
  taken_steps_.clear();
  std::swap(taken_steps_, ended_steps_);
}

// Ends the trace, not the process, where there is no memory for it. Nothing here may allocate.
void Recorder::Impl::lose() noexcept {
  out_of_memory_ = true;
  finished_ = true;
  set_gate(Gate::kClosed);
  sink_.reset();
}

void Recorder::Impl::drain_locked() {
  if (finished_) return;
  try {
    pass_on_all();
  } catch (const std::bad_alloc&) {
    lose();
  }
}

void Recorder::Impl::pass_on_all() {
  if (kept_) take_steps();
  introduce();
  // The heads are read before the clock, so that no record is younger than the last pair.
  heads_.clear();
  drops_.clear();
  for (KnownTrack& known : tracks_) {
    heads_.push_back(known.track.ring_->head());
    const uint64_t dropped = known.track.ring_->dropped();
    if (dropped != known.known_dropped) {
      drops_.push_back({static_cast<uint32_t>(heads_.size() - 1), dropped - known.known_dropped});
      dropped_.fetch_add(dropped - known.known_dropped, std::memory_order_relaxed);
      known.known_dropped = dropped;
    }
  }
  converter_.sample();
  Drain drain{};
  drain.previous_ns = previous_ns_;
  drain.begin_ns = converter_.last_ns();
  drain.drops = drops_;
  const uint64_t passed_before = kept_ ? kept_->events_passed() : 0;
  for (const StepTicks& step : taken_steps_) {
    kept_->step(step.number, converter_.to_ns(step.begin), converter_.to_ns(step.end));
  }
  for (uint32_t i = 0; i < heads_.size(); ++i) drain.events += pass_on(i, *tracks_[i].track.ring_, heads_[i]);
  if (kept_) {
    kept_->decide(*sink_);
    if (wanted_.exchange(false, std::memory_order_relaxed)) kept_->pass_on(*sink_);
    drain.events += kept_->events_passed() - passed_before;
    converter_.forget_before(converter_.last_ns() - kForgetNs);
  }
  converter_.sample();
  drain.end_ns = converter_.last_ns();
  previous_ns_ = drain.begin_ns;
  say_what_is_wanted(drain);
  status_ = sink_->drained(drain);
  if (!status_.ok()) {
    finished_ = true;
    set_gate(Gate::kClosed);
    sink_.reset();  // gives back what it holds, such as the space on a full disk
  } else if (kept_ && options_.steps > 0 && kept_->counts().steps_written >= options_.steps) {
    set_gate(Gate::kClosed);
    ended_ = true;
  }
}

Recorder::Kept Recorder::Impl::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_ ? kept_->counts() : Kept{};
}

void Recorder::Impl::finish_locked() {
  if (finished_) return;
  finished_ = true;
  try {
    status_ = sink_->finish({converter_.last_ns(), dropped()});
    sink_.reset();
  } catch (const std::bad_alloc&) {
    lose();
  }
}

void Recorder::Impl::drain() {
  const std::lock_guard lock(mutex_);
  drain_locked();
}

Status Recorder::Impl::stop() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  const std::lock_guard lock(mutex_);
  set_gate(Gate::kClosed);
  drain_locked();
  finish_locked();
  if (out_of_memory_) return Status::error(ErrorCode::kMemory, "trace: out of memory; the run went on without a trace");
  return status_;
}

Recorder::Recorder(RecorderOptions options, std::unique_ptr<Sink> sink)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(sink))) {}
Recorder::~Recorder() {
  try {
    static_cast<void>(impl_->stop());
  } catch (const std::bad_alloc&) {
    // There is no memory to say so, and nobody to say it to.
  }
}
OriginId Recorder::add_origin(OriginInfo info) {
  return impl_->add_origin(std::move(info));
}
Track& Recorder::add_track(std::string name) {
  return impl_->add_track(std::move(name));
}
void Recorder::begin_step() {
  impl_->begin_step();
}
void Recorder::end_step() {
  impl_->end_step();
}
bool Recorder::capturing() const noexcept {
  return impl_->capturing();
}
void Recorder::capture() noexcept {
  impl_->capture();
}
Recorder::Kept Recorder::kept() const {
  return impl_->kept();
}
void Recorder::drain() {
  impl_->drain();
}
Status Recorder::stop() {
  return impl_->stop();
}
uint64_t Recorder::dropped() const noexcept {
  return impl_->dropped();
}

}  // namespace tenon::trace
