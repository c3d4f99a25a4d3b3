// The Reader goes over the slices of requests: first over waits and stays in slots, which make a request's life, then
// over the parts within them (chunks of the prompt, decoding, rests). All durations and percentiles are computed from
// those lives.
#include "tenon/profiler/request_stats.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "tenon/profiler/trace_stats.h"

namespace tenon::profiler {
namespace {

// Stops at the greatest int64, as a damaged trace may have absurd times. `ns` >= 0.
void add_to(int64_t& sum, int64_t ns) {
  if (__builtin_add_overflow(sum, ns, &sum)) sum = std::numeric_limits<int64_t>::max();
}

constexpr int64_t kMaxSlots = 1'000'000;

// Slices of the trace become lives: docs/profiling.md has their arguments.
class Reader {
 public:
  explicit Reader(const TraceFile& file)
      : file_(file),
        queue_(file.category_index("request_queue")),
        slot_(file.category_index("request")),
        part_(file.category_index("request_part")),
        rest_(file.category_index("request_rest")) {}

  Requests run();

 private:
  RequestLife& life_of(const TraceSlice& slice);
  void add_stay(uint32_t index);
  void add_part(uint32_t index);
  void find_first_tokens();
  void finish(RequestLife& life);
  int64_t integer(const TraceSlice& slice, std::string_view key, int64_t otherwise = 0) const {
    const std::optional<double> value = file_.number(slice, key);
    constexpr double kMost = 1e15;
    return value ? static_cast<int64_t>(std::clamp(*value, -kMost, kMost)) : otherwise;
  }

  const TraceFile& file_;
  const uint32_t queue_, slot_, part_, rest_;
  Requests out_;
  std::map<std::pair<uint32_t, int64_t>, size_t> ids_;  // the index by process and id
};

RequestLife& Reader::life_of(const TraceSlice& slice) {
  const std::pair key(file_.tracks[slice.track].process, integer(slice, "request"));
  const auto [at, is_new] = ids_.try_emplace(key, out_.all.size());
  if (is_new) {
    RequestLife& life = out_.all.emplace_back();
    life.process = key.first;
    life.id = key.second;
  }
  return out_.all[at->second];
}

void Reader::add_stay(uint32_t index) {
  const TraceSlice& slice = file_.slices[index];
  RequestLife& life = life_of(slice);
  RequestStay stay;
  stay.slice = index;
  stay.begin_ns = slice.begin_ns;
  stay.end_ns = slice.end_ns();
  life.prompt = integer(slice, "prompt");
  if (slice.category == queue_) {
    const double waited_us = std::clamp(file_.number(slice, "waited_us").value_or(0), 0.0, 1e15);
    stay.begin_ns = std::min(stay.begin_ns, stay.end_ns - static_cast<int64_t>(std::llround(waited_us * 1e3)));
    stay.again = file_.text(slice, "after").has_value();
    life.priority = integer(slice, "priority");
  } else {
    const std::string_view track = file_.tracks[slice.track].name;
    std::from_chars(track.data() + std::min(track.size(), track.find(' ') + 1), track.data() + track.size(), stay.slot);
    stay.slot = std::clamp<int64_t>(stay.slot, 0, kMaxSlots - 1);
    stay.cached = integer(slice, "cached");
    stay.tokens = integer(slice, "tokens");
    stay.lost = file_.text(slice, "lost").value_or("");
    stay.taker = integer(slice, "taker", -1);
    life.generated = std::max(life.generated, integer(slice, "generated"));
    out_.slots = std::max(out_.slots, stay.slot + 1);
  }
  if (stay.lost.empty()) life.end = std::max(life.end, file_.text(slice, "end").value_or(""));
  life.stays.push_back(std::move(stay));
}

// Stays are known and sorted.
void Reader::add_part(uint32_t index) {
  const TraceSlice& slice = file_.slices[index];
  RequestPart part;
  part.slice = index;
  part.begin_ns = slice.begin_ns;
  part.end_ns = slice.end_ns();
  part.is_prompt = file_.name(slice) == "prompt";
  part.first_step = integer(slice, part.is_prompt ? "step" : "first_step");
  part.last_step = part.is_prompt ? part.first_step : integer(slice, "last_step", -1);
  part.rows = integer(slice, part.is_prompt ? "rows" : "tokens");
  const bool rests = slice.category == rest_;
  uint32_t outer = file_.parent(index);
  if (rests && outer != kNoIndex) outer = file_.parent(outer);  // it lies in the slice of its decoding
  for (RequestStay& stay : life_of(slice).stays) {
    if (stay.slice == outer) (rests ? stay.rests : stay.parts).push_back(part);
  }
}

void Reader::find_first_tokens() {
  const uint32_t name = file_.strings.find("first token");
  for (const TraceInstant& instant : file_.instants) {
    if (instant.name != name || (instant.category != part_ && instant.category != slot_)) continue;
    const auto id = file_.args.number(instant.args, file_.strings.find("request"));
    const auto at = ids_.find({file_.tracks[instant.track].process, static_cast<int64_t>(id.value_or(-1))});
    if (at != ids_.end()) out_.all[at->second].first_token_ns = instant.ns;
  }
}

void Reader::finish(RequestLife& life) {
  for (RequestStay& stay : life.stays) {
    std::ranges::sort(stay.parts, {}, &RequestPart::begin_ns);
    std::ranges::sort(stay.rests, {}, &RequestPart::begin_ns);
    for (const RequestPart& part : stay.parts) {
      if (!part.is_prompt) stay.tokens += part.rows;
    }
  }
  life.arrived_ns = life.stays.front().begin_ns;
  life.ended_ns = life.stays.back().end_ns;
  life.is_whole = life.stays.front().waits() && !life.stays.front().again;
  const auto first = std::ranges::find_if(life.stays, [](const RequestStay& stay) { return !stay.waits(); });
  if (first != life.stays.end() && life.is_whole) life.cached = first->cached;
}

Requests Reader::run() {
  for (uint32_t i = 0; i < file_.slices.size(); ++i) {
    const uint16_t category = file_.slices[i].category;
    if (category == queue_ || category == slot_) add_stay(i);
  }
  // A wait of no time comes before the stay that begins with its end.
  const auto by_time = [](const RequestStay& stay) { return std::tuple(stay.begin_ns, stay.end_ns, !stay.waits()); };
  for (RequestLife& life : out_.all) std::ranges::stable_sort(life.stays, {}, by_time);
  for (uint32_t i = 0; i < file_.slices.size(); ++i) {
    const uint16_t category = file_.slices[i].category;
    if (category == part_ || category == rest_) add_part(i);
  }
  find_first_tokens();
  std::erase_if(out_.all, [](const RequestLife& life) { return life.stays.empty(); });
  for (RequestLife& life : out_.all) finish(life);
  std::ranges::stable_sort(out_.all, {}, [](const RequestLife& life) { return std::pair(life.arrived_ns, life.id); });
  const std::string_view slots = file_.meta("slots").value_or("");
  int64_t said = 0;
  std::from_chars(slots.data(), slots.data() + slots.size(), said);
  out_.slots = std::max(out_.slots, said);
  return std::move(out_);
}

int64_t overlap(int64_t begin_a, int64_t end_a, int64_t begin_b, int64_t end_b) {
  return std::max<int64_t>(0, std::min(end_a, end_b) - std::max(begin_a, begin_b));
}

}  // namespace

Requests requests_of(const TraceFile& trace) {
  return Reader(trace).run();
}

uint32_t RequestLife::preemptions() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(stays, [](const RequestStay& stay) { return !stay.lost.empty(); }));
}

