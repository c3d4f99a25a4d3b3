// Sequences join and leave at any step. Of the rows of a step, those that generate get theirs first, one each and
// then drafts; what is left goes to prompts, in chunks: those that run, then those that wait, by priority and then
// in the order in which they came. With `fair` the clients take turns (turns.h): within a priority, rows and slots
// go to the one that was served the least.
//
// Whoever waits rises by one in priority every `patience` steps, so that nobody waits for ever. A sequence that runs is
// pre-empted where the cache is full, and for one that waits with a higher priority where all slots are taken: the one
// of the lowest priority, of several the one that came last. The oldest sequence of the highest priority is hence never
// pre-empted, and all come to their end.
#include <algorithm>
#include <string>
#include <vector>

#include "tenon/sdk/scheduler.h"
#include "turns.h"

namespace tenon::continuous {

class Continuous : public sdk::Scheduler<Continuous> {
 public:
  static constexpr const char* kName = "continuous";
  static constexpr const char* kDoc = "Sequences join and leave at any step; prompts run in chunks beside decoding";
  static constexpr auto kParams = sdk::params(
      sdk::integer({.name = "sequences",
                    .doc = "Sequences that run at once at most",
                    .value = 8,
                    .min = 1,
                    .max = 4096,
                    .unit = "sequences"}),
      sdk::integer({.name = "budget_rows",
                    .doc = "Tokens of a step, while sequences generate; without them prefill_rows holds",
                    .value = 128,
                    .min = 1,
                    .max = 65536,
                    .unit = "tokens"}),
      sdk::integer({.name = "patience",
                    .doc = "Steps of waiting that count as one more in priority; 0 = waiting counts nothing",
                    .value = 1000,
                    .min = 0,
                    .max = int64_t{1} << 40,
                    .unit = "steps"}),
      sdk::boolean(
          {.name = "fair",
           .doc = "Whether clients take turns by the tokens that they were served; else who came first is first",
           .value = false}));

  Continuous(const sdk::Params& params, const sdk::Env&)
      : sequences_(static_cast<uint32_t>(params.integer("sequences"))),
        budget_rows_(static_cast<uint32_t>(params.integer("budget_rows"))),
        patience_(static_cast<uint64_t>(params.integer("patience"))),
        fair_(params.boolean("fair")) {}

  uint32_t sequences() const { return sequences_; }

  void next(const sdk::Workload& w, sdk::Schedule& schedule) {
    const uint32_t victim = victim_of_priority(w);
    if (victim != TENON_NO_SEQUENCE) schedule.preempt(victim);
    const uint32_t budget = decode(w, victim, schedule);
    share_prompts(w, victim, budget);
    keep_to_program(w, schedule.rows());
    for (const tenon_share& share : prompts_) schedule.run(share.sequence, share.rows);
  }

  uint32_t no_space(const sdk::Workload& w, uint32_t sequence) const { return sdk::least_important(w, sequence); }

 private:
  // A few rows more than a program of a device has would make the step as long as the next program's. They wait for
  // the next step, which costs less where there are many of the others.
  static constexpr uint32_t kLeastProgram = 256, kManyForOne = 16;

  // Gives the rows of the budget to prompts.
  void share_prompts(const sdk::Workload& w, uint32_t victim, uint32_t rows) {
    prompts_.clear();
    uint32_t slots = w.free_slots() + (victim == TENON_NO_SEQUENCE ? 0 : 1), runs = 0;
    uint64_t held = 0;  // those who run will still take so many pages
    for (uint32_t i = 0; i < w.size(); ++i) {
      const tenon_sequence s = w[i];
      if (s.phase == TENON_SEQUENCE_WAITS || i == victim) continue;
      ++runs;
      held += pages(w, s.tokens + 1) - pages(w, s.cached);
    }
    order_prompts(w, victim);
    bool full = false;  // nobody overtakes one that found no room
    for (const Candidate& c : order_) {
      const tenon_sequence s = w[c.index];
      if (rows == 0) return;
      if (c.waits) {
        const uint64_t wanted = pages(w, s.tokens + 1) - pages(w, s.held);
        const bool room = runs == 0 || held + wanted <= w.free_pages() || w.page_tokens() == 0;
        full = full || slots == 0 || !room;
        if (full) continue;
        --slots;
        ++runs;
        held += wanted;
      }
      const uint32_t n = std::min(s.pending, rows);
      prompts_.push_back({c.index, n});
      rows -= n;
    }
  }

