// Every sampler for CUDA is held against the one for the CPU: the same candidates in the same order, the same tokens,
// the same state, bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "recorder.h"
#include "sampler_samplers.h"
#include "support/op_runner.h"
#include "tenon/sdk/cpu/candidates.h"

namespace tenon::test {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity(), kInfinite = -kOut,
                kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kVocabs[] = {1, 7, 1000, 32000, 128256};
constexpr uint32_t kForms[] = {TENON_DENSE, TENON_SPARSE};
constexpr uint32_t kSlots = 3, kPadding = 2;
constexpr int32_t kUntouched = -7;
using Logits = std::vector<float>;

class SamplersOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
  }
};

// Returns logits that are about normal; some equal, some out.
Logits random_logits(uint32_t vocab, uint64_t seed, double deviation) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  Logits logits(vocab);
  for (float& l : logits) {
    l = static_cast<float>(normal(random));
    if (random() % 4 == 0) l = std::round(l);
    if (random() % 16 == 0) l = random() % 2 == 0 ? kOut : kNan;
  }
  return logits;
}

constexpr uint32_t kPatterns = 16;
Logits pattern(uint32_t vocab, uint32_t which) {
  Logits logits(vocab);
  const auto each = [&](auto f) {
    for (uint32_t i = 0; i < vocab; ++i) logits[i] = f(i);
    return logits;
  };
  switch (which % kPatterns) {
    case 1:
      return each([](uint32_t i) { return static_cast<float>(i); });
    case 2:
      return each([](uint32_t i) { return -static_cast<float>(i) / 64; });
    case 3:
      return Logits(vocab, -3);
    case 4:
      return Logits(vocab, kOut);
    case 5:
      return Logits(vocab, kNan);
    case 6:
      return each([](uint32_t i) { return i % 100 == 99 ? kInfinite : 1.0F; });
    case 7:
      return each([](uint32_t i) { return i % 1000 == 7 ? static_cast<float>(i) : -1e9F; });
    case 8:  // one is far above
      logits = random_logits(vocab, vocab, 2);
      logits[vocab / 2] = 1e30F;
      return logits;
    case 9:
      return each([](uint32_t i) { return 100 + static_cast<float>(i * 7919 % 1009) * 1e-5F; });
    case 10:
      return each([](uint32_t i) { return i % 2 == 0 ? 0.0F : -0.0F; });
    case 11:
      return random_logits(vocab, 11 + vocab, 0.01);
    case 12:
      return random_logits(vocab, 12 + vocab, 1e-40);
    case 13:  // few are in
      return each([vocab](uint32_t i) { return i + 5 < vocab ? kOut : static_cast<float>(i % 3); });
    default:
      return random_logits(vocab, which + vocab, 4);
  }
}

struct Row {
  Logits logits;
  int32_t slot = 0, position = 0, token = 0, parent = -1;
};
std::vector<Row> rows_of(uint32_t vocab, uint32_t first, uint32_t n) {
  std::vector<Row> rows;
  for (uint32_t r = 0; r < n; ++r) {
    rows.push_back({.logits = pattern(vocab, first + r), .slot = static_cast<int32_t>((first + r) % kSlots)});
    rows.back().position = static_cast<int32_t>(17 * (first + r));
    rows.back().token = static_cast<int32_t>((first + r) * 31 % vocab);
  }
  return rows;
}

struct Result {
  std::vector<std::vector<std::pair<int32_t, uint32_t>>> candidates;  // a row has ids and the logits' bits
  std::vector<int32_t> tokens;
  std::vector<std::vector<uint32_t>> states;
  uint32_t form = 0;
  bool operator==(const Result&) const = default;
};

// This is a device's part in the test.
struct Cpu {
  static constexpr On kOn = On::kCpu;
  using Runner = OpRunner;
  static std::string run(OpRunner& r) { return r.run(1); }
  template <class T>
  static std::vector<T> read(const OpRunner& r, tenon_tid id) {
    const std::span<T> values = r.values<T>(id);
    return {values.begin(), values.end()};
  }
};
struct Cuda {
  static constexpr On kOn = On::kCuda;
  using Runner = CudaRecorder;
  static std::string run(CudaRecorder& r) { return r.run(); }
  template <class T>
  static std::vector<T> read(const CudaRecorder& r, tenon_tid id) {
    return r.download<T>(id);
  }
};

