// Any scheduler owes this: answers that keep the rules, and that every sequence comes to its end.
// The checks are a small engine without a model: sequences come, run as the scheduler says, hold
// pages of a cache with too few of them, and end.
#include <algorithm>
#include <array>
#include <random>
#include <sstream>

#include "conformance/suites.h"
#include "tenon/sdk/error.h"

namespace tenon::conformance {
namespace {

struct Running {
  tenon_sequence s;
  uint32_t left;  // tokens until it ends
  bool denied = false;
};

// Three clients send requests; see tenon_sequence.
constexpr uint32_t kClients = 3;
struct Client {
  uint64_t served = 0, waits = 0;
};

class Simulation {
 public:
  Simulation(const Component& scheduler, uint64_t seed, uint32_t pages)
      : self_(scheduler.self()),
        table_(scheduler.table<tenon_scheduler>()),
        slots_(table_.sequences(self_)),
        pages_(pages),
        random_(seed) {}

  // Runs all steps until the sequences that come have ended; returns what was answered, as text.
  std::string run(uint32_t sequences) {
    require(slots_ > 0, "runs no sequence at all");
    for (uint32_t step = 0; arrived_ < sequences || !all_.empty(); ++step) {
      require(step < kMostSteps, std::to_string(all_.size()) + " sequences never end");
      while (arrived_ < sequences && random_() % 3 == 0) arrive();
      for (Client& c : clients_) ++c.waits;
      for (Running& r : all_) {
        ++r.s.age;
        r.denied = false;
        r.s.client_served = clients_[r.s.client].served;
        r.s.client_waits = std::min(clients_[r.s.client].waits, r.s.age);
      }
      // Those who got no room are left out until somebody has run.
      while (!plan() && !list_.empty()) {
      }
    }
    return log_.str();
  }

 private:
  static constexpr uint32_t kPageTokens = 8, kRows = 24, kMostSteps = 40000;

  void arrive() {
    Running r{};
    r.s = sdk::abi_struct<tenon_sequence>();
    r.s.id = ++arrived_;
    r.s.phase = TENON_SEQUENCE_WAITS;
    r.s.priority = static_cast<int32_t>(random_() % 3);
    r.s.tokens = r.s.pending = 1 + static_cast<uint32_t>(random_() % 40);
    r.left = 1 + static_cast<uint32_t>(random_() % 30);
    r.s.client = arrived_ % kClients;
    all_.push_back(r);
  }

  static uint32_t pages_of(uint32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }
  uint32_t held() const {
    uint32_t n = 0;
    for (const Running& r : all_) n += pages_of(r.s.cached);
    return n;
  }
  uint32_t running() const {
    return static_cast<uint32_t>(
        std::count_if(all_.begin(), all_.end(), [](const Running& r) { return r.s.phase != TENON_SEQUENCE_WAITS; }));
  }

  // Those that run come first in the workload; all_ is kept in that order.
  tenon_workload workload() {
    std::stable_sort(all_.begin(), all_.end(), [](const Running& a, const Running& b) {
      const bool wa = a.s.phase == TENON_SEQUENCE_WAITS, wb = b.s.phase == TENON_SEQUENCE_WAITS;
      return wa != wb ? wb : wa && a.s.id < b.s.id;
    });
    return describe();
  }
  tenon_workload describe() {
    list_.clear();
    for (const Running& r : all_) {
      if (!r.denied) list_.push_back(&r.s);
    }
    auto w = sdk::abi_struct<tenon_workload>();
    w.n = static_cast<uint32_t>(list_.size());
    w.rows = kRows;
    w.free_slots = slots_ - running();
    w.page_tokens = kPageTokens;
    w.free_pages = pages_ - held();
    w.sequence = list_.data();
    return w;
  }
  Running& of(uint32_t index) {
    return *std::find_if(all_.begin(), all_.end(), [&](const Running& r) { return &r.s == list_[index]; });
  }
  void preempt(Running& r) {
    r.s.phase = TENON_SEQUENCE_WAITS;
    r.s.cached = 0;
    r.s.pending = r.s.tokens;
    r.denied = true;
    log_ << "-" << r.s.id << ' ';
  }

  // Takes one step, or the victims that make room for one. Returns false if nobody ran.
  bool plan() {
    const tenon_workload w = workload();
    if (w.n == 0) return false;
    constexpr uint32_t kFence = 0xfefefefe;
    std::vector<tenon_share> shares(w.n + 4, {kFence, kFence});
    std::vector<uint32_t> preempted(w.n + 4, kFence);
    auto answer = sdk::abi_struct<tenon_schedule>();
    answer.share = shares.data();
    answer.preempted = preempted.data();
    Reason why;
    why.check(table_.next(self_, &w, &answer, &why.raw), "has no answer for " + std::to_string(w.n) + " sequences");
    require(table_.sequences(self_) == slots_, "changes its mind about how many sequences run at once");
    require(shares[w.n].rows == kFence && preempted[w.n] == kFence, "writes past its room");
    check(w, answer);
    for (uint32_t i = 0; i < answer.n_preempted; ++i) preempt(of(preempted[i]));
    bool ran = false;
    for (uint32_t i = 0; i < answer.n_shares; ++i) ran = run_share(shares[i]) || ran;
    std::erase_if(all_, [](const Running& r) { return r.left == 0; });
    log_ << '\n';
    return ran;
  }