int64_t RequestLife::queue_ns() const {
  const bool had_slot = std::ranges::any_of(stays, [](const RequestStay& stay) { return !stay.waits(); });
  return is_whole && had_slot ? stays.front().duration_ns() : kNoTime;
}

int64_t RequestLife::first_token_took_ns() const {
  return is_whole && first_token_ns != kNoTime ? first_token_ns - arrived_ns : kNoTime;
}

int64_t RequestLife::token_ns() const {
  if (end.empty() || first_token_ns == kNoTime || generated < 2) return kNoTime;
  return (ended_ns - first_token_ns) / (generated - 1);
}

int64_t RequestLife::total_ns() const {
  return is_whole && !end.empty() ? ended_ns - arrived_ns : kNoTime;
}

int64_t RequestLife::waited_ns() const {
  int64_t sum = 0;
  for (const RequestStay& stay : stays) add_to(sum, stay.waits() ? stay.duration_ns() : 0);
  return sum;
}

std::array<RequestPercentiles, 4> request_percentiles(const Requests& requests) {
  struct Time {
    const char* what;
    int64_t (RequestLife::*of)() const;
  };
  constexpr std::array<Time, 4> kTimes{{{"queue", &RequestLife::queue_ns},
                                        {"first token", &RequestLife::first_token_took_ns},
                                        {"per token", &RequestLife::token_ns},
                                        {"total", &RequestLife::total_ns}}};
  std::array<RequestPercentiles, 4> out;
  for (size_t i = 0; i < kTimes.size(); ++i) {
    std::vector<int64_t> times;
    for (const RequestLife& life : requests.all) {
      const int64_t ns = (life.*kTimes[i].of)();
      if (ns != kNoTime) times.push_back(ns);
    }
    std::ranges::sort(times);
    out[i].what = kTimes[i].what;
    out[i].requests = times.size();
    out[i].p50_ns = percentile(times, 0.5);
    out[i].p90_ns = percentile(times, 0.9);
    out[i].p99_ns = percentile(times, 0.99);
    out[i].max_ns = times.empty() ? 0 : times.back();
  }
  return out;
}

RequestWait who_ran_meanwhile(const Requests& requests, uint32_t request) {
  const RequestLife& waiting = requests.all[request];
  RequestWait out;
  out.waited_ns = waiting.waited_ns();
  std::vector<std::pair<int64_t, int>> changes;  // in the waits: when slots are taken (1) and left (-1)
  for (uint32_t i = 0; i < requests.all.size(); ++i) {
    const RequestLife& other = requests.all[i];
    if (i == request || other.process != waiting.process) continue;
    RequestHolder holder{.request = i};
    for (const RequestStay& stay : other.stays) {
      if (stay.waits()) continue;
      for (const RequestStay& wait : waiting.stays) {
        const int64_t ns = wait.waits() ? overlap(stay.begin_ns, stay.end_ns, wait.begin_ns, wait.end_ns) : 0;
        if (ns == 0) continue;
        holder.slot = stay.slot;
        add_to(holder.overlap_ns, ns);
        holder.tokens = std::max(holder.tokens, stay.tokens);
        changes.emplace_back(std::max(stay.begin_ns, wait.begin_ns), 1);
        changes.emplace_back(std::min(stay.end_ns, wait.end_ns), -1);
      }
    }
    if (holder.overlap_ns > 0) out.holders.push_back(holder);
  }
  std::ranges::stable_sort(out.holders, std::greater(), &RequestHolder::overlap_ns);
  std::ranges::sort(changes);
  int64_t taken = 0;
  for (size_t i = 0; i + 1 < changes.size(); ++i) {
    taken += changes[i].second;
    if (taken >= requests.slots) add_to(out.no_slot_ns, changes[i + 1].first - changes[i].first);
  }
  return out;
}

}  // namespace tenon::profiler
