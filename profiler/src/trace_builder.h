// This takes events as they come, in any order, and makes the TraceFile.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {

// Processes and threads that have a text in place of a number get this, less the text's id.
inline constexpr int64_t kFirstTextId = -(int64_t{1} << 40U);

class TraceBuilder {
 public:
  explicit TraceBuilder(TraceFile& file) : file_(file) { file_.categories.push_back(0); }

  struct Event {
    char phase = 'X';  // X B E i; of async spans b e n
    int64_t ns = 0, duration_ns = 0;
    uint32_t name = 0, args = 0;
    std::string_view category;
  };

  void add(int64_t pid, int64_t tid, const Event& event);
  // `scope` makes equal ids different ones, besides the category.
  void add_async(int64_t pid, int64_t scope, std::string_view id, const Event& event);
  void add_counter(int64_t pid, std::string_view name, int64_t ns, double value);
  // `phase` is s, t or f.
  void add_flow(int64_t pid, int64_t tid, char phase, uint64_t id, int64_t ns);

  void name_process(int64_t pid, std::string name) { process_of(pid).name = std::move(name); }
  void sort_process(int64_t pid, int64_t index) { process_of(pid).sort_index = index; }
  void name_thread(int64_t pid, int64_t tid, std::string name);
  void sort_thread(int64_t pid, int64_t tid, int64_t index);

  // Ends the trace; it is called once.
  void finish();

 private:
  // This holds the events of a track, and grows without copying. A slice's depth is its event's phase until finish().
  class Staged {
   public:
    void push(const TraceSlice& slice);
    // Hands out all in order and frees them on the way.
    template <typename Take>
    void drain(Take take);

   private:
    static constexpr size_t kFirstChunk = 8, kLastChunk = 1U << 15U;
    std::vector<std::vector<TraceSlice>> chunks_;
  };
  struct Key {
    int64_t first = 0, second = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const noexcept;
  };
  struct AsyncEvent {
    TraceSlice slice;  // its track is the process
    uint64_t id = 0;   // it is a hash of everything that tells ids apart
  };
  struct FlowEnd {
    uint64_t id = 0;
    int64_t ns = 0;
    uint32_t track = 0;
    char phase = 's';
  };

  uint32_t process_index(int64_t pid);
  TraceProcess& process_of(int64_t pid) { return file_.processes[process_index(pid)]; }
  // Returns kNoIndex if there are too many.
  uint32_t thread(int64_t pid, int64_t tid);
  uint16_t category(std::string_view name);
  uint32_t new_track(uint32_t process);
  void stage(const TraceSlice& slice);
  TraceSlice staged(const Event& event, uint32_t track);
  void saw(int64_t begin_ns, int64_t end_ns);

  // This says where the events of one asynchronous id lie among the complete slices and moments.
  struct AsyncId {
    uint32_t first = 0, count = 0;
    int64_t begin_ns = 0, end_ns = 0;
  };
  std::vector<TraceSlice> pair_up_async(std::vector<AsyncId>& ids);
  void lay_out_async();
  std::string name_of(const char* what, int64_t id) const;
  void order_tracks();
  void place_events();
  // Pairs begins with ends and drops what is neither; the rest moves to the front. Returns its size.
  size_t pair_up(TraceSlice* first, TraceSlice* last);
  // Sets depths, sorts by them, fills the track's lanes; returns how many of the slices are kept.
  size_t nest(TraceSlice* first, TraceSlice* last, TraceTrack& track, uint32_t offset);
  void link_flows();
  void notice(uint64_t count, const char* what);

  TraceFile& file_;
  std::vector<Staged> events_;  // they are sorted by track
  std::deque<AsyncEvent> async_;
  size_t n_slices_ = 0, n_instants_ = 0;
  std::unordered_map<int64_t, uint32_t> process_ids_;
  std::unordered_map<Key, uint32_t, KeyHash> threads_;
  std::map<std::pair<uint32_t, std::string>, uint32_t, std::less<>> counter_ids_;
  std::unordered_map<uint32_t, uint16_t> category_ids_;  // keyed by the string's id
  std::vector<FlowEnd> flow_ends_;
  Key last_thread_{};
  uint32_t last_track_ = kNoIndex;
  bool any_ = false;
  uint64_t too_many_tracks_ = 0, without_begin_ = 0, without_end_ = 0, too_deep_ = 0, overlapping_ = 0,
           loose_flows_ = 0;
};

}  // namespace tenon::profiler
