// In int8dq, absmax and llm_int8, rows of x become int8 while a step runs. They are held against loops over int64 and
// float64 that are written from the definitions alone, on every device and instruction set that is here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "conformance/quantization_host.h"
#include "support/component.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using conformance::LinearDescription;
using conformance::QuantizedSite;
using conformance::SiteCase;
using conformance::StepCase;
using ::testing::HasSubstr;

// This is a scheme's definition, and where it runs.
struct Scheme {
  std::string name, label, device = "cpu";
  uint64_t isa = 0;  // TENON_ISA_*, on the CPU
  float steps = 127, least_scale = 0, least_code = -127, least_x_scale = 0, outlier = INFINITY;

  std::unique_ptr<conformance::Component> open() const {
    if (device == "cpu") return std::make_unique<Component>("quantization", name, std::vector<Setting>{}, isa);
    return std::make_unique<conformance::Component>(plugins().load("quantization", name, device),
                                                    *test::device(device));
  }
};
void PrintTo(const Scheme& s, std::ostream* out) {
  *out << s.label;
}

Scheme definition(const std::string& name) {
  Scheme s;
  s.name = s.label = name;
  s.isa = machine_isa();
  if (name == "int8dq") {
    s.steps = 127.5F;
    s.least_scale = FLT_EPSILON;
    s.least_code = -128;
    s.least_x_scale = 1e-5F;
  }
  if (name == "llm_int8") s.outlier = 6;
  return s;
}

std::vector<Scheme> schemes_on(const Scheme& scheme, bool gpu = true) {
  std::vector<Scheme> all;
  const auto add = [&](const std::string& label, const std::string& device, uint64_t isa) {
    all.push_back(scheme);
    all.back().label += "_" + label;
    all.back().device = device;
    all.back().isa = isa;
  };
  add("scalar", "cpu", 0);
  uint64_t isa = 0;
  for (const auto& [name, bit] : {std::pair<const char*, uint64_t>{"avx2", TENON_ISA_AVX2},
                                  {"avxvnni", TENON_ISA_AVX_VNNI},
                                  {"avx512", TENON_ISA_AVX512},
                                  {"avx512vnni", TENON_ISA_AVX512_VNNI}}) {
    if ((machine_isa() & bit) == 0) continue;
    isa |= bit;
    add(name, "cpu", isa);
  }
  if (gpu) add("cuda", "cuda", 0);
  return all;
}

