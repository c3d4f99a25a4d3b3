// The layouts of the draft interfaces as they were last recorded. A change here refuses every plugin built before it:
// record the new value on purpose, and say so in CHANGELOG.md.
#include "tenon/sdk/layout.h"

#include <gtest/gtest.h>

#include <utility>

namespace tenon {
namespace {

constexpr std::pair<const char*, uint64_t> kRecorded[] = {
    {"device", 0x21fd9466ba887633},    {"quantization", 0x3ba8921077207977}, {"kv_cache", 0x6abc80cf7780f7c3},
    {"attention", 0x8782ed7de203aef7}, {"sampler", 0x97e7e8a2c3853b13},      {"draft", 0xe1e5ffd8b4bf6633},
};

TEST(Layout, IsAsRecorded) {
  for (const auto& [kind, hash] : kRecorded) EXPECT_EQ(sdk::layout::of(kind), hash) << kind;
}

}  // namespace
}  // namespace tenon
