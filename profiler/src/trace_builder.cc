// While events come they are only put by, each on its track. finish() does the work that needs all of them: it sorts
// each track, pairs begins with ends, nests slices into lanes by depth, lays spans that overlap (async ones) on rows,
// and ties flows to slices. What does not fit is left out and counted in a notice.
#include "trace_builder.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tenon::profiler {
namespace {

constexpr size_t kMaxTracks = 1U << 16U;  // there may be as many counters
constexpr size_t kMaxDepth = 512;
constexpr size_t kMaxRows = 64;  // async spans of one category are spread over so many at most

bool begins_first(const TraceSlice& a, const TraceSlice& b) {
  return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.duration_ns > b.duration_ns;
}

}  // namespace

void TraceBuilder::Staged::push(const TraceSlice& slice) {
  if (chunks_.empty() || chunks_.back().size() == chunks_.back().capacity()) {
    const size_t size = chunks_.empty() ? kFirstChunk : std::min(kLastChunk, chunks_.back().capacity() * 2);
    chunks_.emplace_back().reserve(size);
  }
  chunks_.back().push_back(slice);
}

template <typename Take>
void TraceBuilder::Staged::drain(Take take) {
  for (std::vector<TraceSlice>& chunk : chunks_) {
    for (const TraceSlice& slice : chunk) take(slice);
    chunk = std::vector<TraceSlice>();
  }
  chunks_.clear();
}

size_t TraceBuilder::KeyHash::operator()(const Key& key) const noexcept {
  const uint64_t mixed = (static_cast<uint64_t>(key.first) * 0x9E3779B97F4A7C15U) ^ static_cast<uint64_t>(key.second);
  return (mixed ^ mixed >> 29U) * 0xBF58476D1CE4E5B9U;
}

uint32_t TraceBuilder::process_index(int64_t pid) {
  const auto [at, is_new] = process_ids_.try_emplace(pid, static_cast<uint32_t>(file_.processes.size()));
  if (is_new) file_.processes.push_back({.pid = pid, .name = {}, .sort_index = 0});
  return at->second;
}

uint32_t TraceBuilder::new_track(uint32_t process) {
  file_.tracks.emplace_back().process = process;
  events_.emplace_back();
  return static_cast<uint32_t>(file_.tracks.size() - 1);
}

void TraceBuilder::stage(const TraceSlice& slice) {
  events_[slice.track].push(slice);
  ++(slice.depth == 'i' ? n_instants_ : n_slices_);
}

uint32_t TraceBuilder::thread(int64_t pid, int64_t tid) {
  const Key key{pid, tid};
  if (last_track_ != kNoIndex && key == last_thread_) return last_track_;
  auto at = threads_.find(key);
  if (at == threads_.end()) {
    if (file_.tracks.size() >= kMaxTracks) {
      ++too_many_tracks_;
      return kNoIndex;
    }
    at = threads_.emplace(key, new_track(process_index(pid))).first;
    file_.tracks.back().tid = tid;
  }
  last_thread_ = key;
  return last_track_ = at->second;
}

uint16_t TraceBuilder::category(std::string_view name) {
  const uint32_t text = file_.strings.intern(name);
  if (text == 0) return 0;
  const auto at = category_ids_.find(text);
  if (at != category_ids_.end()) return at->second;
  if (file_.categories.size() > std::numeric_limits<uint16_t>::max()) return 0;
  const auto index = static_cast<uint16_t>(file_.categories.size());
  file_.categories.push_back(text);
  category_ids_.emplace(text, index);
  return index;
}

void TraceBuilder::saw(int64_t begin_ns, int64_t end_ns) {
  file_.begin_ns = any_ ? std::min(file_.begin_ns, begin_ns) : begin_ns;
  file_.end_ns = any_ ? std::max(file_.end_ns, end_ns) : end_ns;
  any_ = true;
}

TraceSlice TraceBuilder::staged(const Event& event, uint32_t track) {
  saw(event.ns, event.ns + event.duration_ns);
  return {.begin_ns = event.ns,
          .duration_ns = event.duration_ns,
          .name = event.name,
          .args = event.args,
          .track = track,
          .category = category(event.category),
          .depth = static_cast<unsigned char>(event.phase)};
}

