#include "request_book.h"

#include <algorithm>
#include <limits>

namespace tenon::profiler {

void RequestBook::emit_until(int64_t until_ns) {
  std::stable_sort(pending_.begin(), pending_.end(), [](const Entry& a, const Entry& b) { return a.ns < b.ns; });
  const auto end = std::find_if(pending_.begin(), pending_.end(), [&](const Entry& e) { return e.ns >= until_ns; });
  for (auto from = pending_.begin(); from != end;) {
    const auto to = std::find_if(from, end, [&](const Entry& e) { return e.ns != from->ns; });
    take_moment({from, to});
    from = to;
  }
  pending_.erase(pending_.begin(), end);
}

// Clocks tick coarsely enough for one thread's end and another's beginning to fall together, in either order of their
// rings. First come events that end what is open, then the rest as recorded, then ends whose beginning came after them.
void RequestBook::take_moment(std::span<const Entry> moment) {
  std::vector<Entry> rest;
  for (const Entry& entry : moment) {
    if (entry.phase != trace::RequestPhase::kEnd || !take_end(entry)) rest.push_back(entry);
  }
  std::vector<Entry> late;
  for (const Entry& entry : rest) {
    if (entry.phase == trace::RequestPhase::kBegin) open_[entry.id].push_back(entry.site);
    if (entry.phase != trace::RequestPhase::kEnd) {
      emit_(entry);
    } else if (!take_end(entry)) {
      late.push_back(entry);
    }
  }
  for (const Entry& entry : late) dropped_ += take_end(entry) ? 0 : 1;
}

bool RequestBook::take_end(const Entry& entry) {
  const auto request = open_.find(entry.id);
  if (request == open_.end()) return false;
  std::vector<trace::SiteId>& stack = request->second;
  if (std::ranges::find(stack, entry.site) == stack.end()) return false;
  for (bool found = false; !found; stack.pop_back()) {  // whatever was left open inside ends with it
    found = stack.back() == entry.site;
    emit_({entry.ns, stack.back(), entry.phase, entry.id, !found});
  }
  if (stack.empty()) open_.erase(request);
  return true;
}

void RequestBook::close(int64_t end_ns) {
  emit_until(std::numeric_limits<int64_t>::max());
  for (auto& [id, stack] : open_) {
    for (; !stack.empty(); stack.pop_back()) emit_({end_ns, stack.back(), trace::RequestPhase::kEnd, id, true});
  }
  open_.clear();
}

}  // namespace tenon::profiler