  // Takes from the last prompt what goes beyond a program, beside so many rows of sequences that generate.
  void keep_to_program(const sdk::Workload& w, uint32_t generating) {
    if (prompts_.empty()) return;
    uint32_t all = generating;
    for (const tenon_share& share : prompts_) all += share.rows;
    uint32_t beyond = 0;
    for (const uint32_t rows : w.program_rows()) {
      if (rows >= kLeastProgram && rows < all) beyond = all - rows <= rows / kManyForOne ? all - rows : 0;
    }
    // It has most of its rows now, so that no prompt comes to its end by a few rows a step.
    if (2 * beyond <= prompts_.back().rows) prompts_.back().rows -= beyond;
  }

  static uint64_t pages(const sdk::Workload& w, uint32_t tokens) {
    return w.page_tokens() == 0 ? 0 : (uint64_t{tokens} + w.page_tokens() - 1) / w.page_tokens();
  }

  // Returns the sequence that is to make place for one that waits and matters more, where no slot is free.
  static uint32_t victim_of_priority(const sdk::Workload& w) {
    if (w.free_slots() > 0) return TENON_NO_SEQUENCE;
    uint32_t first = TENON_NO_SEQUENCE;
    int32_t priority = 0;
    for (uint32_t i = 0; i < w.size(); ++i) {
      const tenon_sequence s = w[i];
      if (s.phase != TENON_SEQUENCE_WAITS || (first != TENON_NO_SEQUENCE && s.priority <= priority)) continue;
      first = i;
      priority = s.priority;
    }
    if (first == TENON_NO_SEQUENCE) return first;
    const uint32_t least = sdk::least_important(w, first);
    return w[least].priority < priority ? least : TENON_NO_SEQUENCE;
  }

  // Gives rows to the sequences that generate, and returns how many are left for prompts.
  uint32_t decode(const sdk::Workload& w, uint32_t victim, sdk::Schedule& schedule) const {
    uint32_t generating = 0;
    for (uint32_t i = 0; i < w.size(); ++i) {
      if (i != victim && w[i].phase == TENON_SEQUENCE_GENERATES) ++generating;
    }
    if (generating == 0) return w.rows();
    // Every sequence gets its token, whatever the budget: whoever decodes is never held up.
    uint32_t rows = std::min(w.rows(), std::max(budget_rows_, generating));
    for (uint32_t i = 0; i < w.size(); ++i) {
      const tenon_sequence s = w[i];
      if (i == victim || s.phase != TENON_SEQUENCE_GENERATES || rows == 0) continue;
      const uint32_t drafts = rows > generating ? rows - generating : 0;
      const uint32_t n = std::min(s.pending, 1 + drafts);
      schedule.run(i, n);
      rows -= n;
      --generating;
    }
    return rows;
  }

  void order_prompts(const sdk::Workload& w, uint32_t victim) {
    order_.clear();
    const auto steps = [&](uint64_t waited) { return patience_ == 0 ? 0 : static_cast<int64_t>(waited / patience_); };
    for (uint32_t i = 0; i < w.size(); ++i) {
      const tenon_sequence s = w[i];
      if (i == victim || s.phase == TENON_SEQUENCE_GENERATES) continue;
      order_.push_back({.index = i,
                        .waits = s.phase == TENON_SEQUENCE_WAITS,
                        .priority = s.priority + steps(s.age),
                        .rank = s.priority + steps(s.client_waits),
                        .id = s.id,
                        .client = s.client,
                        .pending = s.pending});
    }
    if (fair_) return turns_.order(w, order_);
    std::sort(order_.begin(), order_.end(), [](const Candidate& a, const Candidate& b) {
      if (a.waits != b.waits) return b.waits;
      return a.priority != b.priority ? a.priority > b.priority : a.id < b.id;
    });
  }

  uint32_t sequences_, budget_rows_;
  uint64_t patience_;
  bool fair_;
  Turns turns_;
  // They are used within one call.
  std::vector<Candidate> order_;
  std::vector<tenon_share> prompts_;
};

}  // namespace tenon::continuous

TENON_PLUGIN(tenon::continuous::Continuous);
