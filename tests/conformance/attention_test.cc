// What every attention owes: the softmax of float64 over awkward shapes, and the same bits for a row alone and among
// others, whatever the bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>

#include "attention_host.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

struct Subject {
  std::string name;
  uint64_t isa;
  std::string label;
};
void PrintTo(const Subject& s, std::ostream* out) {
  *out << s.label;
}

// Every attention with every instruction set that this machine has.
std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const std::string& name : installed("attention")) {
    all.push_back({name, 0, name + "_scalar"});
    if ((machine_isa() & TENON_ISA_AVX2) != 0) all.push_back({name, TENON_ISA_AVX2, name + "_avx2"});
    if ((machine_isa() & TENON_ISA_AVX512) != 0) all.push_back({name, machine_isa(), name + "_avx512"});
  }
  return all;
}

// Shapes that cross vectors, key blocks, splits and pages.
std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  for (const uint32_t dim : {1, 3, 64, 80, 96, 128, 256}) {
    all.push_back({.name = "dim" + std::to_string(dim),
                   .q_heads = 2,
                   .kv_heads = 2,
                   .k_dim = dim,
                   .v_dim = dim,
                   .sequences = {{70, 5}, {0, 3}}});
  }
  all.push_back({.name = "dims192and128", .q_heads = 2, .k_dim = 192, .v_dim = 128, .sequences = {{30, 4}}});
  all.push_back({.name = "dims5and17", .q_heads = 2, .k_dim = 5, .v_dim = 17, .sequences = {{30, 4}}});
  for (const uint32_t group : {1, 3, 4, 7}) {
    all.push_back({.name = "group" + std::to_string(group),
                   .q_heads = 2 * group,
                   .kv_heads = 2,
                   .k_dim = 16,
                   .v_dim = 16,
                   .sequences = {{0, 70}, {129, 1}, {63, 2}}});
  }
  for (const uint32_t before : {0, 62, 63, 64, 65, 254, 255, 256, 257, 1100}) {
    all.push_back({.name = "context" + std::to_string(before + 1),
                   .q_heads = 4,
                   .kv_heads = 2,
                   .k_dim = 16,
                   .v_dim = 16,
                   .sequences = {{before, 1}},
                   .page_tokens = 64});
  }
  all.push_back(
      {.name = "prefill", .q_heads = 3, .k_dim = 20, .v_dim = 20, .sequences = {{0, 300}}, .page_tokens = 512});
  all.push_back(
      {.name = "chunked_prefill", .q_heads = 2, .k_dim = 16, .v_dim = 16, .sequences = {{500, 80}}, .page_tokens = 8});
  all.push_back({.name = "many_sequences",
                 .q_heads = 2,
                 .k_dim = 8,
                 .v_dim = 8,
                 .sequences = {{10, 1}, {300, 1}, {0, 1}, {63, 1}, {64, 4}, {513, 2}, {1, 9}},
                 .page_tokens = 1});
  for (const uint32_t window : {1, 2, 64, 100, 300}) {
    all.push_back({.name = "window" + std::to_string(window),
                   .q_heads = 2,
                   .k_dim = 16,
                   .v_dim = 16,
                   .sequences = {{290, 40}, {3, 2}},
                   .window = window});
  }
  all.push_back({.name = "softcap", .q_heads = 2, .k_dim = 16, .v_dim = 16, .sequences = {{100, 3}}, .softcap = 5});
  all.push_back({.name = "sink",
                 .q_heads = 4,
                 .kv_heads = 2,
                 .k_dim = 16,
                 .v_dim = 16,
                 .sequences = {{300, 3}, {0, 2}},
                 .sink = true});
  all.push_back({.name = "lse",
                 .q_heads = 4,
                 .kv_heads = 2,
                 .k_dim = 16,
                 .v_dim = 16,
                 .sequences = {{300, 3}},
                 .sink = true,
                 .lse = true});
  all.push_back({.name = "all_at_once",
                 .q_heads = 6,
                 .kv_heads = 2,
                 .k_dim = 24,
                 .v_dim = 40,
                 .sequences = {{300, 3}, {5, 30}},
                 .window = 37,
                 .softcap = 30,
                 .sink = true,
                 .lse = true});
  all.push_back(
      {.name = "chain_of_drafts", .q_heads = 2, .k_dim = 16, .v_dim = 16, .sequences = {{255, 6}}, .tree = true});
  all.push_back({.name = "tree_of_drafts",
                 .q_heads = 2,
                 .k_dim = 16,
                 .v_dim = 16,
                 .sequences = {{250, 9, {-1, 0, 0, 1, 1, 2, 4, 5, 6}}, {0, 3, {-1, 0, 0}}},
                 .tree = true});
  all.push_back({.name = "tree_in_window",
                 .q_heads = 2,
                 .k_dim = 16,
                 .v_dim = 16,
                 .sequences = {{64, 5, {-1, 0, 0, 2, 3}}},
                 .window = 4,
                 .tree = true});
  const size_t n = all.size();
  for (size_t i = 0; i < n; ++i) {
    for (const tenon_format codec : {TENON_F16, TENON_BF16}) {
      AttentionCase c = all[i];
      c.codec = codec;
      c.name += std::string("_") + tenon_format_name(codec);
      all.push_back(c);
    }
  }
  return all;
}

