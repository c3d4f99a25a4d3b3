// Plugins are built by clang with libc++, in a host built by another compiler with libstdc++: they load, compute the
// same to the bit, and their exceptions stay at home.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/attention_host.h"
#include "samplers.h"
#include "tenon/core/params.h"

namespace tenon::test {
namespace {

using conformance::AttentionCase;
using conformance::AttentionHost;
using ::testing::HasSubstr;

class Foreign : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(TENON_FOREIGN_PLUGINS).empty())
      GTEST_SKIP() << "no clang with libc++ was found when this was configured (Debian: clang-16 libc++-16-dev)";
  }
  const LoadedComponent& foreign(const char* kind, const char* name) {
    if (registry_.components().empty()) registry_.add_root(TENON_FOREIGN_PLUGINS);
    return registry_.load(kind, name, "cpu");
  }
  // The machine can do these, from scalar code up.
  static std::vector<uint64_t> instruction_sets() {
    std::vector<uint64_t> sets = {0};
    if (machine_isa() & TENON_ISA_AVX2) sets.push_back(TENON_ISA_AVX2);
    if (machine_isa() & TENON_ISA_AVX512) sets.push_back(TENON_ISA_AVX2 | TENON_ISA_AVX512);
    return sets;
  }

 private:
  Registry registry_;
};

TEST_F(Foreign, LoadsAndSaysWhoBuiltIt) {
  Registry ours;
  ours.add_root(TENON_OUR_PLUGINS);
  const LoadedComponent& a = foreign("attention", "flash");
  const LoadedComponent& b = ours.load("attention", "flash", "cpu");
  EXPECT_THAT(a.compiler, HasSubstr("Clang"));
  EXPECT_EQ(a.info.schema_hash, b.info.schema_hash);
  EXPECT_NE(a.info.library, b.info.library);
}

TEST_F(Foreign, AttentionAnswersTheSameBits) {
  const AttentionCase cases[] = {
      {.name = "plain", .q_heads = 6, .kv_heads = 2, .k_dim = 64, .v_dim = 64, .sequences = {{300, 5}, {0, 70}}},
      {.name = "odd", .q_heads = 2, .k_dim = 5, .v_dim = 17, .sequences = {{30, 4}}, .window = 9, .softcap = 5},
      {.name = "half", .q_heads = 2, .k_dim = 80, .v_dim = 80, .sequences = {{1100, 1}}, .codec = TENON_F16},
  };
  for (const uint64_t isa : instruction_sets()) {
    const Component ours("attention", "flash", {}, isa);
    const Component theirs(foreign("attention", "flash"), {}, isa);
    for (const AttentionCase& c : cases) {
      const AttentionHost host(c, 7);
      const AttentionHost::Answer a = host.run(ours), b = host.run(theirs, {.seed = 2});
      ASSERT_EQ(a.fault, "");
      ASSERT_EQ(b.fault, "");
      EXPECT_EQ(a.out, b.out) << c.name << ", instruction sets " << isa;
    }
  }
}

TEST_F(Foreign, SamplersChooseTheSameTokens) {
  std::vector<Logits> logits;
  for (uint64_t seed = 0; seed < 64; ++seed) logits.push_back(awkward_logits(5000, seed, 1));
  for (const uint64_t isa : instruction_sets()) {
    const auto chosen_by = [&](const Component& sampler) {
      SamplerHost host(5000, rows_of(logits));
      const tenon_tid next = host.select(host.add(sampler), host.dense());
      host.run();
      return host.tokens(next);
    };
    EXPECT_EQ(chosen_by(Component("sampler", "categorical", {}, isa)),
              chosen_by(Component(foreign("sampler", "categorical"), {}, isa)));
  }
}

TEST_F(Foreign, ItsExceptionsBecomeReasons) {
  const Component sampler(foreign("sampler", "good"), {}, 0);
  const ParamValues values(sampler.schema());
  int64_t record = 0;
  char text[64] = "";
  tenon_reason why{text, sizeof(text)};
  EXPECT_EQ(sampler.table<tenon_sampler>().encode(sampler.self(), values.abi(), &record, &why), TENON_ERROR);
  EXPECT_STREQ(text, "encode threw");
}

}  // namespace
}  // namespace tenon::test
