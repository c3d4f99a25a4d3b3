// Each event adds a slice to the stay that goes on, or ends it and begins the next. The slices of a stay are placed
// together when it has ended, since only then are its arguments and, for a wait, its track known.
#include "request_book.h"

#include <algorithm>
#include <utility>

namespace tenon::profiler {
namespace {

using trace::Arg;
using trace::RequestEvent;
using Lane = RequestSlice::Lane;

uint64_t value(const trace::Event& event, size_t i) {
  return i < event.values.size() ? event.values[i] : 0;
}

// This is the begin of what the event tells of.
int64_t begin_of(const trace::Event& event) {
  return std::max<int64_t>(0, event.begin_ns - static_cast<int64_t>(value(event, 0)));
}

RequestSlice slice_within(const RequestSlice& outer, std::string name, int64_t begin_ns, int64_t end_ns) {
  RequestSlice slice{.lane = outer.lane, .category = "request_part", .begin_ns = begin_ns, .end_ns = end_ns};
  slice.name = std::move(name);
  slice.args.push_back(outer.args.front());
  return slice;
}

RequestSlice moment_of(const RequestSlice& outer, std::string name, int64_t ns) {
  RequestSlice moment = slice_within(outer, std::move(name), ns, ns);
  moment.is_moment = true;
  return moment;
}

RequestSlice outer_slice(Lane lane, uint64_t id, int64_t begin_ns) {
  RequestSlice slice{
      .lane = lane, .category = lane == Lane::kQueue ? "request_queue" : "request", .begin_ns = begin_ns};
  slice.name = "req " + std::to_string(id);
  slice.args.push_back({"request", id});
  return slice;
}

}  // namespace

// Says whether an event fits what is known; where a ring was full it may not.
bool RequestBook::follows(const trace::Event& event, const Request& request) {
  if (event.request == RequestEvent::kEnded) return true;
  return (event.request == RequestEvent::kAdmitted) != request.has_slot();
}

void RequestBook::add(const trace::Event& event) {
  if (event.request == RequestEvent::kArrived) {
    Request request{.prompt = value(event, 1), .priority = static_cast<int64_t>(value(event, 2))};
    wait(request, event.id, begin_of(event));
    open_.insert_or_assign(event.id, std::move(request));
    return;
  }
  const auto found = open_.find(event.id);
  if (found == open_.end() || !follows(event, found->second)) {
    ++dropped_;
    return;
  }
  Request& request = found->second;
  switch (event.request) {
    case RequestEvent::kArrived:
      break;
    case RequestEvent::kAdmitted:
      admit(request, event);
      break;
    case RequestEvent::kPrompt:
      run_prompt(request, event);
      break;
    case RequestEvent::kToken:
      begin_decode(request, event);
      break;
    case RequestEvent::kRested:
      rest(request, event);
      break;
    case RequestEvent::kPreempted:
      leave(request, event);
      request.was_preempted = true;
      wait(request, event.id, event.begin_ns);
      break;
    case RequestEvent::kEnded:
      leave(request, event);
      open_.erase(found);
      break;
  }
}

void RequestBook::wait(Request& request, uint64_t id, int64_t begin_ns) {
  request.stay = {outer_slice(Lane::kQueue, id, begin_ns)};
  request.ran = request.generates = false;
  std::vector<Arg>& args = request.stay.front().args;
  args.push_back({"prompt", request.prompt});
  args.push_back({"priority", request.priority});
  if (request.was_preempted) args.push_back({"after", std::string("pre-emption")});
}

void RequestBook::admit(Request& request, const trace::Event& event) {
  end_stay(request, event.begin_ns);
  RequestSlice outer = outer_slice(Lane::kSlot, event.id, event.begin_ns);
  outer.index = static_cast<uint32_t>(value(event, 0));
  outer.args.push_back({"prompt", request.prompt});
  outer.args.push_back({"tokens", value(event, 1)});
  outer.args.push_back({"cached", value(event, 2)});
  request.stay = {std::move(outer)};
  request.inner_ns = event.begin_ns;
}

void RequestBook::run_prompt(Request& request, const trace::Event& event) {
  const uint64_t step = value(event, 1);
  if (!std::exchange(request.ran, true)) request.first_step = step;
  const int64_t begin = std::max(request.inner_ns, begin_of(event));
  RequestSlice chunk = slice_within(request.stay.front(), "prompt", begin, std::max(begin, event.begin_ns));
  chunk.args.push_back({"step", step});
  chunk.args.push_back({"rows", value(event, 2)});
  chunk.args.push_back({"from", value(event, 3)});
  request.inner_ns = chunk.end_ns;
  request.stay.push_back(std::move(chunk));
}

void RequestBook::begin_decode(Request& request, const trace::Event& event) {
  request.generates = true;
  request.decode_ns = std::max(request.inner_ns, event.begin_ns);
  request.token_step = value(event, 0);
  request.tokens_before = value(event, 1);
  if (std::exchange(request.had_token, true)) return;
  RequestSlice moment = moment_of(request.stay.front(), "first token", request.decode_ns);
  moment.args.push_back({"step", request.token_step});
  request.stay.push_back(std::move(moment));
}

void RequestBook::rest(Request& request, const trace::Event& event) {
  const int64_t begin = std::max(request.decode_ns, begin_of(event));
  RequestSlice slice = slice_within(request.stay.front(), "rest", begin, std::max(begin, event.begin_ns));
  slice.category = "request_rest";
  slice.args.push_back({"first_step", value(event, 1)});
  slice.args.push_back({"last_step", value(event, 2)});
  request.stay.push_back(std::move(slice));
}

// The first token of a stay comes of its prompt; the steps after that one are those of decoding.
void RequestBook::end_decode(Request& request, int64_t end_ns, uint64_t last_step, uint64_t tokens) {
  if (!request.generates || last_step <= request.token_step) return;
  RequestSlice decode =
      slice_within(request.stay.front(), "decode", request.decode_ns, std::max(request.decode_ns, end_ns));
  decode.args.push_back({"first_step", request.token_step + 1});
  decode.args.push_back({"last_step", last_step});
  decode.args.push_back({"tokens", tokens - std::min(tokens, request.tokens_before)});
  request.stay.push_back(std::move(decode));
}

void RequestBook::leave(Request& request, const trace::Event& event) {
  const uint64_t last_step = value(event, 0), tokens = value(event, 1), taker = value(event, 2);
  end_decode(request, event.begin_ns, last_step, tokens);
  RequestSlice& outer = request.stay.front();
  if (request.ran) {
    outer.args.push_back({"first_step", request.first_step});
    outer.args.push_back({"last_step", std::max(request.first_step, last_step)});
  }
  if (outer.lane == Lane::kSlot) outer.args.push_back({"generated", tokens});
  std::string how(event.text);
  if (event.request == RequestEvent::kPreempted) {
    outer.args.push_back({"end", std::string("pre-empted")});
    outer.args.push_back({"lost", how});
    if (taker != 0) outer.args.push_back({"taker", taker});
    how = taker == 0 ? "pre-empted" : "pre-empted for req " + std::to_string(taker);
  } else {
    outer.args.push_back({"end", how});
    how = "ended: " + how;
  }
  request.stay.push_back(moment_of(request.stay.front(), how, event.begin_ns));
  end_stay(request, event.begin_ns);
}

void RequestBook::end_stay(Request& request, int64_t end_ns) {
  RequestSlice& outer = request.stay.front();
  outer.end_ns = std::max(outer.begin_ns, end_ns);
  if (outer.lane == Lane::kQueue) {
    outer.args.push_back({"waited_us", static_cast<double>(outer.end_ns - outer.begin_ns) / 1e3});
  }
  ended_.push_back(std::exchange(request.stay, {}));
}

void RequestBook::decide(int64_t decided_ns, int64_t wanted_ns) {
  wanted_ns_ = wanted_ns;
  for (; !ended_.empty() && ended_.front().front().end_ns <= decided_ns; ended_.pop_front()) {
    if (ended_.front().front().begin_ns <= wanted_ns) place(ended_.front());
  }
}

void RequestBook::close(int64_t end_ns) {
  std::vector<uint64_t> ids;
  for (const auto& [id, request] : open_) ids.push_back(id);
  std::ranges::sort(ids);
  for (const uint64_t id : ids) {
    Request& request = open_.at(id);
    if (request.generates && request.has_slot()) {
      request.stay.push_back(
          slice_within(request.stay.front(), "decode", request.decode_ns, std::max(request.decode_ns, end_ns)));
      request.stay.back().args.push_back({"first_step", request.token_step + 1});
    }
    request.stay.front().args.push_back({"open_at_end", int64_t{1}});
    end_stay(request, end_ns);
  }
  open_.clear();
  decide(std::numeric_limits<int64_t>::max(), wanted_ns_);
}

int64_t& RequestBook::lane_end(RequestSlice& outer) {
  std::vector<int64_t>& ends = outer.lane == Lane::kSlot ? slot_ends_ : queue_ends_;
  if (outer.lane == Lane::kQueue) {
    auto lane = std::ranges::find_if(ends, [&](int64_t end) { return end <= outer.begin_ns; });
    if (lane == ends.end() && ends.size() >= kMaxQueueLanes) lane = std::ranges::min_element(ends);
    outer.index = static_cast<uint32_t>(lane - ends.begin());
  }
  if (outer.index >= ends.size()) ends.resize(outer.index + size_t{1}, 0);
  return ends[outer.index];
}

// No slice of a track begins before the one ahead of it ends, even where events were lost.
void RequestBook::place(Stay& stay) {
  int64_t& lane = lane_end(stay.front());
  const uint32_t index = stay.front().index;
  for (RequestSlice& slice : stay) {
    slice.index = index;
    slice.begin_ns = std::max(slice.begin_ns, lane);
    slice.end_ns = std::max(slice.end_ns, slice.begin_ns);
    emit_(slice);
  }
  lane = stay.front().end_ns;
}

}  // namespace tenon::profiler
