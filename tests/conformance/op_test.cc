// These tests look at what the shipped small ops are beyond what every one owes.
#include "tenon/abi/op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "conformance/op_runner.h"
#include "support/component.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

// Equal on every device, and no other op's.
TEST(Ops, HaveIdsOfTheirOwn) {
  std::map<tenon_id, std::string> by_id;
  for (const ComponentInfo& c : plugins().components("op")) {
    const conformance::Device* on = device(c.device);
    if (on == nullptr) continue;
    const conformance::Component op(plugins().load("op", c.name, c.device), *on);
    const auto [it, inserted] = by_id.try_emplace(op.table<tenon_small_op>().id, c.name);
    EXPECT_EQ(it->second, c.name) << "have one id";
  }
  EXPECT_GE(by_id.size(), 10U);
}

TEST(Ops, RefuseARankThatNoExpertHas) {
  for (const char* name : {"chosen_expert", "expert_weight"}) {
    const Component component("op", name);
    const auto& table = component.table<tenon_small_op>();
    auto op = sdk::abi_struct<tenon_fop>();
    op.i[0] = 8;
    op.i[1] = 9;
    op.i[3] = 16;
    int64_t columns = 0;
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    EXPECT_EQ(table.columns(component.self(), &op, 8, &columns, &why), TENON_REFUSED) << name;
    EXPECT_THAT(text, testing::HasSubstr("rank 8")) << name;
  }
}

// The numbers of experts are bits, so a comparison of floats sees little of them.
TEST(Ops, TheChosenExpertIsTheNumberOfARank) {
  const Component component("op", "chosen_expert");
  const auto& table = component.table<tenon_small_op>();
  conformance::OpRunner host(conformance::OpRunner::bounds({.rows = 2}), component.device());
  const std::vector<float> scores = {0.5F, 3, -1, 3, 2, NAN, 7, 7};
  const std::vector<std::vector<int32_t>> ranked = {{1, 3, 0, 2}, {2, 3, 0, -1}};  // of each row
  const tenon_tid x = host.input(TENON_F32, {2, 4}, scores);
  std::vector<tenon_tid> ranks;
  for (int32_t rank = 0; rank < 4; ++rank) {
    auto op = sdk::abi_struct<tenon_fop>();
    op.i[0] = rank;
    ranks.push_back(host.output(TENON_F32, {2, 1}));
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    ASSERT_EQ(table.record(component.self(), &op, x, ranks.back(), host.recorder(), &why), TENON_OK) << text;
  }
  host.set_live(2);
  ASSERT_EQ(host.run(1), "");
  for (size_t rank = 0; rank < 4; ++rank) {
    const std::vector<int32_t> found = host.read<int32_t>(ranks[rank]);
    for (size_t row = 0; row < 2; ++row) EXPECT_EQ(found[row], ranked[row][rank]) << "row " << row << ", rank " << rank;
  }
}

TEST(Ops, RefuseColumnsThatCannotBe) {
  for (const char* name : {"silu_mul", "gelu_mul", "rope", "qk_norm"}) {
    const Component component("op", name);
    const auto& table = component.table<tenon_small_op>();
    auto op = sdk::abi_struct<tenon_fop>();
    op.i[2] = 2;
    op.i[3] = 1;
    op.i[4] = op.i[5] = 16;
    int64_t columns = 0;
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    EXPECT_EQ(table.columns(component.self(), &op, 63, &columns, &why), TENON_REFUSED) << name;
    EXPECT_THAT(text, testing::HasSubstr("63 columns")) << name;
  }
}

}  // namespace
}  // namespace tenon::test
