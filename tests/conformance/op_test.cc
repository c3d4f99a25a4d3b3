// These tests look at what the shipped small ops are beyond what every one owes.
#include "tenon/abi/op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

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
