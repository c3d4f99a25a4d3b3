// Slices, requests and flows are put by as small records, with names as numbers of a table, and checked in finish():
// slices of a track must lie one within the other, every begin must have its end, and a flow must lead from a slice to
// a slice.
#include "track_check.h"

#include <algorithm>
#include <limits>

#include "json_text.h"

namespace tenon::profiler {
namespace {

std::string micros(int64_t ns) {
  std::string text;
  append_micros(text, ns);
  return text;
}

uint32_t narrow(uint64_t line) {
  return static_cast<uint32_t>(std::min<uint64_t>(line, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

uint32_t TextTable::intern(std::string_view text) {
  constexpr size_t kMaxBytes = size_t{64} << 20U;
  constexpr size_t kMaxText = 256;
  text = text.substr(0, kMaxText);
  const auto known = ids_.find(std::string(text));
  if (known != ids_.end()) return known->second;
  if (bytes_ > kMaxBytes) return intern("(many)");
  bytes_ += text.size() + sizeof(std::string);
  const auto added = ids_.emplace(text, static_cast<uint32_t>(texts_.size())).first;
  texts_.push_back(&added->first);
  return added->second;
}

void TrackCheck::slice(TrackId track, int64_t ts, int64_t dur, std::string_view name, Place at) {
  tracks_[track].slices.push_back({ts, dur, at.offset, narrow(at.line), texts_.intern(name)});
}

void TrackCheck::begin(TrackId track, int64_t ts, std::string_view name, Place at) {
  tracks_[track].open.push_back({ts, 0, at.offset, narrow(at.line), texts_.intern(name)});
}

void TrackCheck::end(TrackId track, int64_t ts, std::string_view name, Place at) {
  Track& lane = tracks_[track];
  if (lane.open.empty()) {
    findings_.loss("begin-end", at, name, "E without an open B on its track", "write both, the B first");
    return;
  }
  Slice slice = lane.open.back();
  lane.open.pop_back();
  if (ts < slice.ts) {
    findings_.loss("begin-end", at, name, "E before its B", "an end is at or after its beginning");
    return;
  }
  slice.dur = ts - slice.ts;
  lane.slices.push_back(slice);
}

void TrackCheck::request(char phase, const PairKey& key, int64_t ts, Place at) {
  requests_.push_back({ts,
                       at.offset,
                       narrow(at.line),
                       texts_.intern(key.category),
                       texts_.intern(key.name),
                       texts_.intern(key.id),
                       {},
                       phase});
}

void TrackCheck::flow(char phase, const PairKey& key, TrackId track, int64_t ts, Place at) {
  const std::string scope = std::string(key.category) + '\n' + std::string(key.name);
  flows_.push_back({ts, at.offset, narrow(at.line), texts_.intern(scope), texts_.intern(key.name),
                    texts_.intern(key.id), track, phase});
}

void TrackCheck::finish() {
  for (auto& [id, track] : tracks_) check_nesting(track);
  check_requests();
  check_flows();
}

void TrackCheck::check_nesting(Track& track) {
  for (const Slice& open : track.open) {
    findings_.loss("begin-end", {open.offset, open.line}, texts_.at(open.name), "B without E", "write both");
  }
  std::ranges::sort(track.slices, [](const Slice& a, const Slice& b) {
    if (a.ts != b.ts) return a.ts < b.ts;
    return a.dur != b.dur ? a.dur > b.dur : a.offset < b.offset;
  });
  std::vector<const Slice*> stack;
  int64_t reach = 0;
  for (const Slice& slice : track.slices) {
    const int64_t end = slice.ts + slice.dur;
    track.reach.push_back(reach = std::max(reach, end));
    while (!stack.empty() && stack.back()->ts + stack.back()->dur <= slice.ts) stack.pop_back();
    if (!stack.empty()) {
      const Slice& outer = *stack.back();
      const int64_t late = end - (outer.ts + outer.dur);
      if (late > 0) {
        findings_.loss("overlap", {slice.offset, slice.line}, texts_.at(slice.name),
                       "ends " + std::to_string(late) + " ns after \"" + texts_.at(outer.name) + "\" (line " +
                           std::to_string(outer.line) + "), inside of which it begins at " + micros(slice.ts),
                       "slices of one track nest; put what runs beside it on a track of its own");
        continue;
      }
    }
    stack.push_back(&slice);
  }
}

void TrackCheck::sort_by_time(std::vector<Paired>& events) {
  std::ranges::sort(events,
                    [](const Paired& a, const Paired& b) { return a.ts != b.ts ? a.ts < b.ts : a.offset < b.offset; });
}

void TrackCheck::check_requests() {
  sort_by_time(requests_);
  std::map<std::pair<uint32_t, uint32_t>, std::vector<const Paired*>> open;
  for (const Paired& event : requests_) {
    auto& stack = open[{event.scope, event.id}];
    if (event.phase == 'b') {
      stack.push_back(&event);
    } else {
      check_request_end(stack, event);
    }
  }
  for (const auto& [key, stack] : open) {
    for (const Paired* event : stack) {
      findings_.loss("async-unpaired", place(*event), texts_.at(event->name), "b without e of the same cat and id",
                     "write an e, at the end of the trace if need be");
    }
  }
}

void TrackCheck::check_request_end(std::vector<const Paired*>& open, const Paired& end) {
  const std::string& name = texts_.at(end.name);
  const auto same_name = [&](const Paired* begin) { return begin->name == end.name; };
  if (open.empty()) {
    findings_.loss("async-unpaired", place(end), name, "e without an open b of the same cat and id", "write both");
    return;
  }
  if (same_name(open.back()) || name.empty()) return open.pop_back();
  const auto begin = std::find_if(open.rbegin(), open.rend(), same_name);
  if (begin == open.rend()) {
    findings_.loss("async-unpaired", place(end), name,
                   "e without an open b of its name; open is \"" + texts_.at(open.back()->name) + '"',
                   "an e has the cat, id and name of its b");
    return;
  }
  if (open.back()->ts == end.ts) {
    findings_.loss("async-order", place(end), name,
                   "comes after the b of \"" + texts_.at(open.back()->name) + "\" of the same time",
                   "at equal times write e before b");
  } else {
    findings_.loss("async-order", place(end), name,
                   "ends while \"" + texts_.at(open.back()->name) + "\" is open inside of it",
                   "end the inner one first");
  }
  open.erase(std::next(begin).base());
}

bool TrackCheck::encloses(TrackId track, int64_t ts) const {
  const auto lane = tracks_.find(track);
  if (lane == tracks_.end()) return false;
  const auto& slices = lane->second.slices;
  const auto after = std::ranges::upper_bound(slices, ts, {}, &Slice::ts);
  return after != slices.begin() && lane->second.reach[static_cast<size_t>(after - slices.begin()) - 1] >= ts;
}

void TrackCheck::check_flows() {
  sort_by_time(flows_);
  std::map<std::pair<uint32_t, uint32_t>, bool> starts;  // it says for scope and id whether something arrived
  std::map<uint32_t, uint32_t> start_scope;              // where each id's last "s" stood
  for (const Paired& flow : flows_) {
    if (!encloses(flow.track, flow.ts)) {
      findings_.loss("flow-unbound", place(flow), texts_.at(flow.name),
                     std::string(1, flow.phase) + " lies in no slice of its track",
                     "give it the pid, tid and a ts of the slice it belongs to");
    }
    if (flow.phase == 's') {
      starts.try_emplace({flow.scope, flow.id}, false);
      start_scope[flow.id] = flow.scope;
      continue;
    }
    const auto start = starts.find({flow.scope, flow.id});
    if (start != starts.end()) {
      start->second = true;
    } else {
      report_lone_flow(flow, start_scope);
    }
  }
  for (const Paired& flow : flows_) {
    if (flow.phase == 's' && !starts.at({flow.scope, flow.id})) {
      findings_.loss("flow-unpaired", place(flow), texts_.at(flow.name),
                     "s without a later f of the same cat, name and id", "write both");
    }
  }
}

void TrackCheck::report_lone_flow(const Paired& flow, const std::map<uint32_t, uint32_t>& start_scope) {
  const std::string phase(1, flow.phase);
  if (const auto other = start_scope.find(flow.id); other != start_scope.end()) {
    std::string scope = texts_.at(other->second);
    std::ranges::replace(scope, '\n', '/');
    findings_.loss("flow-mismatch", place(flow), texts_.at(flow.name),
                   phase + " has another cat or name than the s of its id (" + scope + ')',
                   "give both the same cat, name and id");
  } else {
    findings_.loss("flow-unpaired", place(flow), texts_.at(flow.name),
                   phase + " without an earlier s of the same cat, name and id",
                   "write both, the s not later than the f");
  }
}

}  // namespace tenon::profiler
