// These tests look at what the shipped small ops are beyond what every one owes.
#include "tenon/abi/op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "conformance/op_runner.h"
#include "support/component.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

// An op's id is equal on every device, and no other op has it.
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

TEST(Ops, RefuseMoreExpertsThanThereAre) {
  for (const char* name : {"chosen_experts", "expert_sum"}) {
    const Component component("op", name);
    const auto& table = component.table<tenon_small_op>();
    auto op = sdk::abi_struct<tenon_fop>();
    op.i[0] = 9;
    op.i[2] = 8;
    int64_t columns = 0;
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    EXPECT_EQ(table.columns(component.self(), &op, 8, &columns, &why), TENON_REFUSED) << name;
    EXPECT_THAT(text, testing::HasSubstr("9 chosen of 8 experts")) << name;
  }
}

// These ops are compared as bits of floats: a comparison of floats sees little of them.
class OpsOfBits : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device(GetParam()) == nullptr) GTEST_SKIP() << "no device " << GetParam();
  }
  // Returns the rows that the op, with one integer, makes of the rows of x, of which `live` are live.
  static std::vector<int32_t> made(const char* name, int32_t integer, const std::vector<float>& x, int64_t columns,
                                   uint32_t live) {
    const conformance::Component component(plugins().load("op", name, GetParam()), *device(GetParam()));
    const auto& table = component.table<tenon_small_op>();
    const auto rows = static_cast<int64_t>(x.size()) / columns;
    conformance::OpRunner host(conformance::OpRunner::bounds({.rows = static_cast<uint32_t>(rows)}),
                               component.device());
    auto op = sdk::abi_struct<tenon_fop>();
    op.i[0] = integer;
    int64_t y_columns = 0;
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    EXPECT_EQ(table.columns(component.self(), &op, columns, &y_columns, &why), TENON_OK) << text;
    const tenon_tid from = host.input(TENON_F32, {rows, columns}, x), y = host.output(TENON_F32, {rows, y_columns});
    EXPECT_EQ(table.record(component.self(), &op, from, y, host.recorder(), &why), TENON_OK) << text;
    host.set_live(live);
    EXPECT_EQ(host.run(1), "");
    std::vector<int32_t> all = host.read<int32_t>(y);
    all.resize(static_cast<size_t>(live * y_columns));
    return all;
  }
};

TEST_P(OpsOfBits, ExpertsAreChosenByRank) {
  // Equal scores, a NaN, zeros of both signs, and fewer numbers than are chosen: a NaN is above all numbers.
  const std::vector<float> scores = {0.5F, 3, -1, 3, 2, NAN, 7, 7, -0.0F, 0, -INFINITY, -1, NAN, NAN, -5, NAN};
  EXPECT_THAT(made("chosen_experts", 4, scores, 4, 4),
              testing::ElementsAre(1, 3, 0, 2, 1, 2, 3, 0, 0, 1, 3, 2, 0, 1, 3, 2));
  // More experts than a warp has lanes.
  std::vector<float> many(100);
  for (size_t e = 0; e < many.size(); ++e) many[e] = static_cast<float>(e * 37 % 100);
  std::vector<int32_t> order;
  for (int32_t rank = 0; rank < 50; ++rank) {
    const auto best = std::find(many.begin(), many.end(), static_cast<float>(99 - rank));
    order.push_back(static_cast<int32_t>(best - many.begin()));
  }
  EXPECT_EQ(made("chosen_experts", 50, many, 100, 1), order);
}

TEST_P(OpsOfBits, LiveRowsAreCounted) {
  EXPECT_THAT(made("live_rows", 8, std::vector<float>(10), 2, 3), testing::ElementsAre(24, 24, 24));
}

INSTANTIATE_TEST_SUITE_P(Devices, OpsOfBits, testing::Values("cpu", "cuda"),
                         [](const auto& p) { return std::string(p.param); });

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