  void check(const tenon_workload& w, const tenon_schedule& a) {
    require(a.n_shares <= w.n && a.n_preempted <= w.n, "names more sequences than there are");
    require(a.n_shares > 0, "gives nobody any rows");
    std::vector<bool> named(w.n, false);
    uint64_t rows = 0, admitted = 0;
    const auto name = [&](uint32_t i) -> const tenon_sequence& {
      require(i < w.n, "names a sequence that is not there");
      require(!named[i], "names a sequence twice");
      named[i] = true;
      return *list_[i];
    };
    for (uint32_t i = 0; i < a.n_preempted; ++i) {
      require(name(a.preempted[i]).phase != TENON_SEQUENCE_WAITS, "pre-empts a sequence that does not run");
    }
    for (uint32_t i = 0; i < a.n_shares; ++i) {
      const tenon_sequence& s = name(a.share[i].sequence);
      require(a.share[i].rows >= 1 && a.share[i].rows <= s.pending, "gives a sequence no rows, or more than it has");
      rows += a.share[i].rows;
      admitted += s.phase == TENON_SEQUENCE_WAITS ? 1 : 0;
      log_ << s.id << ':' << a.share[i].rows << ' ';
    }
    require(rows <= w.rows, "gives more rows than a step has");
    require(admitted <= w.free_slots + a.n_preempted, "admits more sequences than there are slots");
  }

  bool run_share(const tenon_share& share) {
    Running& r = of(share.sequence);
    if (r.denied) return false;
    const uint32_t wanted = pages_of(r.s.cached + share.rows) - pages_of(r.s.cached);
    const bool waits = r.s.phase == TENON_SEQUENCE_WAITS;
    const std::vector<const tenon_sequence*> answered = list_;  // the shares are an answer to this
    while (held() + wanted > pages_) {
      const tenon_workload w = describe();  // it is without those that were pre-empted
      const auto index = static_cast<uint32_t>(std::find(list_.begin(), list_.end(), &r.s) - list_.begin());
      uint32_t victim = 77777;
      Reason why;
      why.check(table_.no_space(self_, &w, index, &victim, &why.raw), "does not say whom to pre-empt");
      if (victim == TENON_NO_SEQUENCE || victim == index) {
        if (victim == index && !waits) preempt(r);
        r.denied = true;
        list_ = answered;
        return false;
      }
      require(victim < w.n, "pre-empts a sequence that is not there");
      require(list_[victim]->phase != TENON_SEQUENCE_WAITS, "pre-empts a sequence that does not run");
      preempt(of(victim));
    }
    list_ = answered;
    r.s.cached += share.rows;
    clients_[r.s.client].served += share.rows;
    clients_[r.s.client].waits = 0;
    r.s.phase = TENON_SEQUENCE_PROMPT;
    if (r.s.cached == r.s.tokens) {
      r.s.phase = TENON_SEQUENCE_GENERATES;
      ++r.s.tokens;
      --r.left;
    }
    r.s.pending = r.s.tokens - r.s.cached;
    return true;
  }

  void* self_;
  const tenon_scheduler& table_;
  uint32_t slots_, pages_;
  std::mt19937_64 random_;
  uint32_t arrived_ = 0;
  std::array<Client, kClients> clients_;
  std::vector<Running> all_;
  std::vector<const tenon_sequence*> list_;
  std::ostringstream log_;
};

std::string simulate(const Component& scheduler, uint64_t seed, uint32_t pages, uint32_t sequences) {
  return Simulation(scheduler, seed, pages).run(sequences);
}

void all_end(const Subject& subject) {
  simulate(*subject.open(), 1, 100000, 120);
}

// There are ten pages of 8 tokens, and the longest sequence takes nine of them.
void all_end_in_a_small_cache(const Subject& subject) {
  for (const uint64_t seed : {2, 3, 4}) simulate(*subject.open(), seed, 10, 60);
}

void answers_the_same_again(const Subject& subject) {
  require(simulate(*subject.open(), 5, 12, 40) == simulate(*subject.open(), 5, 12, 40),
          "two instances answer the same calls in different ways");
}

}  // namespace

std::vector<Check> scheduler_checks() {
  return {{"all_end", &all_end}, {"small_cache", &all_end_in_a_small_cache}, {"same_again", &answers_the_same_again}};
}

}  // namespace tenon::conformance
