// With scheduler.continuous and fair = true, clients take turns by the tokens that they were served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "scheduler_calls.h"

namespace tenon::test {
namespace {

using conformance::Setting;
using ::testing::ElementsAre;

struct Asked {
  uint64_t client = 0;
  uint32_t prompt = 1, text = 1;  // tokens
  int32_t priority = 0;
};

// This is an engine without a model: requests come, and steps run as the scheduler says.
class Steps {
 public:
  Steps(const std::vector<Setting>& params, uint32_t rows)
      : scheduler_("scheduler", "continuous", params),
        rows_(rows),
        slots_(scheduler_.table<tenon_scheduler>().sequences(scheduler_.self())) {}

  uint64_t ask(const Asked& asked) {
    Request r{waiting(++last_, asked.prompt, asked.priority), asked.prompt + asked.text};
    r.s.client = asked.client;
    Client& client = clients_[asked.client];
    if (client.requests++ == 0) client.since = step_;
    all_.push_back(r);
    return last_;
  }
  void ask(uint32_t times, const Asked& asked) {
    for (uint32_t i = 0; i < times; ++i) ask(asked);
  }
  void step() {
    ++step_;
    for (Request& r : all_) describe(r);
    std::stable_sort(all_.begin(), all_.end(), [](const Request& a, const Request& b) {
      const bool wa = a.s.phase == TENON_SEQUENCE_WAITS, wb = b.s.phase == TENON_SEQUENCE_WAITS;
      return wa != wb ? wb : wa && a.s.id < b.s.id;
    });
    std::vector<tenon_sequence> listed;
    uint32_t running = 0;
    for (const Request& r : all_) {
      listed.push_back(r.s);
      running += r.s.phase != TENON_SEQUENCE_WAITS ? 1 : 0;
    }
    const Plan plan = next(scheduler_, listed, {.rows = rows_, .free_slots = slots_ - running});
    for (const uint32_t i : plan.preempted) {
      all_[i].s.phase = TENON_SEQUENCE_WAITS;
      all_[i].s.cached = 0;
    }
    for (const auto& [i, rows] : plan.shares) run(all_[i], rows);
    std::erase_if(all_, [](const Request& r) { return r.s.tokens == r.end; });
  }
  // Steps until everybody has ended.
  void finish() {
    while (!all_.empty() && step_ < kMostSteps) step();
    EXPECT_TRUE(all_.empty()) << all_.size() << " never end";
  }

  const std::vector<uint64_t>& admitted() const { return admitted_; }  // these are ids, in order
  uint64_t step_of_first_token(uint64_t id) const { return first_.at(id); }
  uint64_t steps() const { return step_; }

 private:
  struct Request {
    tenon_sequence s;
    uint32_t end;  // it ends with so many tokens
  };
  struct Client {
    uint64_t served = 0, since = 0;
    uint32_t requests = 0;
  };
  static constexpr uint64_t kMostSteps = 20000;

  void describe(Request& r) {
    ++r.s.age;
    r.s.pending = r.s.tokens - r.s.cached;
    r.s.client_served = clients_[r.s.client].served;
    r.s.client_waits = step_ - clients_[r.s.client].since;
  }
  void run(Request& r, uint32_t rows) {
    Client& client = clients_[r.s.client];
    client.served += rows;
    client.since = step_;
    if (r.s.phase == TENON_SEQUENCE_WAITS) admitted_.push_back(r.s.id);
    r.s.phase = TENON_SEQUENCE_PROMPT;
    r.s.cached += rows;
    if (r.s.cached < r.s.tokens) return;
    first_.emplace(r.s.id, step_);
    r.s.phase = TENON_SEQUENCE_GENERATES;
    if (++r.s.tokens == r.end) --client.requests;
  }

