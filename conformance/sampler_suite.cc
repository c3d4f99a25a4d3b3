// Any sampler owes this, processor or selector, whatever it is for: it keeps to its operands, hands on candidates that
// exist, leaves its input alone, treats each row by itself, and moves its state by accepting.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "conformance/sampler_host.h"
#include "conformance/suites.h"

namespace tenon::conformance {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();
constexpr uint32_t kVocabs[] = {31, 1000, 49152};

// There is no NaN among them, about which the interface says nothing.
Logits some_logits(uint32_t vocab, uint64_t seed) {
  Logits logits = awkward_logits(vocab, seed);
  for (float& l : logits) l = std::isnan(l) ? kOut : l;
  return logits;
}
std::vector<Logits> rows_of_logits(uint32_t vocab, uint64_t n) {
  std::vector<Logits> logits;
  for (uint64_t r = 0; r < n; ++r) logits.push_back(some_logits(vocab, 10 * vocab + r));
  return logits;
}

// This runs one sampler at its defaults, over a chain of rows of one slot.
class Step {
 public:
  Step(const Component& sampler, const std::vector<Logits>& logits, uint32_t form)
      : host_(static_cast<uint32_t>(logits[0].size()), chain(logits), 1, 2, sampler.device()),
        entry_(host_.add(sampler)) {
    const auto rows = static_cast<uint32_t>(logits.size());
    OpRunner& runner = host_.runner();
    runner.step_i32(TENON_STEP_RNG)[0] = 77;
    runner.step_i32(TENON_STEP_SEQ_ROW)[1] = runner.step_i32(TENON_STEP_ACCEPTED)[0] = static_cast<int32_t>(rows);
    runner.set_live(rows, 1, rows);
    in_ = form == TENON_DENSE ? host_.dense() : host_.sparse(1);
  }

  SamplerHost& host() { return host_; }
  const SamplerHost::Entry& entry() const { return entry_; }
  const tenon_candidates& in() const { return in_; }
  std::vector<Candidates> apply(uint64_t seed) {
    const tenon_candidates out = host_.apply(entry_, in_);
    host_.run(seed);
    require(out.form == TENON_DENSE || out.form == TENON_SPARSE, "hands on candidates in no form");
    return host_.candidates(out);
  }
  std::vector<int32_t> select(uint64_t seed) {
    const tenon_tid next = host_.select(entry_, in_);
    host_.run(seed);
    return host_.tokens(next);
  }

 private:
  static std::vector<StepRow> chain(const std::vector<Logits>& logits) {
    std::vector<StepRow> rows = rows_of(logits);
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r].parent = static_cast<int32_t>(r) - 1;
      rows[r].token = static_cast<int32_t>(r * 5 % logits[0].size());
    }
    return rows;
  }

  SamplerHost host_;
  SamplerHost::Entry entry_;
  tenon_candidates in_{};
};

bool selects(const Component& sampler) {
  return sampler.table<tenon_sampler>().is_selector != 0;
}
std::vector<uint32_t> forms_of(const Component& sampler) {
  std::vector<uint32_t> all;
  for (const uint32_t form : {TENON_DENSE, TENON_SPARSE}) {
    if ((sampler.table<tenon_sampler>().in_forms & form) != 0) all.push_back(form);
  }
  return all;
}
std::string token(int32_t id) {
  return "token " + std::to_string(id);
}

void require_candidates(const Component& sampler, uint32_t form, uint32_t vocab) {
  const std::vector<Logits> logits = {some_logits(vocab, vocab), some_logits(vocab, vocab + 1)};
  const std::vector<Candidates> kept = Step(sampler, logits, form).apply(1);
  for (size_t r = 0; r < logits.size(); ++r) {
    require(!kept[r].empty(), "puts all candidates of a row out");
    std::set<int32_t> seen;
    for (const Candidate& c : kept[r]) {
      if (c.id < 0 || static_cast<uint32_t>(c.id) >= vocab) fail("lists " + token(c.id) + ", which does not exist");
      if (!seen.insert(c.id).second) fail("lists " + token(c.id) + " twice");
      if (logits[r][static_cast<size_t>(c.id)] == kOut) fail("puts " + token(c.id) + " back in");
      if (std::isnan(c.logit)) fail("makes the logit of " + token(c.id) + " no number");
    }
  }
}

void require_choice(const Component& sampler, uint32_t form, uint32_t vocab) {
  std::vector<Logits> logits;
  for (uint64_t r = 0; r < 16; ++r) logits.push_back(some_logits(vocab, r));
  logits.emplace_back(vocab, kOut);
  logits.back()[vocab / 2] = -1e30F;  // one is left
  logits.emplace_back(vocab, kOut);   // none is
  const std::vector<int32_t> tokens = Step(sampler, logits, form).select(1);
  for (size_t r = 0; r < tokens.size(); ++r) {
    const int32_t id = tokens[r];
    if (id < 0 || static_cast<uint32_t>(id) >= vocab) fail("chooses " + token(id) + " of " + std::to_string(vocab));
    if (r + 1 == tokens.size()) continue;
    if (logits[r][static_cast<size_t>(id)] == kOut) fail("chooses " + token(id) + ", which is out");
  }
}