class AttentionTest : public ::testing::TestWithParam<Subject> {
 protected:
  AttentionTest() : attention_("attention", GetParam().name, {}, GetParam().isa) {}

  // Does the component read this cache? If not, it must say why.
  bool reads(const AttentionHost& host) {
    std::string why;
    const tenon_status status = host.claim(attention_, &why);
    if (status == TENON_REFUSED)
      EXPECT_NE(why, "");
    else
      EXPECT_EQ(status, TENON_OK) << why;
    return status == TENON_OK;
  }

  Component attention_;
};

// The error of a row, relative to the row's largest value.
void expect_near_rows(const std::vector<float>& got, const std::vector<double>& want, size_t columns,
                      double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t row = 0; row < got.size(); row += columns) {
    double largest = 0, error = 0;
    for (size_t i = row; i < row + columns; ++i) {
      largest = std::max(largest, std::abs(want[i]));
      error = std::isnan(got[i]) ? INFINITY : std::max(error, std::abs(got[i] - want[i]));
    }
    ASSERT_LE(error, tolerance * largest) << "row " << row / columns;
  }
}

TEST_P(AttentionTest, AgreesWithFloat64) {
  uint64_t seed = 1;
  for (const AttentionCase& c : cases()) {
    SCOPED_TRACE(c.name);
    const AttentionHost host(c, ++seed);
    if (!reads(host)) continue;
    const AttentionHost::Answer got = host.run_all(attention_, seed);
    ASSERT_EQ(got.fault, "");
    const AttentionHost::Expected want = host.expected();
    // The cache's rounding is in the reference too: what is left is f32 arithmetic, for every codec.
    expect_near_rows(got.out, want.out, c.v_dim, 1e-5);
    if (c.lse) expect_near_rows(got.lse, want.lse, 1, 1e-5);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, GivesARowTheSameBitsAloneAndAmongOthers) {
  uint64_t seed = 100;
  for (const AttentionCase& c : cases()) {
    SCOPED_TRACE(c.name);
    if (c.tree && c.name.find("chain") == std::string::npos) continue;  // a branch alone is another sequence
    const AttentionHost host(c, ++seed);
    if (!reads(host)) continue;
    const AttentionHost::Answer all = host.run_all(attention_, seed);
    ASSERT_EQ(all.fault, "");
    const size_t columns = size_t{c.q_heads} * c.v_dim;
    for (uint32_t row = 0; row < host.rows(); row += 1 + host.rows() / 12) {
      const uint32_t n = std::min(host.rows() - row, 1 + row % 3);
      const AttentionHost::Answer some = host.run(attention_, row, row + n, row % 2, host.longest() + row * 77, row);
      ASSERT_EQ(some.fault, "");
      ASSERT_EQ(std::memcmp(some.out.data(), all.out.data() + row * columns, n * columns * sizeof(float)), 0)
          << "rows " << row << " to " << row + n;
    }
  }
}

TEST_P(AttentionTest, PrefersAFormatThatItReads) {
  auto format = sdk::abi_struct<tenon_kv_format>();
  const auto& table = attention_.table<tenon_attention>();
  ASSERT_EQ(table.preferred_format(attention_.self(), &format, nullptr), TENON_OK);
  const AttentionHost host({.name = "any", .sequences = {{1, 1}}, .codec = format.k.codec}, 1);
  EXPECT_TRUE(reads(host));
}

TEST_P(AttentionTest, RefusesWhatItCannotRead) {
  const AttentionHost host({.name = "any", .sequences = {{1, 1}}}, 1);
  const tenon_attn a = host.layer();
  const tenon_bounds b = OpRunner::bounds({});
  auto format = sdk::abi_struct<tenon_kv_format>();
  format.k.codec = format.v.codec = TENON_I8;
  format.k.block = format.v.block = 32, format.k.scale = format.v.scale = TENON_F32;
  format.ext = 0x123456789abcdef;
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const auto& table = attention_.table<tenon_attention>();
  EXPECT_EQ(table.claim(attention_.self(), &a, &format, &b, &claim, &why), TENON_REFUSED);
  EXPECT_STRNE(text, "");
}

TEST(Attention, FailsAtAPositionOutOfBounds) {
  for (const char* name : {"flash", "reference"}) {
    const Component attention("attention", name);
    const AttentionHost host({.name = "any", .sequences = {{300, 2}}}, 1);
    EXPECT_NE(host.run(attention, 0, 2, 0, 301, 1).fault.find("position 301"), std::string::npos) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionTest, ::testing::ValuesIn(subjects()),
                         [](const auto& subject) { return subject.param.label; });

}  // namespace
}  // namespace tenon::test