std::vector<Scheme> all_schemes() {
  std::vector<Scheme> all;
  for (const char* name : {TENON_TEST_INT8_SCHEMES}) {
    const std::vector<Scheme> some = schemes_on(definition(name));
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// This is one row of x as the definition has it.
struct QuantizedX {
  float scale = 0;
  std::vector<int64_t> q;
  std::vector<double> outlier;  // it is in fp16, 0 elsewhere
};
QuantizedX quantized(const Scheme& s, const float* x, size_t k) {
  float largest = 0;
  for (size_t i = 0; i < k; ++i) {
    if (std::abs(x[i]) < s.outlier) largest = std::max(largest, std::abs(x[i]));
  }
  QuantizedX out{std::max(largest / 127, s.least_x_scale), std::vector<int64_t>(k), std::vector<double>(k)};
  for (size_t i = 0; i < k; ++i) {
    if (std::abs(x[i]) >= s.outlier) {
      out.outlier[i] = double{sdk::half_to_float(sdk::float_to_half(x[i]))};
    } else if (out.scale > 0) {
      out.q[i] = static_cast<int64_t>(std::clamp(std::rint(x[i] * (1 / out.scale)), -127.0F, 127.0F));
    }
  }
  return out;
}
// Makes the codes of a row of weights, and returns their scale.
float quantize_weights(const Scheme& s, const std::vector<float>& w, std::vector<int64_t>& q) {
  float largest = 0;
  for (const float v : w) largest = std::max(largest, std::abs(v));
  const float scale = std::max(largest / s.steps, s.least_scale);
  q.clear();
  for (const float v : w) {
    q.push_back(scale > 0 ? static_cast<int64_t>(std::clamp(std::rint(v / scale), s.least_code, 127.0F)) : 0);
  }
  return scale;
}

// This is a matrix in the scheme's own tensors.
struct Stored {
  std::vector<int64_t> q;
  std::vector<float> scale;
  FileMatrix file;
};
Stored stored(const Scheme& s, int64_t n, int64_t k, bool unit_scales, uint32_t seed) {
  std::mt19937 random(seed);
  Stored m;
  const std::string name = "weight_" + s.name;
  static std::vector<std::unique_ptr<std::string>> names;  // tenon_stored borrows them
  names.push_back(std::make_unique<std::string>(name));
  m.file.tensors = {
      {{names.back()->c_str(), TENON_I8, 2, {n, k, 0, 0}}, std::vector<uint8_t>(static_cast<size_t>(n * k))},
      {{"weight_scale", TENON_F32, 1, {n, 0, 0, 0}}, std::vector<uint8_t>(static_cast<size_t>(n) * 4)}};
  for (int64_t r = 0; r < n; ++r) {
    const float scale = unit_scales ? 1 : std::uniform_real_distribution<float>(0.001F, 0.01F)(random);
    m.scale.push_back(scale);
    std::memcpy(m.file.tensors[1].bytes.data() + 4 * r, &scale, 4);
    for (int64_t i = 0; i < k; ++i) {
      // Whole rows of the largest codes of one sign make the largest sums.
      const int q = r == 0 ? 127 : r == 1 ? static_cast<int>(s.least_code) : static_cast<int>(random() % 255) - 127;
      m.q.push_back(q);
      m.file.tensors[0].bytes[static_cast<size_t>(r * k + i)] = static_cast<uint8_t>(static_cast<int8_t>(q));
      m.file.weights.push_back(static_cast<float>(q) * scale);
    }
  }
  return m;
}
SiteCase site_of(const Stored& m, int64_t n, int64_t k) {
  SiteCase c{.source = {TENON_FORMAT_NONE}, .rows = {n}, .k = k};
  c.stored = [m](const conformance::FileShape&, std::mt19937&) { return m.file; };
  return c;
}
std::vector<float> normal_rows(size_t n, float size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

// Compares y of every row with the definition, as near as the size of its terms allows.
void expect_products(const Scheme& s, const Stored& m, int64_t n, const StepCase& step, const std::vector<float>& y) {
  const size_t k = m.q.size() / static_cast<size_t>(n);
  ASSERT_EQ(y.size(), step.live * static_cast<size_t>(n));
  for (uint32_t r = 0; r < step.live; ++r) {
    const QuantizedX x = quantized(s, &step.x[r * k], k);
    for (size_t c = 0; c < static_cast<size_t>(n); ++c) {
      int64_t integers = 0;
      double outliers = 0, size = 0;
      for (size_t i = 0; i < k; ++i) {
        const int64_t q = m.q[c * k + i];
        integers += q * x.q[i];
        outliers += x.outlier[i] * static_cast<double>(q);
        size += std::abs(static_cast<double>(q * x.q[i])) * double{x.scale} +
                std::abs(x.outlier[i] * static_cast<double>(q));
      }
      const double scale = double{m.scale[c]};
      const double want = (static_cast<double>(integers) * double{x.scale} + outliers) * scale;
      ASSERT_NEAR(double{y[r * static_cast<size_t>(n) + c]}, want, 5e-7 * size * scale + 1e-30)
          << "row " << r << ", column " << c;
    }
  }
}

class Int8Rows : public testing::TestWithParam<Scheme> {
 protected:
  void SetUp() override {
    if (device(GetParam().device) == nullptr) GTEST_SKIP() << "no device " << GetParam().device;
  }
};

// With scales of 1, y is the integer, as f32 has it.
TEST_P(Int8Rows, ProductsOfIntegersAreExact) {
  const Scheme& s = GetParam();
  for (const int64_t k : {32, 96, 544, 1024}) {
    constexpr int64_t kColumns = 37;
    const Stored m = stored(s, kColumns, k, true, 7);
    const QuantizedSite site(s.open(), site_of(m, kColumns, k));
    for (const uint32_t rows : {1U, 2U, 7U, 16U, 21U, 53U}) {
      StepCase step{.rows = rows, .live = rows};
      std::mt19937 random(rows);
      // The largest magnitude is 127, so the scale is 1. Without outliers in the scheme's sense, or none is an integer.
      for (uint32_t i = 0; i < rows * k; ++i) {
        step.x.push_back(i % k == 0 ? 127.F : static_cast<float>(static_cast<int>(random() % 255) - 127));
        if (std::isfinite(s.outlier)) step.x.back() = i % k == 0 ? 127.F / 32 : step.x.back() / 32;
      }
      const float scale = std::isfinite(s.outlier) ? 1.F / 32 : 1;
      const std::vector<float> y = site.run(step, false);
      for (uint32_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < kColumns; ++c) {
          int64_t want = 0;
          for (int64_t i = 0; i < k; ++i) {
            want += m.q[static_cast<size_t>(c * k + i)] *
                    static_cast<int64_t>(std::lrint(step.x[static_cast<size_t>(r * k + i)] / scale));
          }
          ASSERT_EQ(y[static_cast<size_t>(r * kColumns + c)], static_cast<float>(want) * scale)
              << "k " << k << ", rows " << rows << ": row " << r << ", column " << c;
        }
      }
    }
  }
}

TEST_P(Int8Rows, EqualTheDefinitionInFloat64) {
  const Scheme& s = GetParam();
  for (const int64_t k : {64, 576, 4096, 11008}) {
    constexpr int64_t kColumns = 19;
    const Stored m = stored(s, kColumns, k, false, 3);
    const QuantizedSite site(s.open(), site_of(m, kColumns, k));
    EXPECT_TRUE((site.footprint().flags & TENON_FOOTPRINT_EXACT) != 0);
    for (const uint32_t rows : {1U, 5U, 20U}) {
      StepCase step{.rows = rows, .live = rows};
      const auto width = static_cast<size_t>(k);
      step.x = normal_rows(rows * width, 1, 11);
      if (rows > 1) {
        std::fill_n(step.x.begin(), width, 0.F);  // a row is zeros, and one is below the least scale
        for (size_t i = width; i < 2 * width; ++i) step.x[i] *= 1e-5F;
      }
      if (rows > 4) {  // some of the numbers are 6 and more, and all of them
        for (size_t i = 2 * width; i < 3 * width; i += 7) step.x[i] *= 9;
        for (size_t i = 3 * width; i < 4 * width; ++i) step.x[i] = std::copysign(6 + std::abs(step.x[i]), step.x[i]);
      }
      SCOPED_TRACE(testing::Message() << "k " << k << ", rows " << rows);
      expect_products(s, m, kColumns, step, site.run(step, false));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Int8Rows, WhatIsFusedIsRight) {
  const Scheme& s = GetParam();
  const SiteCase c{.source = {TENON_F32, TENON_F32}, .rows = {48, 48}, .k = 96};
  for (const bool norm : {false, true}) {
    for (const std::vector<tenon_id>& epilogue :
         {std::vector<tenon_id>{TENON_F_BIAS, TENON_F_ADD}, {TENON_F_SILU_MUL}}) {
      const StepCase around{.rows = 1, .live = 1, .norm = norm, .epilogue = epilogue};
      QuantizedSite site(s.open(), c, 3, nullptr, around);
      if (!site.claims(around)) continue;  // the host does the rest by ops of its own
      site.learn();
      for (const uint32_t rows : {1U, 3U, 24U, 2100U}) {
        if (rows > 24 && s.device == "cpu") continue;  // only a GPU takes them in pieces
        const StepCase step{.rows = rows, .live = rows - rows / 3, .norm = norm, .epilogue = epilogue};
        const std::vector<float> y = site.run(step, true);
        const QuantizedSite::Exact want = site.exact(step, true);
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(double{y[i]}, want.y[i], 0.01 * want.magnitude[i] + 0.02) << "rows " << rows << ", value " << i;
        }
      }
    }
  }
}

TEST_P(Int8Rows, ARowHasTheSameBitsAloneAndAmongOthers) {
  const Scheme& s = GetParam();
  const QuantizedSite site(s.open(), {.source = {TENON_F16, TENON_F32}, .rows = {50, 3}, .k = 544});
  const uint32_t most = std::min(site.row_invariant_max(), 33U);
  const std::vector<float> all = site.run({.rows = most, .live = most}, false);
  for (const uint32_t live : {1U, 2U, 3U, 5U, 8U, 33U}) {
    if (live > most) continue;
    const std::vector<float> some = site.run({.rows = live, .live = live}, false, live);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << live << " rows";
  }
}

TEST_P(Int8Rows, HoldsFloatsAsItIsDefined) {
  const Scheme& s = GetParam();
  for (const float size : {0.F, 1e-9F, 0.1F, 300.F}) {
    const SiteCase c{.source = {TENON_F32}, .rows = {21}, .k = 96, .scale = size};
    const QuantizedSite site(s.open(), c);
    const std::vector<float> held = site.embed({20, 0, 7});
    size_t at = 0;
    for (const int64_t row : {20, 0, 7}) {
      std::vector<float> w;
      std::vector<int64_t> q;
      for (int64_t i = 0; i < c.k; ++i) w.push_back(static_cast<float>(site.source(0, row, i)));
      const float scale = quantize_weights(s, w, q);
      for (const int64_t code : q) ASSERT_EQ(held[at++], static_cast<float>(code) * scale) << "row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, Int8Rows, testing::ValuesIn(all_schemes()),
                         [](const auto& p) { return p.param.label; });

class Int8RowsCpu : public testing::TestWithParam<std::string> {};

TEST_P(Int8RowsCpu, EveryInstructionSetGivesTheBitsOfPlainCode) {
  const std::vector<Scheme> all = schemes_on(definition(GetParam()), false);
  const SiteCase c{.source = {TENON_F32, TENON_F32}, .rows = {70, 70}, .k = 672};
  for (const StepCase& step : {StepCase{}, StepCase{.rows = 9, .live = 9, .norm = true}}) {
    std::vector<float> want;
    for (const Scheme& s : all) {
      const QuantizedSite site(s.open(), c);
      const bool fused = site.claims(step);
      const std::vector<float> y = site.run(step, fused);
      if (want.empty()) want = y;
      EXPECT_EQ(y, want) << s.label;
    }
  }
}

// Returns the reason of a refusal of a stored matrix of 4 rows of 64 that `damage` was done to, or of its loading; ""
// if it is taken.
std::string refusal(const Scheme& s, const std::function<void(FileMatrix&)>& damage) {
  Stored m = stored(s, 4, 64, false, 1);
  damage(m.file);
  try {
    const QuantizedSite site(s.open(), site_of(m, 4, 64));
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST_P(Int8RowsCpu, DamagedTensorsAreRefusedByName) {
  const Scheme s = definition(GetParam());
  const std::string codes = "\"test.matrix.weight_" + s.name + "\"";
  EXPECT_EQ(refusal(s, [](FileMatrix&) {}), "");
  EXPECT_THAT(refusal(s, [](FileMatrix& m) { m.tensors.pop_back(); }),
              HasSubstr("\"test.matrix.weight_scale\" is missing; expected f32 (4)"));
  EXPECT_THAT(refusal(s, [](FileMatrix& m) { m.tensors[1].stored.format = TENON_F16; }),
              HasSubstr("\"test.matrix.weight_scale\" is f16 (4); expected f32 (4)"));
  EXPECT_THAT(refusal(s, [](FileMatrix& m) { m.tensors[0].stored.dim[1] = 63; }),
              HasSubstr(codes + " is i8 (4, 63); expected i8 (4, 64)"));
  EXPECT_THAT(refusal(s,
                      [](FileMatrix& m) {
                        m.tensors.push_back({{"g_idx", TENON_I32, 1, {64, 0, 0, 0}}, {}});
                      }),
              HasSubstr("\"test.matrix.g_idx\" is not one that this scheme reads"));
  EXPECT_THAT(refusal(s, [](FileMatrix& m) { m.tensors[0].stored.name = "weight"; }),
              HasSubstr("\"test.matrix\" is stored as weight i8"));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    EXPECT_THAT(refusal(s, [bad](FileMatrix& m) { std::memcpy(m.tensors[1].bytes.data() + 8, &bad, 4); }),
                HasSubstr("weight_scale of a row is not finite"));
  }
}

TEST_P(Int8RowsCpu, WidthsWithoutIntegerProductsAreRefused) {
  const Scheme s = definition(GetParam());
  for (const int64_t k : {int64_t{33}, int64_t{1}, (int64_t{1} << 17) + 32}) {
    try {
      const QuantizedSite site(s.open(), {.source = {TENON_F32}, .rows = {1}, .k = k});
      ADD_FAILURE() << "takes a width of " << k;
    } catch (const std::runtime_error& e) {
      EXPECT_THAT(e.what(), HasSubstr("a width of " + std::to_string(k)));
    }
  }
}

// A number that is not finite is not made into one that is.
TEST_P(Int8RowsCpu, ARowThatIsNotFiniteAnswersNan) {
  const QuantizedSite site(definition(GetParam()).open(), {.source = {TENON_F32}, .rows = {5}, .k = 64});
  for (const float bad : {NAN, INFINITY}) {
    StepCase step{.rows = 2, .live = 2};
    step.x = normal_rows(128, 1, 2);
    step.x[70] = bad;
    const std::vector<float> y = site.run(step, false);
    for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(std::isfinite(y[i]) && !std::isfinite(y[5 + i])) << i;
  }
}

// Returns one row as a scheme writes it: its scale, then its codes.
std::pair<float, std::vector<int>> written(const Scheme& s, const std::vector<float>& row) {
  const LinearDescription description({.source = {TENON_F32}, .rows = {1}, .k = static_cast<int64_t>(row.size())});
  const std::unique_ptr<conformance::Component> component = s.open();
  const auto& table = component->table<tenon_quantization>();
  auto how = sdk::abi_struct<tenon_written>();
  EXPECT_EQ(table.describe(component->self(), &description.linear, &how, nullptr), TENON_OK);
  EXPECT_EQ(how.n_tensors, 2U);
  EXPECT_STREQ(how.tensor[0].name, ("weight_" + s.name).c_str());
  std::vector<int8_t> codes(row.size());
  float scale = 0;
  void* const out[] = {codes.data(), &scale};
  auto e = sdk::abi_struct<tenon_encode>();
  e.rows = 1;
  e.data = row.data();
  e.out = out;
  EXPECT_EQ(table.encode(component->self(), &description.linear, &e, nullptr), TENON_OK);
  return {scale, {codes.begin(), codes.end()}};
}

TEST_P(Int8RowsCpu, WritesTheCodesOfItsDefinition) {
  const Scheme s = definition(GetParam());
  const std::vector<float> row = normal_rows(96, 0.05F, 4);
  std::vector<int64_t> q;
  const float want = quantize_weights(s, row, q);
  const auto [scale, codes] = written(s, row);
  EXPECT_EQ(scale, want);
  EXPECT_TRUE(std::equal(codes.begin(), codes.end(), q.begin(), q.end()));
}

TEST(Absmax, GivesTheKnownCodes) {
  std::vector<float> row = {1.2F, -0.5F, -4.3F, 1.2F, -3.1F, 0.8F, 2.4F, 5.4F};
  row.resize(32);
  const std::vector<int> codes = written(definition("absmax"), row).second;
  EXPECT_THAT(std::vector<int>(codes.begin(), codes.begin() + 8),
              testing::ElementsAre(28, -12, -101, 28, -73, 19, 56, 127));
}

// Without outliers llm_int8 is absmax; with nothing but outliers it is the product of x in fp16 with the weights.
TEST(LlmInt8, IsInt8WithoutOutliersAndFp16WithOutliersAlone) {
  const SiteCase c{.source = {TENON_F32}, .rows = {23}, .k = 96};
  const QuantizedSite split(definition("llm_int8").open(), c), plain(definition("absmax").open(), c);
  StepCase step{.rows = 3, .live = 3};
  for (const float v : normal_rows(size_t{3} * 96, 1, 6)) step.x.push_back(std::clamp(v, -5.9F, 5.9F));
  EXPECT_EQ(split.run(step, false), plain.run(step, false));
  for (float& v : step.x) v = std::copysign(6 + std::abs(v), v);
  const std::vector<float> y = split.run(step, false);
  for (size_t r = 0; r < 3; ++r) {
    for (int32_t n = 0; n < 23; ++n) {
      const std::vector<float> held = split.embed({n});
      double sum = 0, size = 0;
      for (size_t i = 0; i < 96; ++i) {
        const double product = double{sdk::half_to_float(sdk::float_to_half(step.x[r * 96 + i]))} * double{held[i]};
        sum += product;
        size += std::abs(product);
      }
      EXPECT_NEAR(double{y[r * 23 + static_cast<size_t>(n)]}, sum, 1e-6 * size);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, Int8RowsCpu, testing::Values(TENON_TEST_INT8_SCHEMES));

}  // namespace
}  // namespace tenon::test
