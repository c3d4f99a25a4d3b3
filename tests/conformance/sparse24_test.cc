// sparse24 keeps of every four weights two, in four bits. It is held against its definition, written down once more
// here; so are its packing, and what is wrong with a file's tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "conformance/quantization_host.h"
#include "support/component.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/stored.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using conformance::LinearDescription;
using conformance::QuantizedSite;
using conformance::SiteCase;
using conformance::StepCase;
using ::testing::HasSubstr;

constexpr uint64_t kByteDots = TENON_ISA_AVX_VNNI | TENON_ISA_AVX512_VNNI;

struct Scheme {
  int64_t group;
  std::string label, device = "cpu";
  uint64_t isa = 0;  // TENON_ISA_*, on the CPU

  std::unique_ptr<conformance::Component> open() const {
    const std::vector<Setting> settings{{"group_size", group}};
    if (device == "cpu") return std::make_unique<Component>("quantization", "sparse24", settings, isa);
    return std::make_unique<conformance::Component>(plugins().load("quantization", "sparse24", device),
                                                    *test::device(device), settings);
  }
};
void PrintTo(const Scheme& s, std::ostream* out) {
  *out << s.label;
}

// Sets with dot products of bytes, where x becomes 16 bits.
std::vector<std::pair<std::string, uint64_t>> byte_dot_sets() {
  constexpr uint64_t kAvxVnni = TENON_ISA_AVX2 | TENON_ISA_AVX_VNNI;
  constexpr uint64_t kAvx512Vnni = TENON_ISA_AVX2 | TENON_ISA_AVX512 | TENON_ISA_AVX512_VNNI;
  std::vector<std::pair<std::string, uint64_t>> sets;
  if ((machine_isa() & kAvxVnni) == kAvxVnni) sets.emplace_back("_avxvnni", kAvxVnni);
  if ((machine_isa() & kAvx512Vnni) == kAvx512Vnni) sets.emplace_back("_avx512vnni", kAvx512Vnni);
  return sets;
}

std::vector<Scheme> schemes() {
  std::vector<Scheme> all;
  for (const int64_t group : {-1, 32, 64, 128}) {
    const std::string name = group < 0 ? "row" : std::to_string(group);
    all.push_back({.group = group, .label = name + "_scalar"});
    if ((machine_isa() & TENON_ISA_AVX2) != 0) {
      all.push_back({.group = group, .label = name + "_avx2", .isa = TENON_ISA_AVX2});
    }
    if ((machine_isa() & TENON_ISA_AVX512) != 0) {
      all.push_back({.group = group, .label = name + "_avx512", .isa = TENON_ISA_AVX2 | TENON_ISA_AVX512});
    }
    for (const auto& [set, isa] : byte_dot_sets()) all.push_back({.group = group, .label = name + set, .isa = isa});
    all.push_back({.group = group, .label = name + "_cuda", .device = "cuda"});
  }
  return all;
}
Scheme on_this_machine(int64_t group) {
  return {.group = group, .label = "", .isa = machine_isa()};
}

