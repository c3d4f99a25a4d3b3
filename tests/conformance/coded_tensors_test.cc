// Matrices that a file has in the tensors of nf4, fp4, fp8, fp6 and uintx are held as they are stored, on every device
// that is here; they are equal to what is quantized while it loads, and refused by name where something is wrong with
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "quantization_schemes.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/stored.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using ::testing::HasSubstr;

// Writes the layout of a unit of 32 codes, from its description: planes of 4, 2 and 1 bits, the lowest bits first.
void put_code(std::vector<uint8_t>& bytes, size_t unit, uint32_t bits, uint32_t i, uint32_t code) {
  if (bits == 8) {
    bytes[unit + i] = static_cast<uint8_t>(code);
    return;
  }
  for (uint32_t n = 4; n > 0; n /= 2) {
    if ((bits & n) == 0) continue;
    const uint32_t part = code & ((1U << n) - 1);
    bytes[unit + i % (4 * n)] |= static_cast<uint8_t>(part << (i / (4 * n) * n));
    code >>= n;
    unit += size_t{4} * n;
  }
}

uint32_t bits_of(const CodedForm& form) {
  return form.bits != 0 ? form.bits : static_cast<uint32_t>(std::log2(form.book.size()));
}

// Returns the columns of a row of k in a file: whole groups and whole units.
int64_t filled(int64_t k, int64_t group) {
  const int64_t whole = std::lcm(group, int64_t{32});
  return (k + whole - 1) / whole * whole;
}

// Random codes and scales, as a file has them.
class StoredMatrix {
 public:
  StoredMatrix(const Scheme& scheme, int64_t n, int64_t k, std::mt19937& random)
      : form_(*scheme.coded), bytes_of_codes_(scheme.name == "fp8"), random_(random) {
    const int64_t group = form_.group == 0 ? 32 : form_.group, columns = filled(k, group), groups = columns / group;
    const uint32_t bits = bits_of(form_);
    const char* weight = "weight";
    for (const char* name : {"weight_nf4", "weight_fp4", "weight_e2m3", "weight_e3m2", "weight_e2m2", "weight_e3m1"}) {
      if (scheme.label.find(name + std::strlen("weight_")) != std::string::npos) weight = name;
    }
    if (bytes_of_codes_) {
      add({weight, TENON_F8E4M3, 2, {n, k, 0, 0}});
    } else {
      add({weight, TENON_U8, 3, {n, columns / 32, 4 * bits, 0}});
    }
    if (form_.two_levels || form_.group == 0) add({"weight_row_scale", TENON_F32, 1, {n, 0, 0, 0}});
    if (form_.group != 0) {
      const tenon_format format = form_.bits != 0 ? TENON_BF16 : form_.two_levels ? TENON_U8 : TENON_F32;
      add({"weight_scale", format, 2, {n, groups, 0, 0}});
    }
    if (form_.bits != 0) add({"weight_zero", TENON_U8, 2, {n, groups, 0, 0}});
    if (form_.group == 0) matrix_.tensors[1].stored.name = "weight_scale";
    const size_t row_bytes = matrix_.tensors[0].bytes.size() / static_cast<size_t>(n);
    for (int64_t r = 0; r < n; ++r) {
      float row = 0, scale = 0, zero = 0;
      for (int64_t i = 0; i < k; ++i) {
        if (i == 0 && (form_.two_levels || form_.group == 0)) row = put_float(1, r);
        if (i % group == 0) draw_group(r * groups + i / group, row, scale, zero);
        const uint32_t code = draw_code(bits);
        const size_t at = static_cast<size_t>(r) * row_bytes;
        if (bytes_of_codes_) {
          matrix_.tensors[0].bytes[at + static_cast<size_t>(i)] = static_cast<uint8_t>(code);
        } else {
          put_code(matrix_.tensors[0].bytes, at + static_cast<size_t>(i / 32) * 4 * bits, bits,
                   static_cast<uint32_t>(i % 32), code);
        }
        const double value = form_.bits != 0 ? code - double{zero} : form_.book[code];
        matrix_.weights.push_back(static_cast<float>(value * double{scale}));
      }
    }
  }
  FileMatrix matrix() && { return std::move(matrix_); }