template <class Device>
class Step {
 public:
  Step(uint32_t vocab, const std::vector<Row>& rows, uint32_t form)
      : vocab_(vocab), rows_(rows), r_(bounds(rows.size())) {
    fill_state();
    fill_logits(form);
  }

  typename Device::Runner& runner() { return r_; }
  void add(const ChainEntry& entry) {
    entries_.push_back(std::make_unique<KeptEntry>(entry, Device::kOn, vocab_, kSlots, r_));
    EXPECT_NE(entries_.back()->sampler.table().in_forms & c_.form, 0U);
    entries_.back()->record(c_, r_.recorder());
  }
  // Takes sequences of this many rows each, all of which but the last are accepted.
  void accept(uint32_t rows_a_sequence) {
    std::vector<int32_t> slot, first, accepted;
    for (uint32_t row = 0; row < rows_.size(); row += rows_a_sequence) {
      const auto n = static_cast<int32_t>(std::min<size_t>(rows_a_sequence, rows_.size() - row));
      slot.push_back(rows_[row].slot), first.push_back(static_cast<int32_t>(row)),
          accepted.push_back(n > 1 ? n - 1 : 1);
    }
    first.push_back(static_cast<int32_t>(rows_.size()));
    set(TENON_STEP_SEQ_SLOT, slot);
    set(TENON_STEP_SEQ_ROW, first);
    set(TENON_STEP_ACCEPTED, accepted);
    r_.set_live(wanted(), static_cast<uint32_t>(slot.size()), wanted());
    for (const auto& l : entries_) {
      const tenon_sampler& t = l->sampler.table();
      if (l->state == 0) continue;
      const tenon_sampling s = l->sampling(r_.recorder()->step(r_.recorder()->ctx, TENON_STEP_NEXT));
      EXPECT_EQ(t.record_accept(l->sampler.self(), &s, &c_, r_.recorder(), nullptr), TENON_OK);
    }
  }

  Result run(int times = 1) {
    for (int i = 0; i < times; ++i) EXPECT_EQ(Device::run(r_), "");
    return result();
  }
  Result result() {
    Result result = chosen();
    result.form = c_.form;
    read_candidates(result);
    return result;
  }
  // Returns all but the candidates, which are temporaries and there after run() alone.
  Result chosen() {
    Result result;
    result.tokens = Device::template read<int32_t>(r_, r_.recorder()->step(r_.recorder()->ctx, TENON_STEP_NEXT));
    for (const auto& l : entries_) {
      if (l->state != 0) result.states.push_back(Device::template read<uint32_t>(r_, l->state));
    }
    return result;
  }