// Returns a row as the definition holds it: by sorting each four weights.
std::vector<float> held_row(const float* w, int64_t k, int64_t group) {
  std::vector<float> out(static_cast<size_t>(k));
  const int64_t span = group < 0 ? k : group;
  for (int64_t begin = 0; begin < k; begin += span) {
    const int64_t end = std::min(k, begin + span);
    float largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(w[i]));
    const float scale = sdk::half_to_float(sdk::float_to_half(largest / 7.5F));
    for (int64_t at = begin; at < end; at += 4) {
      std::vector<int64_t> order;
      for (int64_t i = at; i < std::min(end, at + 4); ++i) order.push_back(i);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return std::abs(w[a]) > std::abs(w[b]); });
      for (size_t n = 0; n < 2 && n < order.size() && scale > 0; ++n) {
        const float q = std::clamp(std::rint(w[order[n]] / scale), -8.0F, 7.0F);
        out[static_cast<size_t>(order[n])] = q * scale;
      }
    }
  }
  return out;
}
std::vector<float> held_matrix(std::vector<float> file, int64_t k, int64_t group) {
  for (size_t at = 0; at < file.size(); at += static_cast<size_t>(k)) {
    const std::vector<float> row = held_row(&file[at], k, group);
    std::copy(row.begin(), row.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return file;
}

class Sparse24 : public testing::TestWithParam<Scheme> {
 protected:
  void SetUp() override {
    if (device(GetParam().device) == nullptr) GTEST_SKIP() << "no device " << GetParam().device;
  }
  static QuantizedSite site_of(const SiteCase& c, const StepCase& around = {}) {
    const int64_t group = GetParam().group;
    return QuantizedSite(
        GetParam().open(), c, 3,
        [group](std::vector<float> file, int64_t k) { return held_matrix(std::move(file), k, group); }, around);
  }
  static void expect_close(const QuantizedSite& site, const StepCase& step, bool fused) {
    const std::vector<float> y = site.run(step, fused);
    const QuantizedSite::Exact want = site.exact(step, fused);
    ASSERT_EQ(y.size(), want.y.size());
    // In 16 bits a number of x is off by 1 / 65278 of its largest neighbour, whatever it is itself.
    // On a GPU x has the precision of two halves in steps of few rows, and of one in steps of many.
    const bool f32 = GetParam().device == "cpu" && (GetParam().isa & kByteDots) == 0;
    const double tolerance = f32 ? 1e-6 : GetParam().device == "cpu" || step.rows <= 8 ? 2e-5 : 1e-3;
    const double least = f32 || GetParam().device != "cpu" ? 1e-6 : 1e-5;
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(double{y[i]}, want.y[i], 2 * tolerance * want.magnitude[i] + least) << "value " << i;
    }
  }
};

TEST_P(Sparse24, MultipliesByTheWeightsOfItsDefinition) {
  for (const int64_t k : {1, 3, 4, 31, 64, 100, 257, 576, 4160}) {
    SCOPED_TRACE(k);
    const QuantizedSite site = site_of({.source = {TENON_F32, TENON_F16}, .rows = {19, 5}, .k = k});
    for (const uint32_t rows : {1U, 2U, 7U, 12U, 33U}) {
      expect_close(site, {.rows = rows, .live = rows - rows / 4, .pitch = rows % 3}, false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Sparse24, WhatIsFusedIsRight) {
  for (const std::vector<tenon_id>& epilogue : {std::vector<tenon_id>{TENON_F_BIAS, TENON_F_ADD}, {TENON_F_SILU_MUL}}) {
    const StepCase around{.rows = 1, .live = 1, .norm = true, .epilogue = epilogue};
    const QuantizedSite site = site_of({.source = {TENON_F32, TENON_F32}, .rows = {40, 40}, .k = 96}, around);
    for (const uint32_t rows : {1U, 5U}) {
      expect_close(site, {.rows = rows, .live = rows, .norm = true, .epilogue = epilogue}, true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Sparse24, ARowHasTheSameBitsAloneAndAmongOthers) {
  const QuantizedSite site = site_of({.source = {TENON_F32}, .rows = {53}, .k = 2200});
  const uint32_t most = std::min(site.row_invariant_max(), 33U);
  const std::vector<float> all = site.run({.rows = most, .live = most}, false);
  for (const uint32_t live : {1U, 2U, 5U, 8U}) {
    const std::vector<float> some = site.run({.rows = live, .live = live}, false, live);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << live << " rows";
  }
}

TEST_P(Sparse24, KeepsTwoOfFourAtMost) {
  const SiteCase c{.source = {TENON_F32}, .rows = {9}, .k = 260};
  const QuantizedSite site = site_of(c);
  for (int32_t row = 0; row < 9; ++row) {
    const std::vector<float> w = site.embed({row});
    for (size_t at = 0; at < w.size(); at += 4) {
      EXPECT_LE(std::count_if(w.begin() + static_cast<std::ptrdiff_t>(at),
                              w.begin() + static_cast<std::ptrdiff_t>(at) + 4, [](float v) { return v != 0; }),
                2);
    }
    for (int64_t i = 0; i < c.k; ++i)
      ASSERT_EQ(double{w[static_cast<size_t>(i)]}, site.weight(0, row, i)) << row << ", " << i;
  }
}

// There are every two columns with every two integers, in every place of a unit: what a file says is what is held.
TEST_P(Sparse24, EveryQuadIsHeldAsItIsStored) {
  const Scheme& s = GetParam();
  constexpr int64_t kK = 256, kRows = 24;  // there are 6 * 256 quads
  const int64_t groups = s.group < 0 ? 1 : kK / s.group;
  FileMatrix m;
  m.tensors = {{{"weight_scale", TENON_F16, 2, {kRows, groups, 0, 0}},
                std::vector<uint8_t>(static_cast<size_t>(kRows * groups * 2))},
               {{"weight_sparse24", TENON_U8, 3, {kRows, kK / 32, 12, 0}},
                std::vector<uint8_t>(static_cast<size_t>(kRows * kK / 32 * 12))}};
  m.weights.assign(static_cast<size_t>(kRows * kK), 0);
  for (int64_t i = 0; i < kRows * groups; ++i) {
    const uint16_t scale = sdk::float_to_half(0.25F + static_cast<float>(i % 7));
    std::memcpy(m.tensors[0].bytes.data() + 2 * i, &scale, 2);
  }
  constexpr int kColumns[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  for (int64_t n = 0; n < kRows * kK / 4; ++n) {
    const int64_t row = n / (kK / 4), quad = n % (kK / 4);
    const int64_t which = n * 181 % (6 * 256);  // all of them come, out of order
    const int first = static_cast<int>(which % 16), second = static_cast<int>(which / 16 % 16);
    const auto& columns = kColumns[which / 256];
    uint8_t* unit = m.tensors[1].bytes.data() + (row * (kK / 32) + quad / 8) * 12;
    unit[quad % 8] = static_cast<uint8_t>(first | second << 4);
    unit[8 + quad % 8 / 2] |= static_cast<uint8_t>((columns[0] | columns[1] << 2) << (quad % 2 * 4));
    const int64_t group = s.group < 0 ? 0 : 4 * quad / s.group;
    uint16_t bits = 0;
    std::memcpy(&bits, m.tensors[0].bytes.data() + 2 * (row * groups + group), 2);
    float* w = &m.weights[static_cast<size_t>(row * kK + 4 * quad)];
    w[columns[0]] = static_cast<float>(first < 8 ? first : first - 16) * sdk::half_to_float(bits);
    w[columns[1]] = static_cast<float>(second < 8 ? second : second - 16) * sdk::half_to_float(bits);
  }
  SiteCase c{.source = {TENON_FORMAT_NONE}, .rows = {kRows}, .k = kK};
  c.stored = [m](const conformance::FileShape&, std::mt19937&) { return m; };
  const QuantizedSite site(s.open(), c);
  EXPECT_TRUE((site.footprint().flags & TENON_FOOTPRINT_EXACT) != 0);
  for (int32_t row = 0; row < kRows; ++row) {
    const std::vector<float> w = site.embed({row});
    for (size_t i = 0; i < w.size(); ++i)
      ASSERT_EQ(w[i], m.weights[static_cast<size_t>(row) * kK + i]) << row << ", " << i;
  }
  expect_close(site, {.rows = 3, .live = 3}, false);
}

TEST_P(Sparse24, HoldsExtremeWeights) {
  for (const float size : {0.F, 1e-7F, 300.F}) {
    const QuantizedSite site = site_of({.source = {TENON_F32}, .rows = {9}, .k = 96, .scale = size});
    for (int32_t row : {0, 8}) {
      const std::vector<float> w = site.embed({row});
      for (int64_t i = 0; i < 96; ++i) ASSERT_EQ(double{w[static_cast<size_t>(i)]}, site.weight(0, row, i)) << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, Sparse24, testing::ValuesIn(schemes()), [](const auto& p) { return p.param.label; });

TEST(Sparse24Cpu, EveryInstructionSetGivesTheBitsOfPlainCodeOrThoseOfByteDots) {
  const SiteCase c{.source = {TENON_F32}, .rows = {70}, .k = 300};
  for (const int64_t group : {-1, 32, 64, 128}) {
    std::vector<float> of_floats, of_integers;
    for (const Scheme& s : schemes()) {
      if (s.group != group || s.device != "cpu") continue;
      const QuantizedSite site(s.open(), c);
      const std::vector<float> y = site.run({.rows = 9, .live = 9, .norm = true}, true);
      std::vector<float>& want = (s.isa & kByteDots) != 0 ? of_integers : of_floats;
      if (want.empty()) want = y;
      EXPECT_EQ(y, want) << s.label;
      const std::vector<float> one = site.run({.rows = 1, .live = 1, .norm = true}, true);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), y.begin())) << s.label;
    }
  }
}

// Returns a matrix of 4 rows as the scheme writes it.
FileMatrix written(const Scheme& s, int64_t k, const std::function<void(FileMatrix&)>& damage) {
  const SiteCase floats{.source = {TENON_F32}, .rows = {4}, .k = k};
  const LinearDescription description(floats);
  const std::unique_ptr<conformance::Component> component = s.open();
  const auto& table = component->table<tenon_quantization>();
  auto how = sdk::abi_struct<tenon_written>();
  EXPECT_EQ(table.describe(component->self(), &description.linear, &how, nullptr), TENON_OK);
  std::mt19937 random(1);
  FileMatrix m;
  m.weights = floats.matrix(0, random).weights;
  std::vector<void*> out;
  for (uint32_t i = 0; i < how.n_tensors; ++i) {
    const char* names[] = {"weight_scale", "weight_sparse24"};  // these are by name, and alive
    m.tensors.push_back({how.tensor[i], std::vector<uint8_t>(sdk::stored_bytes(how.tensor[i]))});
    EXPECT_STREQ(how.tensor[i].name, names[i]);
    m.tensors.back().stored.name = names[i];
  }
  for (auto& t : m.tensors) out.push_back(t.bytes.data());
  auto e = sdk::abi_struct<tenon_encode>();
  e.rows = 4;
  e.data = m.weights.data();
  e.out = out.data();
  EXPECT_EQ(table.encode(component->self(), &description.linear, &e, nullptr), TENON_OK);
  damage(m);
  return m;
}
void nothing(FileMatrix&) {}

SiteCase stored_site(FileMatrix m, int64_t k) {
  SiteCase c{.source = {TENON_FORMAT_NONE}, .rows = {4}, .k = k};
  c.stored = [m = std::move(m)](const conformance::FileShape&, std::mt19937&) { return m; };
  return c;
}

TEST(Sparse24Cpu, ThatItWritesEqualsWhatIsQuantizedWhileItLoads) {
  for (const int64_t group : {-1, 32, 64, 128}) {
    for (const int64_t k : {300, 576}) {
      const Scheme s = on_this_machine(group);
      const QuantizedSite from_file(on_this_machine(128).open(), stored_site(written(s, k, &nothing), k));
      const QuantizedSite quantized(s.open(), {.source = {TENON_F32}, .rows = {4}, .k = k});
      EXPECT_EQ(from_file.run({}, false), quantized.run({}, false)) << group << ", " << k;
    }
  }
}

std::string refusal(int64_t group, const std::function<void(FileMatrix&)>& damage) {
  try {
    const Scheme s = on_this_machine(group);
    const QuantizedSite site(s.open(), stored_site(written(s, 256, damage), 256));
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

TEST(Sparse24Cpu, DamagedTensorsAreRefusedByName) {
  EXPECT_EQ(refusal(128, &nothing), "");
  EXPECT_THAT(refusal(128, [](FileMatrix& m) { m.tensors.erase(m.tensors.begin()); }),
              HasSubstr("\"test.matrix.weight_scale\" is missing; expected f16 (4, "));
  EXPECT_THAT(refusal(64, [](FileMatrix& m) { m.tensors[0].stored.dim[1] = 3; }),
              HasSubstr("\"test.matrix.weight_scale\" is f16 (4, 3); expected f16 (4, "));
  EXPECT_THAT(refusal(128, [](FileMatrix& m) { m.tensors[1].stored.dim[2] = 16; }),
              HasSubstr("\"test.matrix.weight_sparse24\" is u8 (4, 8, 16); expected u8 (4, 8, 12)"));
  EXPECT_THAT(refusal(128, [](FileMatrix& m) { m.tensors[0].stored.format = TENON_BF16; }),
              HasSubstr("\"test.matrix.weight_scale\" is bf16 (4, 2); expected f16 (4, "));
  for (const uint16_t bad : {uint16_t{0x7c00}, uint16_t{0xfc00}, uint16_t{0x7e00}}) {
    EXPECT_THAT(refusal(128, [bad](FileMatrix& m) { std::memcpy(m.tensors[0].bytes.data() + 6, &bad, 2); }),
                HasSubstr("weight_scale of a row is not finite"));
  }
  EXPECT_THAT(
      refusal(128, [](FileMatrix& m) { m.tensors[1].bytes[8 + 12 * 9] = 0x5b; }),
      HasSubstr("weight_sparse24 has a quad with weights in columns 3 and 2; they must be two in rising order"));
}

TEST(Sparse24Cpu, RefusesWhatFp16CannotScale) {
  const SiteCase large{.source = {TENON_F32}, .rows = {2}, .k = 32, .scale = 1e6F};
  EXPECT_THROW(QuantizedSite(on_this_machine(128).open(), large), std::runtime_error);
}

// 3 bits a weight and the scales: 3.125 bits in groups of 128, 3.25 of 64, 3.5 of 32.
TEST(Sparse24Cpu, HasItsSize) {
  for (const auto& [group, bits] :
       {std::pair<int64_t, double>{-1, 3 + 16. / 4096}, {32, 3.5}, {64, 3.25}, {128, 3.125}}) {
    const QuantizedSite site(Scheme{.group = group, .label = ""}.open(),
                             {.source = {TENON_F16}, .rows = {8}, .k = 4096});
    EXPECT_EQ(static_cast<double>(site.footprint().store_bytes[0]) * 8 / (8 * 4096), bits);
  }
}

}  // namespace
}  // namespace tenon::test