 private:
  void add(const tenon_stored& stored) {
    matrix_.tensors.push_back({stored, std::vector<uint8_t>(sdk::stored_bytes(stored))});
  }
  uint32_t draw_code(uint32_t bits) {
    const auto code = static_cast<uint32_t>(random_() % (1U << bits));
    return form_.bits == 0 && std::isnan(form_.book[code]) ? 0 : code;
  }
  float put_float(size_t tensor, int64_t i) {
    const float value = std::uniform_real_distribution<float>(0.01F, 0.1F)(random_);
    std::memcpy(matrix_.tensors[tensor].bytes.data() + 4 * i, &value, sizeof(value));
    return value;
  }
  void draw_group(int64_t i, float row, float& scale, float& zero) {
    const auto at = static_cast<size_t>(i);
    if (form_.group == 0) {
      scale = row;
    } else if (form_.two_levels) {
      matrix_.tensors[2].bytes[at] = static_cast<uint8_t>(random_());
      scale = static_cast<float>(matrix_.tensors[2].bytes[at]) * row;
    } else if (form_.bits == 0) {
      scale = put_float(1, i);
    } else {
      const uint16_t half = sdk::float_to_bf16(std::uniform_real_distribution<float>(0.01F, 0.1F)(random_));
      std::memcpy(matrix_.tensors[1].bytes.data() + 2 * at, &half, sizeof(half));
      scale = sdk::bf16_to_float(half);
      matrix_.tensors[2].bytes[at] = static_cast<uint8_t>(random_() % (1U << form_.bits));
      zero = matrix_.tensors[2].bytes[at];
    }
  }

  const CodedForm& form_;
  bool bytes_of_codes_;
  std::mt19937& random_;
  FileMatrix matrix_;
};

SiteCase stored_case(const Scheme& scheme, std::vector<int64_t> rows, int64_t k, uint32_t experts = 0) {
  SiteCase c{
      .source = std::vector<tenon_format>(rows.size(), TENON_FORMAT_NONE), .rows = rows, .k = k, .experts = experts};
  c.stored = [scheme](const conformance::FileShape& shape, std::mt19937& random) {
    return StoredMatrix(scheme, shape.n, shape.k, random).matrix();
  };
  return c;
}

class CodedTensors : public testing::TestWithParam<Scheme> {
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
    // On a GPU the values of nf4 are rounded to fp16. On a CPU a number of x may be
    // off by 1 / 65278 of its largest neighbour.
    const bool cuda = GetParam().device == "cuda";
    const double tolerance = cuda && GetParam().name == "nf4" ? 3e-4 : cuda ? 2e-5 : 5e-5, least = cuda ? 1e-6 : 2e-5;
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(double{y[i]}, want.y[i], tolerance * want.magnitude[i] + least) << i;
  }
};

TEST_P(CodedTensors, AreHeldAsTheyAre) {
  for (const int64_t k : {1, 31, 64, 300, 512}) {
    SCOPED_TRACE(k);
    expect_held(stored_case(GetParam(), {19, 5}, k), {.rows = 7, .live = 7});
  }
}

TEST_P(CodedTensors, OfExpertsToo) {
  const bool refused = GetParam().name == "uintx" || GetParam().name == "fp6";
  if (GetParam().device == "cuda" && refused) GTEST_SKIP() << "the scheme has no routed products there";
  const SiteCase c = stored_case(GetParam(), {24, 8}, 96, 3);
  expect_held(c, {.rows = 6, .live = 6, .expert = {2, 0, 0, 1, -1, 2}});
  std::vector<int32_t> many;
  for (int32_t r = 0; r < 40; ++r) many.push_back(r % 4 - 1);
  expect_held(c, {.rows = 40, .live = 40, .expert = many});
}

