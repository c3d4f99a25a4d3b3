// What any sampler owes, processor or selector, whatever it is for; `tenon plugin check` runs these on one library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "sampler_host.h"

namespace tenon::test {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();
constexpr uint32_t kVocabs[] = {31, 1000, 49152};

struct Subject {
  std::string name;
  uint64_t isa;
  std::string label;
};
void PrintTo(const Subject& s, std::ostream* out) {
  *out << s.label;
}
std::vector<Subject> samplers(bool selectors) {
  std::vector<Subject> all;
  for (const std::string& name : installed("sampler")) {
    if ((Component("sampler", name).table<tenon_sampler>().is_selector != 0) != selectors) continue;
    all.push_back({name, 0, name + "_scalar"});
    if (machine_isa() != 0) all.push_back({name, machine_isa(), name});
  }
  return all;
}

// Without NaN, about which the interface says nothing.
Logits some_logits(uint32_t vocab, uint64_t seed) {
  Logits logits = awkward_logits(vocab, seed);
  for (float& l : logits) l = std::isnan(l) ? kOut : l;
  return logits;
}

// One sampler at its defaults, over a chain of rows of one slot.
class Step {
 public:
  Step(const Component& sampler, const std::vector<Logits>& logits, uint32_t form)
      : host_(static_cast<uint32_t>(logits[0].size()), chain(logits)), link_(host_.link(sampler)) {
    const auto rows = static_cast<uint32_t>(logits.size());
    OpRunner& runner = host_.runner();
    runner.step_i32(TENON_STEP_RNG)[0] = 77;
    runner.step_i32(TENON_STEP_SEQ_ROW)[1] = runner.step_i32(TENON_STEP_ACCEPTED)[0] = static_cast<int32_t>(rows);
    runner.set_live(rows, 1, rows);
    in_ = form == TENON_DENSE ? host_.dense() : host_.sparse(1);
  }

  SamplerHost& host() { return host_; }
  const SamplerHost::Link& link() const { return link_; }
  const tenon_candidates& in() const { return in_; }
  std::vector<Candidates> apply(uint64_t seed) {
    const tenon_candidates out = host_.apply(link_, in_);
    host_.run(seed);
    EXPECT_TRUE(out.form == TENON_DENSE || out.form == TENON_SPARSE) << "hands on candidates in no form";
    return host_.candidates(out);
  }
  std::vector<int32_t> select(uint64_t seed) {
    const tenon_tid next = host_.select(link_, in_);
    host_.run(seed);
    return host_.tokens(next);
  }

 private:
  static std::vector<StepRow> chain(const std::vector<Logits>& logits) {
    std::vector<StepRow> rows = rows_of(logits);
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r].parent = static_cast<int32_t>(r) - 1, rows[r].token = static_cast<int32_t>(r * 5 % logits[0].size());
    }
    return rows;
  }

  SamplerHost host_;
  SamplerHost::Link link_;
  tenon_candidates in_{};
};

class Sampler : public ::testing::TestWithParam<Subject> {
 protected:
  Sampler() : sampler_("sampler", GetParam().name, {}, GetParam().isa) {}
  std::vector<uint32_t> forms() const {
    std::vector<uint32_t> all;
    for (const uint32_t form : {TENON_DENSE, TENON_SPARSE}) {
      if ((sampler_.table<tenon_sampler>().in_forms & form) != 0) all.push_back(form);
    }
    return all;
  }

  const Component sampler_;
};

class AnyProcessor : public Sampler {};

TEST_P(AnyProcessor, PutsNothingBackInAndLeavesSomething) {
  for (const uint32_t form : forms()) {
    for (const uint32_t vocab : kVocabs) {
      const std::vector<Logits> logits = {some_logits(vocab, vocab), some_logits(vocab, vocab + 1)};
      const std::vector<Candidates> kept = Step(sampler_, logits, form).apply(1);
      for (size_t r = 0; r < logits.size(); ++r) {
        EXPECT_FALSE(kept[r].empty()) << "puts all candidates of a row out";
        std::set<int32_t> seen;
        for (const Candidate& c : kept[r]) {
          ASSERT_TRUE(c.id >= 0 && static_cast<uint32_t>(c.id) < vocab)
              << "lists a token that does not exist: " << c.id;
          ASSERT_TRUE(seen.insert(c.id).second) << "lists token " << c.id << " twice";
          ASSERT_GT(logits[r][static_cast<size_t>(c.id)], kOut) << "puts token " << c.id << " back in";
          ASSERT_FALSE(std::isnan(c.logit)) << "makes the logit of token " << c.id << " no number";
        }
      }
    }
  }
}

TEST_P(AnyProcessor, LeavesItsInputAndItsStateAlone) {
  for (const uint32_t form : forms()) {
    Step step(sampler_, {some_logits(1000, 1), some_logits(1000, 2)}, form);
    OpRunner& runner = step.host().runner();
    std::vector<tenon_tid> inputs = {step.in().logits, step.link().params};
    if (form == TENON_SPARSE) inputs.insert(inputs.end(), {step.in().id, step.in().count});
    if (step.link().state != 0) inputs.push_back(step.link().state);
    const auto bytes = [&] {
      std::vector<std::vector<uint8_t>> all;
      for (const tenon_tid t : inputs) {
        const std::span<uint8_t> data = runner.values<uint8_t>(t);
        all.emplace_back(data.begin(), data.end());
      }
      return all;
    };
    const auto before = bytes();
    step.apply(1);
    EXPECT_EQ(bytes(), before) << "record_apply's ops write to what they were given";
  }
}