void TraceBuilder::add(int64_t pid, int64_t tid, const Event& event) {
  const uint32_t track = thread(pid, tid);
  if (track != kNoIndex) stage(staged(event, track));
}

void TraceBuilder::add_async(int64_t pid, int64_t scope, std::string_view id, const Event& event) {
  const uint64_t within = KeyHash{}({scope, category(event.category)});
  const uint64_t hash = std::hash<std::string_view>{}(id);
  async_.push_back(
      {staged(event, process_index(pid)), KeyHash{}({static_cast<int64_t>(hash), static_cast<int64_t>(within)})});
}

void TraceBuilder::add_counter(int64_t pid, std::string_view name, int64_t ns, double value) {
  const uint32_t process = process_index(pid);
  auto at = counter_ids_.find(std::pair<uint32_t, std::string>(process, name));
  if (at == counter_ids_.end()) {
    if (file_.counters.size() == kMaxTracks) {
      ++too_many_tracks_;
      return;
    }
    at =
        counter_ids_.emplace(std::pair(process, std::string(name)), static_cast<uint32_t>(file_.counters.size())).first;
    file_.counters.push_back({process, std::string(name), {}});
  }
  file_.counters[at->second].points.push_back({ns, value});
  saw(ns, ns);
}

void TraceBuilder::add_flow(int64_t pid, int64_t tid, char phase, uint64_t id, int64_t ns) {
  const uint32_t track = thread(pid, tid);
  if (track != kNoIndex) flow_ends_.push_back({id, ns, track, phase});
}

void TraceBuilder::name_thread(int64_t pid, int64_t tid, std::string name) {
  const uint32_t track = thread(pid, tid);
  if (track != kNoIndex) file_.tracks[track].name = std::move(name);
}

void TraceBuilder::sort_thread(int64_t pid, int64_t tid, int64_t index) {
  const uint32_t track = thread(pid, tid);
  if (track != kNoIndex) file_.tracks[track].sort_index = index;
}

// Frees what is no longer needed on the way: all events are there twice for a moment.
void TraceBuilder::finish() {
  file_.args.freeze();
  counter_ids_.clear();
  lay_out_async();
  order_tracks();
  place_events();
  link_flows();
  for (TraceCounter& counter : file_.counters) {
    std::ranges::stable_sort(counter.points, {}, &TraceCounter::Point::ns);
  }
  notice(too_many_tracks_, "events on more than 65536 tracks are left out");
  notice(without_begin_, "ends without a begin are left out");
  notice(without_end_, "begins without an end are drawn to the end of the trace");
  notice(too_deep_, "slices nested deeper than 512 are left out");
  notice(overlapping_, "slices end after the one they begin in; they are drawn below it");
  notice(loose_flows_, "flows lead from or to no slice and are left out");
}

void TraceBuilder::notice(uint64_t count, const char* what) {
  if (count > 0) file_.notices.push_back(std::to_string(count) + ' ' + what);
}

size_t TraceBuilder::pair_up(TraceSlice* first, TraceSlice* last) {
  const auto phase = [](const TraceSlice& s) { return static_cast<char>(s.depth | 0x20); };
  if (std::all_of(first, last, [&](const TraceSlice& s) { return phase(s) == 'x'; })) {
    return static_cast<size_t>(last - first);
  }
  std::stable_sort(first, last, [](const TraceSlice& a, const TraceSlice& b) { return a.begin_ns < b.begin_ns; });
  std::vector<TraceSlice*> open;
  TraceSlice* kept = first;
  for (TraceSlice* s = first; s != last; ++s) {
    if (phase(*s) != 'e') {
      if (phase(*s) == 'b') open.push_back(kept);
      *kept++ = *s;
    } else if (open.empty()) {
      ++without_begin_;
    } else {
      TraceSlice& begin = *open.back();
      open.pop_back();
      begin.duration_ns = s->begin_ns - begin.begin_ns;
      if (begin.args == 0) begin.args = s->args;
    }
  }
  for (TraceSlice* s : open) s->duration_ns = file_.end_ns - s->begin_ns;
  without_end_ += open.size();
  return static_cast<size_t>(kept - first);
}

