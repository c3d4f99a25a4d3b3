// The layouts of the draft interfaces as they were last recorded. A change here refuses every plugin built before it:
// record the new value on purpose, and say so in CHANGELOG.md.
#include "tenon/sdk/layout.h"

#include <gtest/gtest.h>

#include <utility>

namespace tenon {
namespace {

constexpr std::pair<const char*, uint64_t> kRecorded[] = {
    {"device", 0xbf7eb44708afb1eb},    {"quantization", 0x40ef6aa8b71ab5cf}, {"kv_cache", 0x60ac7a371f47cacb},
    {"attention", 0xe48d7cce3dc0020f}, {"sampler", 0xb2ac3f354b1d2a6b},      {"draft", 0xce3f0f2790e6bf2b},
};

TEST(Layout, IsAsRecorded) {
  for (const auto& [kind, hash] : kRecorded) EXPECT_EQ(sdk::layout::of(kind), hash) << kind;
}

}  // namespace
}  // namespace tenon