// The likelier of five candidates is chosen at least as often, up to four deviations, and the likeliest by far.
void require_preference(const Component& sampler, uint32_t form) {
  const std::vector<std::pair<size_t, double>> share = {{40, 0.72}, {3, 0.2}, {63, 0.05}, {0, 0.02}, {17, 0.01}};
  constexpr size_t kRows = 512;
  Logits row(64, kOut);
  for (const auto& [id, p] : share) row[id] = static_cast<float>(std::log(p));
  std::vector<double> chosen(row.size());
  for (const int32_t id : Step(sampler, std::vector<Logits>(kRows, row), form).select(1)) {
    chosen.at(static_cast<size_t>(id)) += 1;
  }
  for (size_t i = 1; i < share.size(); ++i) {
    const double often = chosen[share[i - 1].first], less = chosen[share[i].first];
    const double noise = 4 * std::sqrt(kRows * share[i].second);
    if (often >= (i == 1 ? less + noise : less - noise)) continue;
    fail("takes token " + std::to_string(share[i].first) + " more often than token " +
         std::to_string(share[i - 1].first) + ", which is likelier");
  }
}

void keeps_to_its_operands(const Subject& subject) {
  const std::unique_ptr<Component> sampler = subject.open();
  for (const uint32_t form : forms_of(*sampler)) {
    for (const uint32_t vocab : kVocabs) {
      Step step(*sampler, {some_logits(vocab, 1), some_logits(vocab, 2)}, form);
      selects(*sampler) ? static_cast<void>(step.select(1)) : static_cast<void>(step.apply(1));
      if (step.entry().state == 0) continue;
      step.host().accept(step.entry(), step.in());
      step.host().run(2);
    }
  }
}

// Nothing that is out comes back in, something stays, and a choice is of what is in.
void candidates(const Subject& subject) {
  const std::unique_ptr<Component> sampler = subject.open();
  for (const uint32_t form : forms_of(*sampler)) {
    for (const uint32_t vocab : kVocabs) {
      selects(*sampler) ? require_choice(*sampler, form, vocab) : require_candidates(*sampler, form, vocab);
    }
    if (selects(*sampler)) require_preference(*sampler, form);
  }
}

void leaves_its_input_alone(const Subject& subject) {
  const std::unique_ptr<Component> sampler = subject.open();
  for (const uint32_t form : forms_of(*sampler)) {
    Step step(*sampler, {some_logits(1000, 1), some_logits(1000, 2)}, form);
    const OpRunner& runner = step.host().runner();
    std::vector<tenon_tid> inputs = {step.in().logits, step.entry().params};
    if (form == TENON_SPARSE) inputs.insert(inputs.end(), {step.in().id, step.in().count});
    if (step.entry().state != 0) inputs.push_back(step.entry().state);
    const auto bytes = [&] {
      std::vector<std::vector<uint8_t>> all;
      for (const tenon_tid t : inputs) all.push_back(runner.read<uint8_t>(t));
      return all;
    };
    const auto before = bytes();
    selects(*sampler) ? static_cast<void>(step.select(1)) : static_cast<void>(step.apply(1));
    require(bytes() == before, "its ops write to what they were given");
  }
}

// A row has the same bits however chunks are split, and whatever rows follow.
void rows(const Subject& subject) {
  const std::unique_ptr<Component> sampler = subject.open();
  const auto same = [&](const auto& answer) {
    for (const uint32_t vocab : kVocabs) {
      const std::vector<Logits> logits = rows_of_logits(vocab, 4);
      const auto all = answer(logits, 1);
      for (const uint64_t seed : {2, 3}) {
        require(answer(logits, seed) == all, "its answer depends on how its chunks are split");
      }
      for (size_t n = 1; n < logits.size(); ++n) {
        const std::vector<Logits> fewer(logits.begin(), logits.begin() + static_cast<int64_t>(n));
        require(answer(fewer, 4)[n - 1] == all[n - 1], "a row's answer depends on the rows after it");
      }
    }
  };
  for (const uint32_t form : forms_of(*sampler)) {
    if (selects(*sampler)) {
      same([&](const std::vector<Logits>& l, uint64_t seed) { return Step(*sampler, l, form).select(seed); });
    } else {
      same([&](const std::vector<Logits>& l, uint64_t seed) { return Step(*sampler, l, form).apply(seed); });
    }
  }
}

void moves_its_state_by_accepting(const Subject& subject) {
  const std::unique_ptr<Component> sampler = subject.open();
  const uint32_t form = forms_of(*sampler).front();
  const Step probe(*sampler, {some_logits(31, 1)}, form);
  if (probe.entry().state == 0) return;
  require(probe.entry().table->record_accept != nullptr, "has a state that nothing moves");
  std::vector<std::vector<uint8_t>> states;
  for (const uint64_t seed : {1, 2}) {
    Step step(*sampler, {some_logits(1000, 1), some_logits(1000, 2)}, form);
    if (selects(*sampler)) static_cast<void>(step.host().select(step.entry(), step.in()));
    step.host().accept(step.entry(), step.in());
    step.host().run(seed);
    states.push_back(step.host().runner().read<uint8_t>(step.entry().state));
  }
  require(states[0] == states[1], "its state depends on how its chunks are split");
  require(std::any_of(states[0].begin(), states[0].end(), [](uint8_t b) { return b != 0; }), "its state does not move");
}

}  // namespace

std::vector<Check> sampler_checks() {
  return {{kBounds, &keeps_to_its_operands},
          {"candidates", &candidates},
          {"purity", &leaves_its_input_alone},
          {"rows", &rows},
          {"state", &moves_its_state_by_accepting}};
}

}  // namespace tenon::conformance
