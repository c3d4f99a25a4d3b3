// Tests of attention on a GPU run cases with this, each held against float64 through the components' own tables.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention_plugin.h"
#include "conformance/attention_host.h"
#include "tenon/sdk/kv_codec.h"

namespace tenon::test {

using conformance::AttentionCase;
using conformance::AttentionHost;
using conformance::to_string;
using How = AttentionHost::How;

class CudaAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
    flash_ = std::make_unique<CudaComponent>("attention", "flash");
  }
  std::unique_ptr<CudaComponent> flash_;
};

// Values are below 1 in magnitude; what is left is the rounding of weights and scores.
inline double tolerance(tenon_format codec) {
  return codec == TENON_F32 ? 1e-5 : codec == TENON_F16 ? 3e-3 : sdk::is_scaled_codec(codec) ? 4e-3 : 2e-2;
}

inline void expect_close(const AttentionCase& c, const AttentionHost& host, const AttentionHost::Answer& answer) {
  ASSERT_EQ(answer.fault, "") << to_string(c);
  const std::vector<double> want = host.expected(sdk::is_scaled_codec(c.codec) ? tenon_format{TENON_F16} : c.codec);
  ASSERT_EQ(answer.out.size(), want.size());
  size_t wrong = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::abs(answer.out[i] - want[i]) <= tolerance(c.codec)) continue;
    if (++wrong == 1) {
      const size_t head = i / c.v_dim;
      ADD_FAILURE() << to_string(c) << ": row " << head / c.q_heads << " head " << head % c.q_heads << " dimension "
                    << i % c.v_dim << " is " << answer.out[i] << ", should be " << want[i];
    }
  }
  EXPECT_EQ(wrong, 0u) << "of " << want.size() << " elements";
}

inline void check(const CudaComponent& attention, const AttentionCase& c, uint32_t seed, const How& how = {}) {
  const AttentionHost host(c, seed);
  expect_close(c, host, host.run(attention, how));
}

// Runs a case twice, once with the append left to attention. Both must leave the same bytes in
// the cache. Returns what either run gave.
inline std::pair<std::vector<float>, std::vector<float>> expect_same_cache(const CudaComponent& attention,
                                                                           AttentionCase c, uint32_t seed) {
  const AttentionHost apart(c, seed);
  c.append = true;
  const AttentionHost fused(c, seed);
  AttentionHost::Answer appended = fused.run(attention), given = apart.run(attention);
  EXPECT_EQ(appended.fault + given.fault, "") << to_string(c);
  EXPECT_FALSE(appended.cache.empty()) << to_string(c);
  EXPECT_EQ(appended.cache, given.cache) << to_string(c);
  return {std::move(appended.out), std::move(given.out)};
}

}  // namespace tenon::test