std::vector<TraceSlice> TraceBuilder::pair_up_async(std::vector<AsyncId>& ids) {
  std::ranges::stable_sort(async_, {}, &AsyncEvent::id);
  std::vector<TraceSlice> events;
  events.reserve(async_.size());
  while (!async_.empty()) {
    const uint64_t id = async_.front().id;
    const uint32_t process = async_.front().slice.track;
    const auto first = static_cast<ptrdiff_t>(events.size());
    for (; !async_.empty() && async_.front().id == id; async_.pop_front()) {
      events.push_back(async_.front().slice);
      events.back().track = process;
    }
    const auto begin = events.begin() + first;
    const auto moments = std::stable_partition(begin, events.end(), [](const TraceSlice& s) { return s.depth != 'n'; });
    const size_t paired = pair_up(events.data() + first, events.data() + (moments - events.begin()));
    events.erase(begin + static_cast<ptrdiff_t>(paired), moments);
    if (begin == events.end()) continue;
    AsyncId entry{static_cast<uint32_t>(first), static_cast<uint32_t>(events.end() - begin), begin->begin_ns,
                  begin->end_ns()};
    for (auto s = begin; s != events.end(); ++s) {
      entry.begin_ns = std::min(entry.begin_ns, s->begin_ns);
      entry.end_ns = std::max(entry.end_ns, s->end_ns());
    }
    ids.push_back(entry);
  }
  return events;
}

// Ids of one category of a process share a row where they do not overlap.
void TraceBuilder::lay_out_async() {
  std::vector<AsyncId> ids;
  const std::vector<TraceSlice> events = pair_up_async(ids);
  const auto group = [&](const AsyncId& id) { return std::pair(events[id.first].track, events[id.first].category); };
  std::ranges::sort(ids, {}, [&](const AsyncId& id) { return std::tuple(group(id), id.begin_ns, id.first); });
  std::vector<std::pair<int64_t, uint32_t>> rows;  // a row has the time when it is free, and its track
  for (size_t i = 0; i < ids.size(); ++i) {
    const AsyncId& id = ids[i];
    const auto [process, category] = group(id);
    if (i == 0 || group(ids[i - 1]) != group(id)) rows.clear();
    auto row = std::ranges::find_if(rows, [&](const auto& r) { return r.first <= id.begin_ns; });
    if (row == rows.end() && rows.size() == kMaxRows) --row;
    if (row == rows.end()) {
      rows.emplace_back(std::numeric_limits<int64_t>::min(), new_track(process));
      row = rows.end() - 1;
      TraceTrack& track = file_.tracks.back();
      track.kind = TraceTrack::Kind::kAsync;
      track.tid = static_cast<int64_t>(rows.size());
      track.name = file_.strings[file_.categories[category]];
    }
    row->first = std::max(row->first, id.end_ns);
    for (uint32_t e = id.first; e < id.first + id.count; ++e) {
      TraceSlice slice = events[e];
      slice.track = row->second;
      slice.depth = slice.depth == 'n' ? 'i' : 'X';
      stage(slice);
    }
  }
}

std::string TraceBuilder::name_of(const char* what, int64_t id) const {
  if (id > kFirstTextId) return what + std::to_string(id);
  return std::string(file_.strings[static_cast<uint32_t>(kFirstTextId - id)]);
}