// Returns a matrix of floats as a scheme writes it.
FileMatrix written(const conformance::Component& scheme, const tenon_linear& s, const std::vector<float>& weights) {
  auto how = sdk::abi_struct<tenon_written>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const auto& table = scheme.table<tenon_quantization>();
  EXPECT_EQ(table.describe(scheme.self(), &s, &how, &why), TENON_OK) << text;
  FileMatrix m;
  m.weights = weights;
  std::vector<void*> out;
  for (uint32_t i = 0; i < how.n_tensors; ++i) {
    m.tensors.push_back({how.tensor[i], std::vector<uint8_t>(sdk::stored_bytes(how.tensor[i]))});
  }
  for (auto& t : m.tensors) out.push_back(t.bytes.data());
  auto e = sdk::abi_struct<tenon_encode>();
  e.rows = static_cast<uint64_t>(s.out_dim[0]);
  e.data = weights.data();
  e.out = out.data();
  EXPECT_EQ(table.encode(scheme.self(), &s, &e, &why), TENON_OK) << text;
  return m;
}

TEST_P(CodedTensors, ThatItWritesEqualWhatIsQuantizedWhileItLoads) {
  if (GetParam().device != "cpu") GTEST_SKIP() << "files are written on the CPU";
  const SiteCase floats{.source = {TENON_F32}, .rows = {21}, .k = 300};
  const LinearDescription description(floats);
  SiteCase c = floats;
  c.stored = [&](const conformance::FileShape&, std::mt19937& random) {
    return written(*GetParam().open(), description.linear, floats.matrix(0, random).weights);
  };
  const conformance::QuantizedSite from_file(GetParam().open(), c);
  const QuantizedSite quantized(GetParam(), floats);
  EXPECT_EQ(from_file.run({}, false), quantized.run({}, false));
  EXPECT_EQ(from_file.footprint().store_bytes[0], quantized.footprint().store_bytes[0]);
}

