// This tests which sites of GGUF's blocks the CUDA schemes take, how many bits these cost, and what they refuse. No GPU
// is needed.
#include "scheme_site.h"

namespace tenon::test {
namespace {

// This is a scheme's answer to a site, which needs no GPU.
struct Claimed {
  std::string refusal;
  double bits = 0;  // a weight takes so many
};
Claimed claimed(const Setting& setting, int64_t k) {
  const Scheme scheme(setting);
  const std::vector<int64_t> rows(setting.types.size(), 64);
  const Chain none({});
  const PlainMatrices matrices(setting.types, rows, k);
  auto linear = sdk::abi_struct<tenon_linear>();
  linear.path = "test.site";
  linear.description = "";
  linear.n_mats = static_cast<uint32_t>(rows.size());
  linear.x_format = linear.y_format = TENON_F32;
  linear.out_dim = rows.data();
  linear.matrix = matrices.get();
  linear.in_dim = k;
  linear.product_wanted = 1;
  linear.pro = linear.epi = &none.chain;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const tenon_bounds bounds = CudaRecorder::bounds(1);
  auto claim = sdk::abi_struct<tenon_claim>();
  const auto& t = scheme.table();
  if (t.claim(scheme.self(), &linear, &bounds, &claim, &why) != TENON_OK) return {text};
  const tenon_claim* claims[] = {&claim};
  void* site = nullptr;
  auto footprint = sdk::abi_struct<tenon_footprint>();
  check(t.bind(scheme.self(), &linear, claims, 1, &site, &why), text);
  check(t.footprint(scheme.self(), site, &footprint, &why), text);
  t.unbind(scheme.self(), site);
  const int64_t weights = 64 * static_cast<int64_t>(rows.size()) * k;
  return {"", 8 * static_cast<double>(footprint.store_bytes[0]) / static_cast<double>(weights)};
}

TEST(GgufSites, TakeFewBits) {
  const std::pair<std::vector<tenon_format>, double> cases[] = {
      {{TENON_Q4_0}, 4.5},
      {{TENON_Q4_1, TENON_Q4_1}, 5},
      {{TENON_Q4_K}, 4.75},
      {{TENON_Q8_0}, 8.5},
      {{TENON_Q5_0, TENON_Q8_0, TENON_Q4_0}, 8.5},
      {{TENON_Q5_1}, 9},
      {{TENON_Q4_1, TENON_Q4_0}, 9},
      {{TENON_Q6_K}, 6.75},
      {{TENON_Q3_K, TENON_Q6_K}, 6.75},
      {{TENON_Q4_K, TENON_Q4_K, TENON_Q6_K}, 7.5},
      {{TENON_Q5_K}, 7.5},
      {{TENON_Q2_K}, 7.5},
      {{TENON_IQ4_NL}, 4.5},
      {{TENON_IQ4_XS}, 4.375},
      {{TENON_MXFP4}, 4.25},
      {{TENON_TQ2_0}, 2.25},
      {{TENON_TQ1_0, TENON_TQ2_0}, 2.25},
      {{TENON_IQ4_NL, TENON_Q4_0}, 32},
      {{TENON_BF16, TENON_BF16}, 16},
      {{TENON_F16}, 16},
      {{TENON_F16, TENON_BF16}, 32},
      {{TENON_Q4_K, TENON_Q8_0}, 32},
  };
  for (const auto& [types, bits] : cases) {
    const Setting setting{"gguf", "f32", 0, types};
    const Claimed site = claimed(setting, 1024);
    EXPECT_EQ(site.refusal, "") << label(setting);
    EXPECT_EQ(site.bits, bits) << label(setting);
  }
}

TEST(GgufSites, AreRefusedWithTheReason) {
  EXPECT_EQ(claimed({"gguf", "f32", 0, {TENON_Q4_K}}, 576).refusal, "a width of 576 is not whole blocks of 256 (q4_k)");
  EXPECT_EQ(
      claimed({"gguf", "f32", 0, {TENON_I8}}, 576).refusal,
      "tensor \"matrix.weight\" is stored as i8; on a GPU this scheme reads f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, "
      "q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs, tq1_0, tq2_0, mxfp4");
  EXPECT_NE(claimed({"gguf", "int8", 0, {TENON_Q4_0}}, 576).refusal.find("use \"f32\""), std::string::npos);
  EXPECT_NE(claimed({"int8wo", "", 0, {TENON_Q4_0}}, 576).refusal.find("reads f32, f16, bf16"), std::string::npos);
}

}  // namespace
}  // namespace tenon::test
