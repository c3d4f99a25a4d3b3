// Requests as Perfetto wants them: in time order although they come from several threads, each end after its beginning,
// nested.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tenon/core/trace_sink.h"

namespace tenon::profiler {

// Thread: one.
class RequestBook {
 public:
  struct Entry {
    int64_t ns;
    trace::SiteId site;
    trace::RequestPhase phase;
    uint64_t id;
    bool forced;  // true: it is an end that nobody recorded
  };
  using Emit = std::function<void(const Entry&)>;

  explicit RequestBook(Emit emit) : emit_(std::move(emit)) {}

  void add(const trace::Event& event) {
    pending_.push_back({event.begin_ns, event.site, event.phase, event.id, false});
  }

  // Emits what is older than `until_ns`. Once a drain's time has passed, another thread's earlier event can no longer turn
  // up.
  void emit_until(int64_t until_ns);

  // Emits the rest and ends at `end_ns` what is still open.
  void close(int64_t end_ns);

  // Ends that had no beginning, and were left out.
  uint64_t dropped() const noexcept { return dropped_; }

 private:
  void take_moment(std::span<const Entry> moment);
  bool take_end(const Entry& entry);  // false if it has no beginning

  Emit emit_;
  std::vector<Entry> pending_;
  std::map<uint64_t, std::vector<trace::SiteId>> open_;  // per request, outermost first
  uint64_t dropped_ = 0;
};

}  // namespace tenon::profiler