void TraceBuilder::order_tracks() {
  for (TraceProcess& p : file_.processes) {
    if (p.name.empty()) p.name = name_of("process ", p.pid);
  }
  for (TraceTrack& t : file_.tracks) {
    if (t.name.empty()) t.name = t.kind == TraceTrack::Kind::kAsync ? "async" : name_of("thread ", t.tid);
  }
  std::vector<uint32_t> order(file_.tracks.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto key = [this](uint32_t i) {
    const TraceTrack& t = file_.tracks[i];
    const TraceProcess& p = file_.processes[t.process];
    return std::tuple(p.sort_index, p.pid, t.kind == TraceTrack::Kind::kThread, t.sort_index, t.tid);
  };
  std::ranges::stable_sort(order, {}, key);
  std::vector<TraceTrack> tracks;
  std::vector<Staged> events;
  std::vector<uint32_t> new_index(order.size());
  for (const uint32_t from : order) {
    new_index[from] = static_cast<uint32_t>(tracks.size());
    tracks.push_back(std::move(file_.tracks[from]));
    events.push_back(std::move(events_[from]));
  }
  file_.tracks = std::move(tracks);
  events_ = std::move(events);
  for (FlowEnd& end : flow_ends_) end.track = new_index[end.track];
}

void TraceBuilder::place_events() {
  std::vector<TraceSlice>& slices = file_.slices;
  std::vector<TraceInstant>& instants = file_.instants;
  slices.reserve(n_slices_);
  instants.reserve(n_instants_);
  for (uint32_t t = 0; t < file_.tracks.size(); ++t) {
    TraceTrack& track = file_.tracks[t];
    const size_t first = slices.size();
    track.first_instant = static_cast<uint32_t>(instants.size());
    events_[t].drain([&](TraceSlice s) {
      s.track = t;
      if (s.depth != 'i') return slices.push_back(s);
      instants.push_back({s.begin_ns, s.name, s.args, t, s.category});
    });
    track.end_instant = static_cast<uint32_t>(instants.size());
    std::stable_sort(instants.begin() + track.first_instant, instants.end(),
                     [](const TraceInstant& a, const TraceInstant& b) { return a.ns < b.ns; });
    TraceSlice* const begin = slices.data() + first;
    const size_t paired = pair_up(begin, slices.data() + slices.size());
    slices.resize(first + nest(begin, begin + paired, track, static_cast<uint32_t>(first)));
  }
}

size_t TraceBuilder::nest(TraceSlice* first, TraceSlice* last, TraceTrack& track, uint32_t offset) {
  if (!std::is_sorted(first, last, begins_first)) std::stable_sort(first, last, begins_first);
  std::vector<int64_t> open;  // ends
  std::vector<uint32_t> sizes;
  for (TraceSlice* s = first; s != last; ++s) {
    while (!open.empty() && open.back() <= s->begin_ns) open.pop_back();
    s->depth = static_cast<uint16_t>(std::min(open.size(), kMaxDepth));
    if (open.size() >= kMaxDepth) {
      ++too_deep_;
      continue;
    }
    if (!open.empty() && s->end_ns() > open.back()) ++overlapping_;
    if (open.size() == sizes.size()) sizes.push_back(0);
    ++sizes[open.size()];
    open.push_back(s->end_ns());
  }
  track.lanes.assign(1, offset);
  for (const uint32_t size : sizes) track.lanes.push_back(track.lanes.back() + size);
  if (sizes.empty()) track.lanes.clear();
  const size_t kept = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  if (sizes.size() > 1) {
    std::vector<TraceSlice> by_depth(kept);
    std::vector<uint32_t> next(track.lanes.begin(), track.lanes.end());
    for (const TraceSlice* s = first; s != last; ++s) {
      if (s->depth < sizes.size()) by_depth[next[s->depth]++ - offset] = *s;
    }
    std::ranges::copy(by_depth, first);
  }
  return kept;
}

void TraceBuilder::link_flows() {
  std::ranges::stable_sort(flow_ends_,
                           [](const FlowEnd& a, const FlowEnd& b) { return a.id != b.id ? a.id < b.id : a.ns < b.ns; });
  const auto bound = [this](const FlowEnd& end) {
    uint32_t found = kNoIndex;
    for (size_t d = 0; d < file_.tracks[end.track].depth(); ++d) {
      const uint32_t deeper = file_.slice_at(end.track, d, end.ns);
      if (deeper == kNoIndex) break;
      found = deeper;
    }
    return found;
  };
  uint32_t from = kNoIndex;
  for (size_t i = 0; i < flow_ends_.size(); ++i) {
    const FlowEnd& end = flow_ends_[i];
    const uint32_t slice = bound(end);
    if (i == 0 || flow_ends_[i - 1].id != end.id) from = kNoIndex;
    if (slice == kNoIndex || (from == kNoIndex && end.phase != 's')) {
      ++loose_flows_;
      continue;
    }
    if (end.phase != 's') file_.flows.push_back({from, slice});
    if (end.phase != 'f') from = slice;
  }
  std::ranges::stable_sort(file_.flows, {}, &TraceFlow::from);
}

}  // namespace tenon::profiler
