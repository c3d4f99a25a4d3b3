// A scheduler is a class T that derives from Scheduler<T>; tenon/abi/scheduler.h says what its functions owe. T has
//   uint32_t sequences() const;                                   so many run at once at most; fixed after construction
//   void next(const Workload&, Schedule&);                        it gives out the rows of the next step
//   uint32_t no_space(const Workload&, uint32_t sequence);        it says whom to pre-empt
// One thread at a time calls them, between steps. They should allocate nothing once they have seen their largest workload.
#pragma once

#include <span>

#include "tenon/abi/scheduler.h"
#include "tenon/sdk/component.h"

namespace tenon::sdk {

// A workload is what there is to do before a step; see tenon_workload. It is valid during the call only.
class Workload {
 public:
  explicit Workload(const tenon_workload* raw) : raw_(read_abi(raw)) {}

  uint32_t size() const { return raw_.n; }
  tenon_sequence operator[](uint32_t i) const { return read_abi(raw_.sequence[i]); }
  uint32_t rows() const { return raw_.rows; }
  uint32_t free_slots() const { return raw_.free_slots; }
  uint32_t page_tokens() const { return raw_.page_tokens; }  // 0: pages need not be counted
  uint32_t free_pages() const { return raw_.free_pages; }
  // Rows of the programs for steps with prompts, ascending; none where a step takes as long as its own rows do.
  std::span<const uint32_t> program_rows() const { return {raw_.program_rows, raw_.n_programs}; }

 private:
  tenon_workload raw_;
};

// This is the answer. It throws Failed for more entries than the host has room for.
class Schedule {
 public:
  Schedule(const tenon_schedule* out, uint32_t room) : raw_(read_abi(out)), room_(room) {}

  void run(uint32_t sequence, uint32_t rows) {
    if (raw_.n_shares == room_) throw Failed("more shares than there are sequences");
    raw_.share[raw_.n_shares++] = {sequence, rows};
    rows_ += rows;
  }
  uint32_t rows() const { return rows_; }  // that have been given out
  void preempt(uint32_t sequence) {
    if (raw_.n_preempted == room_) throw Failed("pre-empts more sequences than there are");
    raw_.preempted[raw_.n_preempted++] = sequence;
  }
  const tenon_schedule& raw() const { return raw_; }

 private:
  tenon_schedule raw_;
  uint32_t room_, rows_ = 0;
};

// It gives, of `sequence` and the sequences that run, the one with the lowest priority, and of several
// the one that came last. If that one is the victim, the oldest sequence of the highest priority
// always goes on, so all come to their end.
inline uint32_t least_important(const Workload& w, uint32_t sequence) {
  uint32_t least = sequence;
  tenon_sequence worst = w[sequence];
  for (uint32_t i = 0; i < w.size(); ++i) {
    const tenon_sequence s = w[i];
    if (s.phase == TENON_SEQUENCE_WAITS || i == sequence) continue;
    if (s.priority < worst.priority || (s.priority == worst.priority && s.id > worst.id)) {
      least = i;
      worst = s;
    }
  }
  return least;
}

template <class T>
class Scheduler : public ComponentDefaults {
 public:
  static constexpr const char* kKind = "scheduler";
  static constexpr const char* kInterface = "scheduler/1";
  static constexpr const char* kDevice = "host";  // it serves a pipeline on any device

  static const tenon_scheduler* table() {
    static constexpr tenon_scheduler kTable = make();
    return &kTable;
  }

 private:
  static constexpr tenon_scheduler make() {
    auto t = abi_struct<tenon_scheduler>();
    t.sequences = &call_sequences;
    t.next = &call_next;
    t.no_space = &call_no_space;
    return t;
  }
  static T& self(void* p) { return *static_cast<T*>(p); }

  static uint32_t call_sequences(void* p) noexcept {
    uint32_t n = 0;
    static_cast<void>(guard(nullptr, [&] { n = self(p).sequences(); }));
    return n;
  }
  static tenon_status call_next(void* p, const tenon_workload* workload, tenon_schedule* out,
                                tenon_reason* why) noexcept {
    return guard(why, [&] {
      const Workload w(workload);
      Schedule schedule(out, w.size());
      self(p).next(w, schedule);
      write_abi(out, schedule.raw());
    });
  }
  static tenon_status call_no_space(void* p, const tenon_workload* workload, uint32_t sequence, uint32_t* victim,
                                    tenon_reason* why) noexcept {
    return guard(why, [&] { *victim = self(p).no_space(Workload(workload), sequence); });
  }
};

}  // namespace tenon::sdk
