// Clients take turns by the tokens that steps have computed for them: Sheng et al., "Fairness in Serving Large Language
// Models", OSDI 2024 (the virtual token counter).
//
// Each client has a counter: what it was served, and a lift. Whoever has the lowest counter is next, and is charged for
// what it is given. Nobody saves up turns: a client that comes to wait is lifted to the lowest counter of those who
// have been waiting or, if nobody has, to the highest of those who run, so that all begin alike.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "tenon/sdk/scheduler.h"

namespace tenon::continuous {

// This is a sequence that has prompt left to compute.
struct Candidate {
  uint32_t index = 0;    // the workload has it under this index
  bool waits = false;    // it waits for a slot
  int64_t priority = 0;  // it includes what its own waiting adds
  int64_t rank = 0;      // it is the priority among other clients' candidates, with what its client's waiting adds
  uint64_t id = 0, client = 0;
  uint32_t pending = 0;
};

class Turns {
 public:
  void order(const sdk::Workload& w, std::vector<Candidate>& candidates) {
    settle(w);
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      if (a.client != b.client) return a.client < b.client;
      if (a.priority != b.priority) return a.priority > b.priority;
      return a.waits != b.waits ? b.waits : a.id < b.id;
    });
    list_queues(candidates);
    ordered_.clear();
    std::make_heap(queues_.begin(), queues_.end(), later);
    while (!queues_.empty()) {
      std::pop_heap(queues_.begin(), queues_.end(), later);
      Queue& queue = queues_.back();
      // The rows that a running prompt still needs are in its client's counter already.
      if (queue.next->waits) queue.counter += queue.next->pending;
      ordered_.push_back(*queue.next++);
      if (queue.next != queue.end) {
        std::push_heap(queues_.begin(), queues_.end(), later);
      } else {
        queues_.pop_back();
      }
    }
    candidates.swap(ordered_);
  }

 private:
  // An account is that of a client with sequences, or of one that was served more than those who wait.
  struct Account {
    uint64_t lift = 0, served = 0;
    uint64_t owed = 0;  // its prompts that run will still take so many tokens
    bool here = false, waits = false, waited = false;
    uint64_t counter() const { return served + lift; }
  };
  // A queue has a client's candidates that are not in order yet.
  struct Queue {
    uint64_t counter;
    const Candidate *next, *end;
  };

  static bool later(const Queue& a, const Queue& b) {
    if (a.next->rank != b.next->rank) return a.next->rank < b.next->rank;
    return a.counter != b.counter ? a.counter > b.counter : a.next->id > b.next->id;
  }

  // Brings the accounts up to date.
  void settle(const sdk::Workload& w) {
    for (auto& [client, a] : accounts_) {
      a.waited = a.waits;
      a.here = a.waits = false;
      a.owed = 0;
    }
    uint64_t highest = 0, lowest = UINT64_MAX;
    for (uint32_t i = 0; i < w.size(); ++i) {
      const tenon_sequence s = w[i];
      Account& a = accounts_[s.client];
      a.here = true;
      a.served = s.client_served;
      if (s.phase == TENON_SEQUENCE_WAITS) a.waits = true;
      if (s.phase == TENON_SEQUENCE_PROMPT) a.owed += s.pending;
    }
    for (const auto& [client, a] : accounts_) {
      if (!a.here) continue;
      highest = std::max(highest, a.counter());
      if (a.waits && a.waited) lowest = std::min(lowest, a.counter());
    }
    floor_ = std::max(floor_, lowest == UINT64_MAX ? highest : lowest);
    for (auto& [client, a] : accounts_) {
      if (a.waits && !a.waited && a.counter() < floor_) a.lift = floor_ - a.served;
    }
    // Whoever would be lifted anyway need not be remembered, and nobody is if there are very many.
    const bool many = accounts_.size() > kMostAccounts;
    std::erase_if(accounts_,
                  [&](const auto& entry) { return !entry.second.here && (many || entry.second.counter() <= floor_); });
  }

  void list_queues(const std::vector<Candidate>& candidates) {
    queues_.clear();
    const Candidate* const end = candidates.data() + candidates.size();
    for (const Candidate* c = candidates.data(); c != end;) {
      const Candidate* const last = std::find_if(c, end, [&](const Candidate& o) { return o.client != c->client; });
      const Account& a = accounts_[c->client];
      queues_.push_back({a.counter() + a.owed, c, last});
      c = last;
    }
  }

  static constexpr size_t kMostAccounts = 4096;
  std::unordered_map<uint64_t, Account> accounts_;  // by client
  uint64_t floor_ = 0;                              // clients that come to wait are lifted to this
  // These serve one call, and are kept for their room.
  std::vector<Queue> queues_;
  std::vector<Candidate> ordered_;
};

}  // namespace tenon::continuous
