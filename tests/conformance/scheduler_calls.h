// This asks a scheduler about made-up sequences.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "support/component.h"
#include "tenon/sdk/error.h"

namespace tenon::test {

using Shares = std::vector<std::pair<uint32_t, uint32_t>>;

struct Plan {
  Shares shares;  // each has a sequence and rows
  std::vector<uint32_t> preempted;
};

inline tenon_sequence waiting(uint64_t id, uint32_t tokens, int32_t priority = 0, uint64_t age = 0) {
  auto s = sdk::abi_struct<tenon_sequence>();
  s.id = id;
  s.age = age;
  s.phase = TENON_SEQUENCE_WAITS;
  s.priority = priority;
  s.tokens = s.pending = tokens;
  return s;
}
inline tenon_sequence prompt(uint64_t id, uint32_t tokens, uint32_t cached) {
  tenon_sequence s = waiting(id, tokens);
  s.phase = TENON_SEQUENCE_PROMPT;
  s.cached = cached;
  s.pending = tokens - cached;
  return s;
}
inline tenon_sequence generating(uint64_t id, uint32_t tokens, uint32_t drafts = 0, int32_t priority = 0) {
  tenon_sequence s = waiting(id, tokens, priority);
  s.phase = TENON_SEQUENCE_GENERATES;
  s.cached = tokens - 1;
  s.pending = 1 + drafts;
  return s;
}

struct Room {
  uint32_t rows = 100, free_slots = 4, page_tokens = 0, free_pages = 0;
  std::vector<uint32_t> program_rows = {};
};

inline tenon_workload workload(const std::vector<const tenon_sequence*>& list, const Room& room) {
  auto w = sdk::abi_struct<tenon_workload>();
  w.n = static_cast<uint32_t>(list.size());
  w.rows = room.rows;
  w.free_slots = room.free_slots;
  w.page_tokens = room.page_tokens;
  w.free_pages = room.free_pages;
  w.program_rows = room.program_rows.data();
  w.n_programs = static_cast<uint32_t>(room.program_rows.size());
  w.sequence = list.data();
  return w;
}

inline Plan next(const Component& scheduler, const std::vector<tenon_sequence>& sequences, const Room& room = {}) {
  std::vector<const tenon_sequence*> list;
  for (const tenon_sequence& s : sequences) list.push_back(&s);
  const tenon_workload w = workload(list, room);
  std::vector<tenon_share> shares(w.n);
  Plan plan;
  plan.preempted.resize(w.n);
  auto answer = sdk::abi_struct<tenon_schedule>();
  answer.share = shares.data();
  answer.preempted = plan.preempted.data();
  EXPECT_EQ(scheduler.table<tenon_scheduler>().next(scheduler.self(), &w, &answer, nullptr), TENON_OK);
  for (uint32_t i = 0; i < answer.n_shares; ++i) plan.shares.emplace_back(shares[i].sequence, shares[i].rows);
  plan.preempted.resize(answer.n_preempted);
  return plan;
}

}  // namespace tenon::test
