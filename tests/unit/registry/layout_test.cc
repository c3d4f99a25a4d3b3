// The layouts of the draft interfaces as they were last recorded. A change here refuses every plugin built before it:
// record the new value on purpose, and say so in CHANGELOG.md.
#include "tenon/sdk/layout.h"

#include <gtest/gtest.h>

#include <utility>

namespace tenon {
namespace {

constexpr std::pair<const char*, uint64_t> kRecorded[] = {
    {"device", 0x76903b8655bb80a7},    {"quantization", 0x0ec737fee4b426f3}, {"kv_cache", 0xcf6f23c7441ab5e7},
    {"attention", 0x9211237b65cfd033}, {"sampler", 0xc7344d76dcca3f87},      {"draft", 0x1a1047aebd4e8877},
};

TEST(Layout, IsAsRecorded) {
  for (const auto& [kind, hash] : kRecorded) EXPECT_EQ(sdk::layout::of(kind), hash) << kind;
}

}  // namespace
}  // namespace tenon