 private:
  static tenon_bounds bounds(size_t rows) {
    const auto n = static_cast<uint32_t>(rows) + kPadding;
    return CudaRecorder::bounds(n, n, 1 << 16, kSlots);
  }
  uint32_t wanted() const { return static_cast<uint32_t>(rows_.size()); }
  void set(uint32_t role, const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), r_.step_i32(role).begin());
  }

  void fill_state() {
    std::vector<int32_t> slot, position, token, parent;
    for (const Row& row : rows_) {
      slot.push_back(row.slot);
      position.push_back(row.position);
      token.push_back(row.token);
      parent.push_back(row.parent);
    }
    r_.set_live(wanted(), 0, wanted());
    set(TENON_STEP_SLOT, slot);
    set(TENON_STEP_POS, position);
    set(TENON_STEP_TOKEN, token);
    set(TENON_STEP_PARENT, parent);
    set(TENON_STEP_NEXT, std::vector<int32_t>(rows_.size() + kPadding, kUntouched));
    set(TENON_STEP_RNG, {1234, 0, 0, 0, 5, 6, 0, 0, -1, 77, 0, 0});
  }
  void fill_logits(uint32_t form) {
    const size_t n = rows_.size() + kPadding;
    Logits all(n * vocab_, kNan);
    std::vector<int32_t> ids(n * vocab_, -1), counts(n, -1);
    for (size_t r = 0; r < rows_.size(); ++r) {
      std::vector<uint32_t> order(vocab_);
      std::iota(order.begin(), order.end(), 0);
      if (form == TENON_SPARSE) std::shuffle(order.begin(), order.end(), std::mt19937_64(r));
      size_t at = r * vocab_;
      for (const uint32_t id : order) {
        if (form == TENON_SPARSE && !(rows_[r].logits[id] > kOut)) continue;
        all[at] = rows_[r].logits[id];
        ids[at++] = static_cast<int32_t>(id);
      }
      counts[r] = static_cast<int32_t>(at - r * vocab_);
    }
    c_ = sdk::abi_struct<tenon_candidates>();
    c_.form = form;
    c_.cap = c_.vocab = vocab_;
    const auto rows = static_cast<int64_t>(n);
    c_.logits = r_.input(TENON_F32, {rows, vocab_}, all);
    if (form == TENON_DENSE) return;
    c_.id = r_.input(TENON_I32, {rows, vocab_}, ids);
    c_.count = r_.input(TENON_I32, {rows}, counts);
  }
  void read_candidates(Result& result) {
    const Logits logits = Device::template read<float>(r_, c_.logits);
    const bool dense = c_.form == TENON_DENSE;
    const std::vector<int32_t> ids = dense ? std::vector<int32_t>() : Device::template read<int32_t>(r_, c_.id);
    const std::vector<int32_t> counts = dense ? std::vector<int32_t>() : Device::template read<int32_t>(r_, c_.count);
    result.candidates.resize(rows_.size());
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (size_t i = 0; i < (dense ? vocab_ : static_cast<size_t>(counts[r])); ++i) {
        const size_t at = r * vocab_ + i;
        if (dense && !(logits[at] > kOut)) continue;
        result.candidates[r].push_back(
            {dense ? static_cast<int32_t>(i) : ids[at], __builtin_bit_cast(uint32_t, logits[at])});
      }
    }
  }

  uint32_t vocab_;
  std::vector<Row> rows_;
  typename Device::Runner r_;
  tenon_candidates c_{};
  std::vector<std::unique_ptr<KeptEntry>> entries_;
};

template <class Device>
Result run(uint32_t vocab, const std::vector<Row>& rows, uint32_t form, const std::vector<ChainEntry>& chain) {
  Step<Device> step(vocab, rows, form);
  for (const ChainEntry& entry : chain) step.add(entry);
  return step.run();
}

// The first difference, short enough to be read.
void expect_equal(const Result& cuda, const Result& cpu, const std::string& what) {
  if (cuda == cpu) return;
  ADD_FAILURE() << what << ": the devices differ; forms " << cuda.form << " " << cpu.form << ", states are "
                << (cuda.states == cpu.states ? "equal" : "different");
  for (size_t r = 0; r < cpu.candidates.size(); ++r) {
    const auto &a = cuda.candidates[r], &b = cpu.candidates[r];
    const size_t at = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    if (a != b) ADD_FAILURE() << "row " << r << ": " << a.size() << " candidates, not " << b.size() << "; from " << at;
    if (cuda.tokens[r] != cpu.tokens[r]) {
      ADD_FAILURE() << "row " << r << ": token " << cuda.tokens[r] << ", not " << cpu.tokens[r];
    }
  }
}