TEST_P(AnyProcessor, DependsOnNeitherSplitNorLaterRows) {
  for (const uint32_t form : forms()) {
    for (const uint32_t vocab : kVocabs) {
      std::vector<Logits> logits;
      for (uint64_t r = 0; r < 4; ++r) logits.push_back(some_logits(vocab, 10 * vocab + r));
      const std::vector<Candidates> kept = Step(sampler_, logits, form).apply(1);
      for (const uint64_t seed : {2, 3}) EXPECT_EQ(Step(sampler_, logits, form).apply(seed), kept) << vocab;
      for (size_t n = 1; n < logits.size(); ++n) {
        const std::vector<Logits> fewer(logits.begin(), logits.begin() + static_cast<int64_t>(n));
        EXPECT_EQ(Step(sampler_, fewer, form).apply(4)[n - 1], kept[n - 1]) << vocab << ", " << n << " rows";
      }
    }
  }
}

TEST_P(AnyProcessor, MovesItsStateByAccepting) {
  const Step probe(sampler_, {some_logits(31, 1)}, forms().front());
  if (probe.link().state == 0) GTEST_SKIP() << "it has no state";
  ASSERT_NE(probe.link().table->record_accept, nullptr) << "it has a state that nothing moves";
  std::vector<std::vector<uint8_t>> states;
  for (const uint64_t seed : {1, 2}) {
    Step step(sampler_, {some_logits(1000, 1), some_logits(1000, 2)}, forms().front());
    step.host().accept(step.link());
    step.host().run(seed);
    const std::span<uint8_t> state = step.host().runner().values<uint8_t>(step.link().state);
    states.emplace_back(state.begin(), state.end());
  }
  EXPECT_EQ(states[0], states[1]) << "depends on how its chunks are split";
  EXPECT_TRUE(std::any_of(states[0].begin(), states[0].end(), [](uint8_t b) { return b != 0; })) << "does not move";
}

INSTANTIATE_TEST_SUITE_P(All, AnyProcessor, ::testing::ValuesIn(samplers(false)),
                         [](const auto& param) { return param.param.label; });

class AnySelector : public Sampler {};

TEST_P(AnySelector, TakesWhatIsIn) {
  for (const uint32_t form : forms()) {
    for (const uint32_t vocab : kVocabs) {
      std::vector<Logits> logits;
      for (uint64_t r = 0; r < 16; ++r) logits.push_back(some_logits(vocab, r));
      logits.emplace_back(vocab, kOut), logits.back()[vocab / 2] = -1e30F;  // one is left
      logits.emplace_back(vocab, kOut);                                     // none is
      const std::vector<int32_t> tokens = Step(sampler_, logits, form).select(1);
      for (size_t r = 0; r < tokens.size(); ++r) {
        ASSERT_TRUE(tokens[r] >= 0 && static_cast<uint32_t>(tokens[r]) < vocab) << "chooses token " << tokens[r];
        if (r + 1 == tokens.size()) continue;
        EXPECT_GT(logits[r][static_cast<size_t>(tokens[r])], kOut) << "chooses a token that is out";
      }
    }
  }
}

// Of five candidates the likelier is chosen at least as often, up to four deviations, and the likeliest by far.
TEST_P(AnySelector, PrefersTheLikely) {
  const std::vector<std::pair<size_t, double>> share = {{40, 0.72}, {3, 0.2}, {63, 0.05}, {0, 0.02}, {17, 0.01}};
  constexpr size_t kRows = 512;
  Logits row(64, kOut);
  for (const auto& [id, p] : share) row[id] = static_cast<float>(std::log(p));
  for (const uint32_t form : forms()) {
    std::vector<double> chosen(row.size());
    for (const int32_t token : Step(sampler_, std::vector<Logits>(kRows, row), form).select(1)) {
      chosen.at(static_cast<size_t>(token)) += 1;
    }
    for (size_t i = 1; i < share.size(); ++i) {
      const double often = chosen[share[i - 1].first], less = chosen[share[i].first];
      const double noise = 4 * std::sqrt(kRows * share[i].second);
      EXPECT_GE(often, i == 1 ? less + noise : less - noise)
          << "token " << share[i].first << " is less likely than " << share[i - 1].first;
    }
  }
}

TEST_P(AnySelector, DependsOnNeitherSplitNorOtherRows) {
  for (const uint32_t form : forms()) {
    for (const uint32_t vocab : kVocabs) {
      std::vector<Logits> logits;
      for (uint64_t r = 0; r < 4; ++r) logits.push_back(some_logits(vocab, 10 * vocab + r));
      const std::vector<int32_t> tokens = Step(sampler_, logits, form).select(1);
      for (const uint64_t seed : {2, 3}) EXPECT_EQ(Step(sampler_, logits, form).select(seed), tokens) << vocab;
      for (size_t n = 1; n < logits.size(); ++n) {
        const std::vector<Logits> fewer(logits.begin(), logits.begin() + static_cast<int64_t>(n));
        EXPECT_EQ(Step(sampler_, fewer, form).select(4)[n - 1], tokens[n - 1]) << vocab << ", " << n << " rows";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AnySelector, ::testing::ValuesIn(samplers(true)),
                         [](const auto& param) { return param.param.label; });

}  // namespace
}  // namespace tenon::test