  Component scheduler_;
  uint32_t rows_, slots_;
  uint64_t last_ = 0, step_ = 0;
  std::vector<Request> all_;
  std::map<uint64_t, Client> clients_;
  std::vector<uint64_t> admitted_;
  std::map<uint64_t, uint64_t> first_;
};

std::vector<Setting> slots(int64_t sequences, bool fair = true) {
  return {{"sequences", sequences}, {"fair", fair}, {"patience", int64_t{0}}};
}

TEST(Fair, AHundredRequestsOfOneClientDoNotHoldUpAnothersFirst) {
  for (const bool fair : {true, false}) {
    Steps steps(slots(2, fair), 100);
    steps.ask(100, {.client = 1, .prompt = 10, .text = 10});
    for (int i = 0; i < 3; ++i) steps.step();
    const uint64_t first = steps.ask({.client = 2, .prompt = 10, .text = 10});
    steps.finish();
    const auto at = std::find(steps.admitted().begin(), steps.admitted().end(), first) - steps.admitted().begin();
    EXPECT_EQ(at, fair ? 2 : 100) << "two had begun";
    EXPECT_EQ(steps.step_of_first_token(first), fair ? 11U : 501U);
  }
}

TEST(Fair, ClientsTakeTurnsAndEachOnesOrderIsKept) {
  Steps steps(slots(1), 100);
  steps.ask(3, {.client = 7, .prompt = 10, .text = 5});
  steps.ask(2, {.client = 3, .prompt = 10, .text = 5});
  steps.ask(1, {.client = 5, .prompt = 10, .text = 5});
  steps.finish();
  EXPECT_THAT(steps.admitted(), ElementsAre(1, 4, 6, 2, 5, 3));
}

TEST(Fair, ATurnIsWorthTokensNotRequests) {
  Steps steps(slots(1), 100);
  steps.ask(3, {.client = 1, .prompt = 40, .text = 1});
  steps.ask(9, {.client = 2, .prompt = 10, .text = 1});
  steps.finish();
  EXPECT_THAT(steps.admitted(), ElementsAre(1, 4, 5, 6, 7, 2, 8, 9, 10, 11, 3, 12));
}

TEST(Fair, GeneratedTokensCount) {
  Steps steps(slots(1), 100);
  steps.ask(2, {.client = 1, .prompt = 10, .text = 31});
  steps.ask(5, {.client = 2, .prompt = 10, .text = 1});
  steps.finish();
  EXPECT_THAT(steps.admitted(), ElementsAre(1, 3, 4, 5, 6, 2, 7));
}

TEST(Fair, NobodySavesUpTurns) {
  Steps steps(slots(1), 100);
  steps.ask({.client = 2, .prompt = 10});
  steps.finish();
  steps.ask(20, {.client = 1, .prompt = 10});  // client 2 asks for nothing meanwhile
  steps.finish();
  const size_t before = steps.admitted().size();
  for (int i = 0; i < 3; ++i) {
    steps.ask({.client = 1, .prompt = 10});
    steps.ask({.client = 2, .prompt = 10});
  }
  steps.ask(3, {.client = 2, .prompt = 10});
  steps.finish();
  const std::vector<uint64_t> rest(steps.admitted().begin() + static_cast<std::ptrdiff_t>(before),
                                   steps.admitted().end());
  EXPECT_THAT(rest, ElementsAre(22, 23, 24, 25, 26, 27, 28, 29, 30));
}

TEST(Fair, WhoComesBackIsNotForgotten) {
  Steps steps(slots(1), 100);
  const auto small = [&] { return steps.ask({.client = 2, .prompt = 4}); };
  steps.ask(10, {.client = 1, .prompt = 4});
  steps.ask({.client = 2, .prompt = 40});
  steps.step();
  steps.step();  // this runs the large one of client 2, which then has nothing
  EXPECT_THAT(steps.admitted(), ElementsAre(1, 11));
  const uint64_t later = small();
  steps.finish();
  EXPECT_EQ(steps.admitted().back(), later) << "it has had as much as all the others together";
}

TEST(Fair, RowsOfPromptsGoRoundToo) {
  const Component fair("scheduler", "continuous", {{"fair", true}});
  tenon_sequence long_one = prompt(1, 5000, 1000), second = prompt(2, 5000, 0), other = prompt(3, 30, 0);
  long_one.client = second.client = 1;
  other.client = 2;
  long_one.client_served = second.client_served = 1000;
  EXPECT_EQ(next(fair, {long_one, second, other}).shares, (Shares{{2, 30}, {0, 70}}));
  const Component first_come("scheduler", "continuous");
  EXPECT_EQ(next(first_come, {long_one, second, other}).shares, (Shares{{0, 100}}));
  // One that waits for a slot goes before rows of a client that has had more.
  tenon_sequence new_one = waiting(4, 20);
  new_one.client = 3;
  EXPECT_EQ(next(fair, {long_one, second, new_one}, {.free_slots = 1}).shares, (Shares{{2, 20}, {0, 80}}));
  EXPECT_EQ(next(fair, {long_one, second, new_one}, {.free_slots = 0}).shares, (Shares{{0, 100}}))
      << "who finds no slot holds up nobody that runs";
}

TEST(Fair, PrioritiesComeFirst) {
  Steps steps(slots(1), 100);
  steps.ask(3, {.client = 1, .prompt = 10, .priority = 1});
  steps.ask(2, {.client = 2, .prompt = 10});
  steps.ask(2, {.client = 3, .prompt = 10, .priority = 1});
  steps.finish();
  EXPECT_THAT(steps.admitted(), ElementsAre(1, 6, 2, 7, 3, 4, 5));
}

// A client that floods with a higher priority does not starve another one: waiting counts by client,
// so that the flood's own waiting does not.
TEST(Fair, WaitingRaisesAClientAndNotAFlood) {
  Steps steps(std::vector<Setting>{{"sequences", 1}, {"fair", true}, {"patience", 20}}, 100);
  steps.ask(200, {.client = 1, .prompt = 10, .priority = 1});
  const uint64_t low = steps.ask({.client = 2, .prompt = 10});
  const uint64_t lower = steps.ask({.client = 3, .prompt = 10, .priority = -1});
  steps.finish();
  EXPECT_LE(steps.step_of_first_token(low), 22U);
  EXPECT_LE(steps.step_of_first_token(lower), 44U);
}

TEST(Fair, NothingStarvesAndAllComeToTheirEnd) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Steps steps(std::vector<Setting>{{"sequences", 3}, {"fair", true}, {"patience", 50}, {"budget_rows", 16}}, 24);
    std::mt19937_64 random(seed);
    std::vector<uint64_t> watched;
    for (int i = 0; i < 400; ++i) {
      Asked asked;
      asked.client = 1 + random() % 3 * (random() % 3);
      asked.prompt = 1 + static_cast<uint32_t>(random() % 60);
      asked.text = 1 + static_cast<uint32_t>(random() % 20);
      asked.priority = static_cast<int32_t>(random() % 3);
      const uint64_t id = steps.ask(asked);
      if (i % 40 == 0) watched.push_back(id);
      steps.step();
    }
    const uint64_t lone = steps.ask({.client = 99, .prompt = 5, .text = 1});
    const uint64_t asked_at = steps.steps();
    steps.finish();
    EXPECT_LE(steps.step_of_first_token(lone) - asked_at, 200U) << "two priorities' patience, and one slot's turn";
    for (const uint64_t id : watched) EXPECT_GT(steps.step_of_first_token(id), 0U);
  }
}

}  // namespace
}  // namespace tenon::test
