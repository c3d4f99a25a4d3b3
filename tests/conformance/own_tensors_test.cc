// Matrices that a file has in tensors of a scheme's own are held exactly as they are stored, on every device that is
// here, and refused by name where the tensors do not fit together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "quantization_schemes.h"
#include "tenon/core/error.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using ::testing::HasSubstr;

template <class T>
void put(FileMatrix::Tensor& t, size_t i, T value) {
  std::memcpy(t.bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// The tensors are weight i8 (n, k) and weight_scale f32 (n): a weight is q * scale.
FileMatrix int8_matrix(int64_t n, int64_t k, std::mt19937& random) {
  FileMatrix m;
  m.tensors = {{{"weight", TENON_I8, 2, {n, k, 0, 0}}, std::vector<uint8_t>(static_cast<size_t>(n * k))},
               {{"weight_scale", TENON_F32, 1, {n, 0, 0, 0}}, std::vector<uint8_t>(static_cast<size_t>(n) * 4)}};
  std::uniform_real_distribution<float> scale(0.01F, 0.1F);
  for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
    const float s = scale(random);
    put(m.tensors[1], r, s);
    for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
      const auto q = static_cast<int8_t>(random() % 256);
      m.tensors[0].bytes[r * static_cast<size_t>(k) + i] = static_cast<uint8_t>(q);
      m.weights.push_back(static_cast<float>(q) * s);
    }
  }
  return m;
}

// Makes a matrix in groups of g: weight u8 (n, p / 2), weight_scale and weight_zero bf16 (n, p
// / g). A weight is (q - 8) * scale + zero.
FileMatrix int4_matrix(int64_t g, int64_t n, int64_t k, std::mt19937& random) {
  const int64_t groups = (k + g - 1) / g;
  const auto bytes = static_cast<size_t>(groups * g / 2);
  FileMatrix m;
  m.tensors = {
      {{"weight", TENON_U8, 2, {n, groups * g / 2, 0, 0}}, std::vector<uint8_t>(static_cast<size_t>(n) * bytes)},
      {{"weight_scale", TENON_BF16, 2, {n, groups, 0, 0}}, std::vector<uint8_t>(static_cast<size_t>(n * groups) * 2)},
      {{"weight_zero", TENON_BF16, 2, {n, groups, 0, 0}}, std::vector<uint8_t>(static_cast<size_t>(n * groups) * 2)}};
  for (uint8_t& b : m.tensors[0].bytes) b = static_cast<uint8_t>(random());
  std::uniform_real_distribution<float> scale(0.01F, 0.1F), zero(-0.2F, 0.2F);
  for (int64_t i = 0; i < n * groups; ++i) {
    put(m.tensors[1], static_cast<size_t>(i), sdk::float_to_bf16(scale(random)));
    put(m.tensors[2], static_cast<size_t>(i), sdk::float_to_bf16(zero(random)));
  }
  const auto half = [&](size_t t, int64_t i) {
    uint16_t bits = 0;
    std::memcpy(&bits, m.tensors[t].bytes.data() + 2 * i, sizeof(bits));
    return sdk::bf16_to_float(bits);
  };
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t i = 0; i < k; ++i) {
      const uint8_t both =
          m.tensors[0].bytes[static_cast<size_t>(r) * bytes + static_cast<size_t>(i / 32 * 16 + i % 16)];
      const int q = i % 32 < 16 ? both & 15 : both >> 4;
      const int64_t at = r * groups + i / g;
      m.weights.push_back(static_cast<float>(q - 8) * half(1, at) + half(2, at));
    }
  }
  return m;
}

SiteCase site_of(const Scheme& scheme, std::vector<int64_t> rows, int64_t k, uint32_t experts = 0) {
  SiteCase c{
      .source = std::vector<tenon_format>(rows.size(), TENON_FORMAT_NONE), .rows = rows, .k = k, .experts = experts};
  c.stored = [group = scheme.group](const conformance::FileShape& shape, std::mt19937& random) {
    return group == 0 ? int8_matrix(shape.n, shape.k, random) : int4_matrix(group, shape.n, shape.k, random);
  };
  return c;
}

class OwnTensors : public testing::TestWithParam<Scheme> {
 protected:
  void SetUp() override {
    if (device(GetParam().device) == nullptr) GTEST_SKIP() << "no device " << GetParam().device;
  }
  void expect_held(const SiteCase& c, const StepCase& step) {
    const conformance::QuantizedSite site(GetParam().open(), c);
    EXPECT_TRUE((site.footprint().flags & TENON_FOOTPRINT_EXACT) != 0);
    const std::vector<float> y = site.run(step, false);
    const auto want = site.exact(step, false);
    ASSERT_EQ(y.size(), want.y.size());
    // Codes and zero points may be summed apart, which leaves a rounding where they cancel.
    // On a CPU a number of x may be off by 1 / 65278 of its largest neighbour.
    const bool cuda = GetParam().device == "cuda";
    const double tolerance = cuda ? 2e-5 : 5e-5, least = cuda ? 1e-6 : 2e-5;
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(double{y[i]}, want.y[i], tolerance * want.magnitude[i] + least) << i;
  }
};

TEST_P(OwnTensors, AreHeldAsTheyAre) {
  for (const int64_t k : {1, 31, 64, 300, 512}) {
    SCOPED_TRACE(k);
    expect_held(site_of(GetParam(), {19, 5}, k), {.rows = 7, .live = 7});
  }
}

TEST_P(OwnTensors, OfExpertsToo) {
  const SiteCase c = site_of(GetParam(), {24, 8}, 96, 3);
  expect_held(c, {.rows = 6, .live = 6, .expert = {2, 0, 0, 1, -1, 2}});
  std::vector<int32_t> many;
  for (int32_t r = 0; r < 40; ++r) many.push_back(r % 4 - 1);
  expect_held(c, {.rows = 40, .live = 40, .expert = many});
}

