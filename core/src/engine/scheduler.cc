// The component sees the sequences as tenon_sequence and answers with shares and victims. Its answer is checked before
// anybody acts on it: a rule that is broken is an error with the component's name.
#include "scheduler.h"

#include <algorithm>

#include "../fault.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {

Scheduler::Scheduler(const ComponentConfig& config, Registry& registry, Log log)
    : env_(std::move(log)), instance_(env_.create(config, registry)) {
  sequences_ = instance_.table<tenon_scheduler>().sequences(instance_.self());
  if (sequences_ == 0) throw Error(ErrorCode::kPlugin, config.where, id() + " runs no sequence at all");
}

tenon_workload Scheduler::workload(std::span<const tenon_sequence> sequences, const Room& room) {
  pointers_.clear();
  for (const tenon_sequence& s : sequences) pointers_.push_back(&s);
  auto w = sdk::abi_struct<tenon_workload>();
  w.n = static_cast<uint32_t>(sequences.size());
  w.sequence = pointers_.data();
  w.rows = room.rows;
  w.free_slots = room.free_slots;
  w.page_tokens = room.page_tokens;
  w.free_pages = room.free_pages;
  w.program_rows = room.program_rows.data();
  w.n_programs = static_cast<uint32_t>(room.program_rows.size());
  return w;
}

Scheduler::Answer Scheduler::next(std::span<const tenon_sequence> sequences, const Room& room) {
  const tenon_workload w = workload(sequences, room);
  shares_.resize(w.n);
  preempted_.resize(w.n);
  auto answer = sdk::abi_struct<tenon_schedule>();
  answer.share = shares_.data();
  answer.preempted = preempted_.data();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const fault::InComponent in(id().c_str(), "next");
  const tenon_status status = instance_.table<tenon_scheduler>().next(instance_.self(), &w, &answer, &why);
  if (status != TENON_OK) wrong(std::string("chooses no step: ") + text);
  check(sequences, room, answer);
  return {std::span(shares_).first(answer.n_shares), std::span(preempted_).first(answer.n_preempted)};
}

void Scheduler::check(std::span<const tenon_sequence> sequences, const Room& room, const tenon_schedule& answer) {
  const auto n = static_cast<uint32_t>(sequences.size());
  if (answer.n_shares > n || answer.n_preempted > n) wrong("names more sequences than there are");
  named_.assign(n, false);
  const auto name = [&](uint32_t i) {
    if (i >= n) wrong("names sequence " + std::to_string(i) + " of " + std::to_string(n));
    if (named_[i]) wrong("names sequence " + std::to_string(i) + " twice");
    named_[i] = true;
  };
  for (const uint32_t i : std::span(preempted_).first(answer.n_preempted)) {
    name(i);
    if (sequences[i].phase == TENON_SEQUENCE_WAITS) wrong("pre-empts a sequence that does not run");
  }
  uint64_t rows = 0, admitted = 0;
  for (const tenon_share& share : std::span(shares_).first(answer.n_shares)) {
    name(share.sequence);
    const tenon_sequence& s = sequences[share.sequence];
    if (share.rows == 0 || share.rows > s.pending) {
      wrong("gives " + std::to_string(share.rows) + " rows to a sequence with " + std::to_string(s.pending) +
            " pending tokens");
    }
    rows += share.rows;
    admitted += s.phase == TENON_SEQUENCE_WAITS ? 1 : 0;
  }
  if (answer.n_shares == 0) wrong("gives no rows to any of " + std::to_string(n) + " sequences");
  if (rows > room.rows) {
    wrong("gives " + std::to_string(rows) + " rows; a step has " + std::to_string(room.rows) + " at most");
  }
  if (admitted > room.free_slots + answer.n_preempted) {
    wrong("admits " + std::to_string(admitted) + " sequences to " +
          std::to_string(room.free_slots + answer.n_preempted) + " free slots");
  }
}

uint32_t Scheduler::no_space(std::span<const tenon_sequence> sequences, const Room& room, uint32_t sequence) {
  const tenon_workload w = workload(sequences, room);
  uint32_t victim = TENON_NO_SEQUENCE;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const fault::InComponent in(id().c_str(), "no_space");
  const tenon_status status =
      instance_.table<tenon_scheduler>().no_space(instance_.self(), &w, sequence, &victim, &why);
  if (status != TENON_OK) wrong(std::string("does not say whom to pre-empt: ") + text);
  if (victim == sequence || victim == TENON_NO_SEQUENCE) return victim;
  if (victim >= w.n) wrong("pre-empts sequence " + std::to_string(victim) + " of " + std::to_string(w.n));
  if (sequences[victim].phase == TENON_SEQUENCE_WAITS) wrong("pre-empts a sequence that does not run");
  return victim;
}

void Scheduler::wrong(const std::string& what) const {
  throw Error(ErrorCode::kPlugin, id() + " " + what);
}

}  // namespace tenon
