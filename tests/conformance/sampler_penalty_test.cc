// Penalties are held against a model that keeps each sequence's tokens in a list.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "samplers.h"

namespace tenon::test {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();
using Text = std::vector<int32_t>;

struct Penalty {
  const char* name;
  Settings settings;
  float (*model)(float logit, float count);
};
const Penalty kPenalties[] = {
    {"repetition_penalty", {{"penalty", 1.25}}, [](float l, float) { return l > 0 ? l / 1.25F : l * 1.25F; }},
    {"repetition_penalty", {{"penalty", 1}}, [](float l, float) { return l; }},
    {"frequency_presence",
     {{"frequency", 0.5}, {"presence", -2}},
     [](float l, float n) { return l - (0.5F * n + -2); }},
    {"frequency_presence", {}, [](float l, float) { return l; }},
};

Candidates expected(const Penalty& p, const Logits& logits, const Text& text) {
  std::vector<float> counts(logits.size());
  for (const int32_t t : text) counts[static_cast<size_t>(t)] += 1;
  Candidates all;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > kOut)) continue;
    all.push_back({static_cast<int32_t>(i), counts[i] > 0 ? p.model(logits[i], counts[i]) : logits[i]});
  }
  return all;
}
Candidates by_id(Candidates all) {
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return all;
}

// A random step has a run of rows of each slot, each row the child of any row before it in the run; some are wanted.
struct RandomStep {
  std::vector<StepRow> rows;
  std::vector<int32_t> seq_slot, seq_row, accepted;
};
RandomStep random_step(uint32_t vocab, uint32_t slots, std::mt19937_64& random) {
  RandomStep step;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    if (random() % 4 == 0) continue;
    const auto first = static_cast<int32_t>(step.rows.size()), n = static_cast<int32_t>(1 + random() % 5);
    step.seq_slot.push_back(static_cast<int32_t>(slot));
    step.seq_row.push_back(first);
    for (int32_t i = 0; i < n; ++i) {
      const int32_t parent = i == 0 ? -1 : first + static_cast<int32_t>(random() % static_cast<uint64_t>(i));
      // There are few tokens, so that they repeat.
      const auto token = static_cast<int32_t>(random() % std::min<uint64_t>(vocab, 12) * (vocab > 12000 ? 4000 : 1));
      step.rows.push_back({.slot = static_cast<int32_t>(slot), .token = token, .parent = parent});
      if (random() % 3 != 0) step.rows.back().logits = awkward_logits(vocab, random());
    }
    step.accepted.push_back(static_cast<int32_t>(1 + random() % static_cast<uint64_t>(n)));
  }
  step.seq_row.push_back(static_cast<int32_t>(step.rows.size()));
  return step;
}

Text context_of(const RandomStep& step, const std::vector<Text>& texts, size_t row) {
  Text context = texts[static_cast<size_t>(step.rows[row].slot)];
  for (auto r = static_cast<int32_t>(row); r >= 0; r = step.rows[static_cast<size_t>(r)].parent) {
    context.push_back(step.rows[static_cast<size_t>(r)].token);
  }
  return context;
}

struct Subject {
  const Penalty& penalty;
  const Component& component;
  uint32_t vocab;  // tokens
};
// This is carried from step to step: the sequences so far, and the component's state.
struct Carried {
  std::vector<Text> texts;  // by slot
  std::vector<uint8_t> state = {};
};

// Bounds belong to a host, so each step has its own; the state is carried from one to the next. `form` is TENON_DENSE
// or TENON_SPARSE.
void run_step(const Subject& subject, const RandomStep& step, uint32_t form, Carried& carried) {
  const auto& [p, component, vocab] = subject;
  auto& [texts, state] = carried;
  const auto slots = static_cast<uint32_t>(texts.size());
  SamplerHost host(vocab, step.rows, slots);
  OpRunner& runner = host.runner();
  const SamplerHost::Entry entry = host.add(component, {p.settings});
  const std::span<uint8_t> kept = runner.values<uint8_t>(entry.state);
  state.resize(kept.size());
  std::copy(state.begin(), state.end(), kept.begin());
  std::copy(step.seq_slot.begin(), step.seq_slot.end(), runner.step_i32(TENON_STEP_SEQ_SLOT).begin());
  std::copy(step.seq_row.begin(), step.seq_row.end(), runner.step_i32(TENON_STEP_SEQ_ROW).begin());
  std::copy(step.accepted.begin(), step.accepted.end(), runner.step_i32(TENON_STEP_ACCEPTED).begin());
  const auto wanted = static_cast<uint32_t>(
      std::count_if(step.rows.begin(), step.rows.end(), [](const StepRow& r) { return !r.logits.empty(); }));
  runner.set_live(static_cast<uint32_t>(step.rows.size()), static_cast<uint32_t>(step.seq_slot.size()), wanted);

  const tenon_candidates given = form == TENON_DENSE ? host.dense() : host.sparse(vocab);
  const tenon_candidates out = host.apply(entry, given);
  host.accept(entry, given);
  host.run(vocab + wanted);
  const std::vector<Candidates> got = host.candidates(out);
  size_t at = 0;
  for (size_t r = 0; r < step.rows.size(); ++r) {
    if (step.rows[r].logits.empty()) continue;
    ASSERT_EQ(by_id(got[at++]), expected(p, step.rows[r].logits, context_of(step, texts, r))) << p.name << " " << vocab;
  }
  state.assign(kept.begin(), kept.end());
  for (size_t s = 0; s < step.seq_slot.size(); ++s) {
    for (int32_t i = 0; i < step.accepted[s]; ++i) {
      texts[static_cast<size_t>(step.seq_slot[s])].push_back(step.rows[static_cast<size_t>(step.seq_row[s] + i)].token);
    }
  }
}

TEST(Penalties, EqualTheModelUnderRandomAcceptance) {
  for (const Penalty& p : kPenalties) {
    const Component component("sampler", p.name);
    for (const uint32_t vocab : {1U, 2U, 31U, 1000U, 49152U}) {
      for (const uint32_t form : {TENON_DENSE, TENON_SPARSE}) {
        std::mt19937_64 random(vocab + form);
        Carried carried{std::vector<Text>(3)};
        for (int step = 0; step < (vocab > 1000 ? 4 : 25); ++step) {
          run_step({p, component, vocab}, random_step(vocab, 3, random), form, carried);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A prompt comes in one step: a chain as long as the step.
TEST(Penalties, SeeTheWholePrompt) {
  for (const Penalty& p : kPenalties) {
    const Component component("sampler", p.name);
    RandomStep prompt;
    for (int32_t i = 0; i < 700; ++i) prompt.rows.push_back({.token = i * 7 % 100, .parent = i - 1});
    prompt.rows.back().logits = awkward_logits(1000, 1);
    prompt.seq_slot = {0};
    prompt.seq_row = {0, 700};
    prompt.accepted = {700};
    RandomStep next;
    next.rows = {{.logits = awkward_logits(1000, 2), .token = 999}};
    next.seq_slot = {0};
    next.seq_row = {0, 1};
    next.accepted = {1};
    Carried carried{std::vector<Text>(1)};
    run_step({p, component, 1000}, prompt, TENON_DENSE, carried);
    run_step({p, component, 1000}, next, TENON_SPARSE, carried);
  }
}

}  // namespace
}  // namespace tenon::test