std::vector<Scheme> schemes() {
  std::vector<Scheme> all;
  for (const char* device : {"cpu", "cuda"}) {
    const uint64_t isa = std::string(device) == "cpu" ? ~uint64_t{0} : 0;
    all.push_back({.name = "int8wo", .label = std::string(device) + "_int8wo", .isa = isa, .device = device});
    for (const int64_t group : {32, 64, 128, 256}) {
      all.push_back({.name = "int4wo",
                     .label = std::string(device) + "_int4wo_" + std::to_string(group),
                     .group = group,
                     .isa = isa,
                     .device = device});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schemes, OwnTensors, testing::ValuesIn(schemes()),
                         [](const auto& p) { return p.param.label; });

// Returns the reason of the refusal of a matrix of 4 rows of 64 that `damage` was done to; "" if it is taken.
std::string refusal(const Scheme& scheme, const std::function<void(FileMatrix&)>& damage) {
  SiteCase c = site_of(scheme, {4}, 64);
  c.stored = [make = c.stored, damage](const conformance::FileShape& shape, std::mt19937& random) {
    FileMatrix m = make(shape, random);
    damage(m);
    return m;
  };
  const std::unique_ptr<conformance::Component> component = scheme.open();
  const LinearDescription description(c);
  const tenon_bounds bounds = OpRunner::bounds({.rows = 1});
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[512] = "";
  tenon_reason why{text, sizeof(text)};
  const auto& table = component->table<tenon_quantization>();
  const tenon_status status = table.claim(component->self(), &description.linear, &bounds, &claim, &why);
  EXPECT_TRUE(status == TENON_OK || status == TENON_REFUSED);
  return status == TENON_REFUSED ? text : "";
}

TEST(DamagedTensors, AreRefusedByName) {
  const Scheme int8{.name = "int8wo", .label = ""}, int4{.name = "int4wo", .label = "", .group = 64};
  for (const Scheme& s : {int8, int4}) EXPECT_EQ(refusal(s, [](FileMatrix&) {}), "");
  const auto drop_last = [](FileMatrix& m) { m.tensors.pop_back(); };
  EXPECT_THAT(refusal(int8, drop_last), HasSubstr("\"test.matrix.weight_scale\" is missing; expected f32 (4)"));
  EXPECT_THAT(refusal(int4, drop_last), HasSubstr("\"test.matrix.weight_zero\" is missing; expected bf16 (4, 1)"));
  EXPECT_THAT(refusal(int8, [](FileMatrix& m) { m.tensors[1].stored.format = TENON_F16; }),
              HasSubstr("\"test.matrix.weight_scale\" is f16 (4); expected f32 (4)"));
  EXPECT_THAT(refusal(int8, [](FileMatrix& m) { m.tensors[0].stored.dim[1] = 63; }),
              HasSubstr("\"test.matrix.weight\" is i8 (4, 63); expected i8 (4, 64)"));
  EXPECT_THAT(refusal(int4, [](FileMatrix& m) { m.tensors[0].stored.dim[1] = 24; }),
              HasSubstr("\"test.matrix.weight\" is u8 (4, 24); expected u8 (4, 32)"));
  EXPECT_THAT(refusal(int4, [](FileMatrix& m) { m.tensors[1].stored.dim[1] = 3; }), HasSubstr("expected"));
  const auto add = [](FileMatrix& m) { m.tensors.push_back({{"g_idx", TENON_I32, 1, {64, 0, 0, 0}}, {}}); };
  EXPECT_THAT(refusal(int8, add),
              HasSubstr("\"test.matrix.g_idx\" is not one that this scheme reads: weight i8 (4, 64)"));
}

TEST(DamagedTensors, OfAnotherSchemeAreRefusedWithWhatTheyAre) {
  const Scheme int4{.name = "int4wo", .label = "", .group = 64}, int8{.name = "int8wo", .label = ""};
  EXPECT_THAT(
      refusal(
          int4,
          [](FileMatrix& m) {
            m.tensors = {{{"qweight", TENON_I32, 2, {8, 4, 0, 0}}, {}}, {{"scales", TENON_F16, 2, {1, 4, 0, 0}}, {}}};
          }),
      HasSubstr("\"test.matrix\" is stored as qweight i32 (8, 4), scales f16 (1, 4); this scheme reads one tensor"));
}

TEST(DamagedTensors, AScaleThatIsNotFiniteIsAnError) {
  const Scheme int8{.name = "int8wo", .label = ""}, int4{.name = "int4wo", .label = "", .group = 64};
  const auto error = [](const Scheme& scheme, size_t tensor, auto value) -> std::string {
    SiteCase c = site_of(scheme, {4}, 128);
    c.stored = [=, make = c.stored](const conformance::FileShape& shape, std::mt19937& random) {
      FileMatrix m = make(shape, random);
      put(m.tensors[tensor], 2, value);
      return m;
    };
    try {
      conformance::QuantizedSite(scheme.open(), c);
      return "no error";
    } catch (const std::runtime_error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(error(int8, 1, 0.5F), "no error");
  EXPECT_EQ(error(int4, 2, sdk::float_to_bf16(0.5F)), "no error");
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    EXPECT_THAT(error(int8, 1, bad), HasSubstr("the scale of a row is not finite"));
    for (const size_t tensor : {size_t{1}, size_t{2}}) {
      EXPECT_THAT(error(int4, tensor, sdk::float_to_bf16(bad)),
                  HasSubstr("the scale or zero point of a group is not finite"));
    }
  }
}

}  // namespace
}  // namespace tenon::test