void expect_same(const std::vector<ChainEntry>& chain,
                 std::initializer_list<uint32_t> forms = {TENON_DENSE, TENON_SPARSE}) {
  for (const uint32_t vocab : kVocabs) {
    for (const auto& [first, n] : {std::pair{0U, 1U}, {7U, 3U}, {0U, 16U}}) {
      for (const uint32_t form : forms) {
        const std::vector<Row> rows = rows_of(vocab, first, n);
        expect_equal(run<Cuda>(vocab, rows, form, chain), run<Cpu>(vocab, rows, form, chain),
                     chain[0].name + ", " + std::to_string(vocab) + " tokens, " + std::to_string(n) + " rows, form " +
                         std::to_string(form));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_F(SamplersOnCuda, Greedy) {
  expect_same({{"greedy"}});
}
TEST_F(SamplersOnCuda, Categorical) {
  expect_same({{"categorical"}});
}
TEST_F(SamplersOnCuda, Temperature) {
  expect_same({{"temperature", {{{"value", 0.7}}, {{"value", 0}}, {{"value", 3}}}}});
}
TEST_F(SamplersOnCuda, MinP) {
  expect_same({{"min_p", {{{"p", 0.05}}, {{"p", 0}}, {{"p", 1}}}}});
}
TEST_F(SamplersOnCuda, TopP) {
  expect_same({{"top_p", {{{"p", 0.95}}, {{"p", 0.3}}, {{"p", 0.9999}}}}});
  expect_same({{"top_p", {{{"p", 0}}, {{"p", 1}}, {{"p", 0.5}}}}});
}
TEST_F(SamplersOnCuda, TopK) {
  for (const double k : {200.0, 1.0, 40.0, 1024.0}) expect_same({{"top_k", {{{"k", k}}}}});
}
TEST_F(SamplersOnCuda, TopKOfMany) {
  expect_same({{"top_k", {{{"k", 0}}, {{"k", 1025}}, {{"k", 5000}}}}});
}

// Compares the next token, and what the chain leaves of it, in the usual chains.
TEST_F(SamplersOnCuda, Chains) {
  const ChainEntry temperature{"temperature", {{{"value", 0.8}}}}, top_k{"top_k", {{{"k", 200}}}},
      top_p{"top_p", {{{"p", 0.95}}}}, min_p{"min_p", {{{"p", 0.02}}}}, draw{"categorical"};
  expect_same({temperature, top_k, draw});
  expect_same({temperature, top_k, top_p, min_p, draw}, {TENON_DENSE});
  expect_same({temperature, top_p, min_p, draw}, {TENON_DENSE});
  expect_same({top_k, {"greedy"}}, {TENON_DENSE});
}

TEST_F(SamplersOnCuda, DrawsDependOnTheRowAlone) {
  const std::vector<ChainEntry> chain{{"temperature"}, {"top_k"}, {"categorical"}};
  const std::vector<Row> rows = rows_of(32000, 0, 16);
  const Result together = run<Cuda>(32000, rows, TENON_DENSE, chain);
  for (size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(run<Cuda>(32000, {rows[r]}, TENON_DENSE, chain).tokens[0], together.tokens[r]) << r;
  }
}

// The logit of the second of two candidates is brought to where the choice turns: there the last bit of a score
// decides.
TEST_F(SamplersOnCuda, DrawsAreEqualToTheLastBit) {
  constexpr uint32_t kRows = 1000;
  std::vector<uint32_t> loses(kRows, sdk::cpu::rising_bits(-50)), wins(kRows, sdk::cpu::rising_bits(50));
  const auto rows_at = [&](const std::vector<uint32_t>& bits) {
    std::vector<Row> rows;
    for (uint32_t r = 0; r < kRows; ++r) {
      rows.push_back({.logits = {0, sdk::cpu::logit_of_bits(bits[r])}, .position = static_cast<int32_t>(r)});
    }
    return rows;
  };
  const std::vector<ChainEntry> draw{{"categorical"}};
  for (int i = 0; i < 32; ++i) {
    std::vector<uint32_t> middle(kRows);
    for (uint32_t r = 0; r < kRows; ++r) middle[r] = loses[r] + (wins[r] - loses[r]) / 2;
    const Result cpu = run<Cpu>(2, rows_at(middle), TENON_DENSE, draw);
    for (uint32_t r = 0; r < kRows; ++r) (cpu.tokens[r] == 0 ? loses : wins)[r] = middle[r];
  }
  for (const auto& bits : {loses, wins}) {
    const Result cpu = run<Cpu>(2, rows_at(bits), TENON_DENSE, draw);
    expect_equal(run<Cuda>(2, rows_at(bits), TENON_DENSE, draw), cpu, "categorical");
    EXPECT_EQ(std::count(cpu.tokens.begin(), cpu.tokens.begin() + kRows, bits == wins), kRows);
  }
}

// Here p is brought to where one candidate more is kept: there every unit of every weight decides.
TEST_F(SamplersOnCuda, TopPIsEqualToTheLastBit) {
  constexpr uint32_t kVocab = 1000, kFew = 20;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<Row> rows;
    for (uint32_t r = 0; r < kSlots; ++r) {
      rows.push_back({.logits = random_logits(kVocab, 10 * seed + r, 2), .slot = static_cast<int32_t>(r)});
    }
    std::vector<double> few(kSlots, 0), more(kSlots, 1);
    const auto chain = [](const std::vector<double>& p) {
      ChainEntry top_p{"top_p", {}};
      for (const double value : p) top_p.settings.push_back({{"p", value}});
      return std::vector<ChainEntry>{top_p};
    };
    for (int i = 0; i < 52; ++i) {
      std::vector<double> middle(kSlots);
      for (uint32_t r = 0; r < kSlots; ++r) middle[r] = (few[r] + more[r]) / 2;
      const Result cpu = run<Cpu>(kVocab, rows, TENON_DENSE, chain(middle));
      for (uint32_t r = 0; r < kSlots; ++r) (cpu.candidates[r].size() <= kFew ? few : more)[r] = middle[r];
    }
    for (const auto& p : {few, more}) {
      for (const uint32_t form : kForms) {
        expect_equal(run<Cuda>(kVocab, rows, form, chain(p)), run<Cpu>(kVocab, rows, form, chain(p)), "top_p");
      }
    }
  }
}

TEST_F(SamplersOnCuda, RunAgainAndAgainAndInGraphs) {
  const std::vector<Row> rows = rows_of(32000, 0, 3);
  const std::vector<ChainEntry> chain{{"temperature"}, {"top_k"}, {"top_p"}, {"categorical"}}, dense{{"categorical"}};
  for (const auto& entries : {chain, dense}) {
    Step<Cuda> step(32000, rows, TENON_DENSE);
    for (const ChainEntry& entry : entries) step.add(entry);
    const Result first = step.run(), again = step.run();
    expect_equal(again, first, entries[0].name);
    const Result expected = step.chosen();
    for (const auto mode : {CudaRecorder::Mode::kOverlap, CudaRecorder::Mode::kGraph, CudaRecorder::Mode::kGraph}) {
      EXPECT_EQ(step.runner().run(mode), "");
      expect_equal(step.chosen(), expected, entries[0].name);
    }
  }
}

// There are trees of rows, then chains, with what was accepted in between.
TEST_F(SamplersOnCuda, Penalties) {
  const ChainEntry penalties[] = {
      {"repetition_penalty", {{{"penalty", 1.25}}, {{"penalty", 1}}, {{"penalty", 0.5}}}},
      {"frequency_presence", {{{"frequency", 0.3}, {"presence", 0.7}}, {{"frequency", -1.1}}}}};
  for (const ChainEntry& entry : penalties) {
    for (const uint32_t vocab : kVocabs) {
      for (const uint32_t form : kForms) {
        std::vector<Row> rows = rows_of(vocab, 0, 12);
        for (int32_t r = 0; r < 12; ++r) {
          Row& row = rows[static_cast<size_t>(r)];
          row.slot = r / 4;
          row.token = static_cast<int32_t>(static_cast<uint32_t>(r % 2 * 900) % vocab);
          row.parent = r % 4 == 0 ? -1 : r % 4 == 2 ? r - 2 : r - 1;
        }
        const auto result = [&]<class Device>(Device) {
          Step<Device> step(vocab, rows, form);
          step.add(entry);
          step.accept(4);
          return step.run(3);
        };
        expect_equal(result(Cuda{}), result(Cpu{}), entry.name + ", " + std::to_string(vocab) + " tokens");
      }
    }
  }
}

TEST_F(SamplersOnCuda, PenaltiesSeeALongPrompt) {
  std::vector<Row> rows;
  for (int32_t r = 0; r < 500; ++r) rows.push_back({.logits = Logits(1000, 1), .token = r * 7 % 300, .parent = r - 1});
  rows.back().logits = random_logits(1000, 1, 4);
  for (const char* name : {"repetition_penalty", "frequency_presence"}) {
    const std::vector<ChainEntry> chain{{name, {{{"frequency", 0.25}}}}};
    expect_equal(run<Cuda>(1000, rows, TENON_DENSE, chain), run<Cpu>(1000, rows, TENON_DENSE, chain), name);
  }
}

}  // namespace
}  // namespace tenon::test