std::vector<Scheme> schemes() {
  std::vector<Scheme> all;
  for (const char* device : {"cpu", "cuda"}) {
    for (Scheme s : coded_schemes()) {
      s.label = std::string(device) + "_" + s.label;
      s.isa = std::string(device) == "cpu" ? ~uint64_t{0} : 0;
      s.device = device;
      all.push_back(std::move(s));
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Schemes, CodedTensors, testing::ValuesIn(schemes()),
                         [](const auto& p) { return p.param.label; });

Scheme scheme_labelled(const std::string& label) {
  for (const Scheme& s : coded_schemes()) {
    if (s.label == label) return s;
  }
  throw std::runtime_error(label);
}

// Returns the refusal of a matrix of 4 rows of 64 that `damage` was done to, when
// it is loaded or before; "" if it is taken.
std::string refusal(const Scheme& scheme, const std::function<void(FileMatrix&)>& damage) {
  SiteCase c = stored_case(scheme, {4}, 64);
  c.stored = [make = c.stored, damage](const conformance::FileShape& shape, std::mt19937& random) {
    FileMatrix m = make(shape, random);
    damage(m);
    return m;
  };
  try {
    const conformance::QuantizedSite site(scheme.open(), c);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}
void drop_last(FileMatrix& m) {
  m.tensors.pop_back();
}
template <class T>
std::function<void(FileMatrix&)> with_value(size_t tensor, size_t i, T value) {
  return [=](FileMatrix& m) { std::memcpy(m.tensors[tensor].bytes.data() + i * sizeof(T), &value, sizeof(T)); };
}

TEST(DamagedCodes, AreRefusedByName) {
  const Scheme nf4 = scheme_labelled("nf4"), twice = scheme_labelled("nf4_double"), fp8 = scheme_labelled("fp8");
  for (const Scheme& s : coded_schemes()) EXPECT_EQ(refusal(s, [](FileMatrix&) {}), "") << s.label;
  EXPECT_THAT(refusal(nf4, drop_last), HasSubstr("\"test.matrix.weight_scale\" is missing; expected f32 (4, 1)"));
  EXPECT_THAT(refusal(twice, drop_last), HasSubstr("\"test.matrix.weight_scale\" is missing; expected u8 (4, 1)"));
  EXPECT_THAT(refusal(fp8, drop_last), HasSubstr("\"test.matrix.weight_scale\" is missing; expected f32 (4)"));
  EXPECT_THAT(refusal(nf4, [](FileMatrix& m) { m.tensors[1].stored.dim[1] = 2; }),
              HasSubstr("\"test.matrix.weight_scale\" is f32 (4, 2); expected f32 (4, 1)"));
  EXPECT_THAT(refusal(nf4, [](FileMatrix& m) { m.tensors[0].stored.dim[2] = 12; }),
              HasSubstr("\"test.matrix.weight_nf4\" is u8 (4, 2, 12); expected u8 (4, 2, 16)"));
  EXPECT_THAT(refusal(fp8, [](FileMatrix& m) { m.tensors[0].stored.format = TENON_F8E5M2; }),
              HasSubstr("\"test.matrix.weight\" is f8e5m2 (4, 64); expected f8e4m3 (4, 64)"));
  EXPECT_THAT(refusal(nf4, with_value(1, 2, std::nanf(""))), HasSubstr("weight_scale of a row is not finite"));
  EXPECT_THAT(refusal(twice, with_value(1, 0, INFINITY)), HasSubstr("weight_row_scale of a row is not finite"));
  EXPECT_THAT(refusal(fp8, with_value(0, 17, uint8_t{0xff})), HasSubstr("a weight of a row is NaN"));
}

TEST(DamagedCodes, OfIntegersAreRefusedByName) {
  const Scheme three = scheme_labelled("uintx_3_256");
  EXPECT_THAT(refusal(three, drop_last), HasSubstr("\"test.matrix.weight_zero\" is missing; expected u8 (4, 1)"));
  EXPECT_THAT(refusal(three, [](FileMatrix& m) { m.tensors[1].stored.dim[1] = 3; }),
              HasSubstr("\"test.matrix.weight_scale\" is bf16 (4, 3); expected bf16 (4, 1)"));
  EXPECT_THAT(refusal(three, with_value(1, 3, uint16_t{0x7f80})), HasSubstr("weight_scale of a row is not finite"));
  EXPECT_THAT(refusal(three, with_value(2, 1, uint8_t{8})), HasSubstr("a zero point of 8 is no code of 3 bits"));
}

TEST(DamagedCodes, OfSixBitsAreRefusedByName) {
  const Scheme e2m3 = scheme_labelled("fp6_e2m3");
  EXPECT_THAT(refusal(e2m3, drop_last), HasSubstr("\"test.matrix.weight_scale\" is missing; expected f32 (4)"));
  EXPECT_THAT(refusal(e2m3, [](FileMatrix& m) { m.tensors[0].stored.name = "weight_e4m1"; }),
              HasSubstr("\"test.matrix.weight_e3m2\" is missing; expected u8 (4, 2, 24)"));
}

// A group that is no multiple of 32 lies in memory as groups of 8, any other as groups of the largest size that divides
// it. A row that is no longer than its group is one group of whole units.
TEST(StoredGroups, OfAnySizeAreReadAsTheyWereWritten) {
  constexpr int64_t kRows = 32;
  int64_t bits = 0;
  for (const int64_t group : {8, 16, 24, 40, 72, 96, 160, 192, 320, 384, 512, 1000, 4096}) {
    bits = bits % 8 + 1;
    Scheme scheme = scheme_labelled("uintx_4_32");
    scheme.coded = coded_form("uintx", bits, group);
    scheme.settings = {{"bits", bits}, {"group_size", group}};
    for (const int64_t k : {20, 100, 1100}) {
      SCOPED_TRACE(std::to_string(bits) + " bits, groups of " + std::to_string(group) + ", k " + std::to_string(k));
      const int64_t in_file = k > group ? group : filled(k, 32), columns = filled(k, in_file);
      int64_t held = 256;
      while (held >= 32 && in_file % held != 0) held /= 2;
      const int64_t header = held < 32 ? 4 * 3 : 3;
      held = std::max(held, int64_t{32});
      for (const uint64_t isa : {uint64_t{0}, ~uint64_t{0}}) {
        scheme.isa = isa;
        const SiteCase floats{.source = {TENON_F32}, .rows = {kRows}, .k = k};
        const QuantizedSite quantized(scheme, floats);
        const StepCase step{.rows = 3, .live = 3};
        const std::vector<float> y = quantized.run(step, false);
        const auto exact = quantized.exact(step, false);
        for (size_t i = 0; i < y.size(); ++i) {
          ASSERT_NEAR(double{y[i]}, exact.y[i], 5e-5 * exact.magnitude[i] + 2e-5) << "value " << i;
        }
        SiteCase c = floats;
        c.stored = [&](const conformance::FileShape&, std::mt19937& random) {
          FileMatrix m = written(*scheme.open(), LinearDescription(floats).linear, floats.matrix(0, random).weights);
          EXPECT_EQ(std::vector<int64_t>(m.tensors[0].stored.dim, m.tensors[0].stored.dim + 3),
                    (std::vector<int64_t>{kRows, columns / 32, 4 * bits}));
          for (const size_t t : {1U, 2U}) EXPECT_EQ(m.tensors[t].stored.dim[1], columns / in_file);
          return m;
        };
        Scheme reader = scheme;
        reader.settings.clear();
        const conformance::QuantizedSite from_file(reader.open(), c);
        EXPECT_EQ(from_file.run(step, false), y);
        const auto bytes = static_cast<uint64_t>(kRows * ((k + held - 1) / held) * (held / 32 * 4 * bits + header));
        EXPECT_EQ(quantized.footprint().store_bytes[0], bytes);
        EXPECT_EQ(from_file.footprint().store_bytes[0], bytes);
      }
    }
  }
}

// "auto" takes the scheme that claims a file: no other one may.
TEST(StoredCodes, AreTakenByNoOtherScheme) {
  for (const Scheme& stored : coded_schemes()) {
    for (Scheme other : coded_schemes()) {
      if (other.name == stored.name) continue;
      const LinearDescription description(stored_case(stored, {4}, 64));
      const std::unique_ptr<conformance::Component> component = other.open();
      const tenon_bounds bounds = OpRunner::bounds({.rows = 1});
      auto claim = sdk::abi_struct<tenon_claim>();
      const auto& table = component->table<tenon_quantization>();
      EXPECT_EQ(table.claim(component->self(), &description.linear, &bounds, &claim, nullptr), TENON_REFUSED)
          << other.label << " takes what " << stored.label << " wrote";
    }
  }
}

// A file's own codings hold, whatever the settings say.
TEST(StoredCodes, KeepTheirCoding) {
  for (const char* label : {"uintx_3_256", "uintx_8_32", "fp6_e2m3", "fp6_e2m2", "fp6_e3m1", "nf4_double"}) {
    const Scheme stored = scheme_labelled(label);
    Scheme defaults = stored;
    defaults.settings.clear();
    const SiteCase c = stored_case(stored, {9}, 300);
    const conformance::QuantizedSite own(stored.open(), c), other(defaults.open(), c);
    EXPECT_EQ(own.run({}, false), other.run({}, false)) << label;
  }
}

}  // namespace
}  // namespace tenon::test
