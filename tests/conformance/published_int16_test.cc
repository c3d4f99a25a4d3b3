// Matrices are in the forms of published checkpoints whose x becomes 16 bits where the machine has dot products of
// bytes. They are equal to what that algorithm says in float64, equal to the bit in every such instruction set and
// among any rows, and have what plain code has in every row that is looked up. fp8's stay in f32, and
// x that a form has in int8 becomes that.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "conformance/published_forms.h"
#include "support/byte_dots.h"
#include "support/component.h"

namespace tenon::test {
namespace {

using conformance::FileMatrix;
using conformance::published_forms;
using conformance::published_site;
using conformance::PublishedForm;
using conformance::QuantizedSite;
using conformance::SiteCase;
using conformance::StepCase;

std::unique_ptr<conformance::Component> open(const std::string& scheme, uint64_t isa) {
  return std::make_unique<Component>("quantization", scheme, std::vector<Setting>{}, isa);
}

// Returns the order in which the columns are held: those of a group lie side by side,
// where the file numbers the group of each.
std::vector<size_t> order_of(const SiteCase& c) {
  std::vector<size_t> order(static_cast<size_t>(c.k));
  std::iota(order.begin(), order.end(), size_t{0});
  for (const FileMatrix& m : c.matrices()) {
    for (const FileMatrix::Tensor& t : m.tensors) {
      if (std::string_view(t.stored.name).find("g_idx") == std::string_view::npos) continue;
      const auto* group = reinterpret_cast<const int32_t*>(t.bytes.data());
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return group[a] < group[b]; });
      return order;
    }
  }
  return order;
}

// A row of x becomes this: of each 32 numbers, in the order in which they are held, the largest is 32639 steps,
// and the others are whole numbers of them.
std::vector<double> in_16_bits(const float* x, const std::vector<size_t>& order) {
  std::vector<double> held(order.size());
  for (size_t begin = 0; begin < order.size(); begin += 32) {
    const size_t end = std::min(order.size(), begin + 32);
    float largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[order[i]]));
    const float step = largest / 32639.0F, factor = 1.0F / step;
    for (size_t i = begin; i < end; ++i) held[order[i]] = double{std::nearbyint(x[order[i]] * factor)} * double{step};
  }
  return held;
}

std::vector<float> random_x(size_t n) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

// y of every row of x is the product with x in 16 bits, up to this share of the sum of its terms' magnitudes.
void expect_products(const QuantizedSite& site, const SiteCase& c, const std::vector<float>& x, double share) {
  const auto k = static_cast<size_t>(c.k), rows = x.size() / k;
  const std::vector<size_t> order = order_of(c);
  StepCase step{.rows = static_cast<uint32_t>(rows), .live = static_cast<uint32_t>(rows)};
  step.x = x;
  const std::vector<float> y = site.run(step, false);
  size_t at = 0;
  for (size_t r = 0; r < rows; ++r) {
    const std::vector<double> held = in_16_bits(x.data() + r * k, order);
    for (size_t m = 0; m < c.rows.size(); ++m) {
      for (int64_t column = 0; column < c.rows[m]; ++column, ++at) {
        double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < c.k; ++i) {
          const double term = held[static_cast<size_t>(i)] * site.weight(m, column, i);
          sum += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(double{y[at]}, sum, share * magnitude) << "row " << r << " matrix " << m << " column " << column;
      }
    }
  }
}

class PublishedInt16 : public testing::TestWithParam<PublishedForm> {};

TEST_P(PublishedInt16, IsTheProductOfTheAlgorithm) {
  const PublishedForm& form = GetParam();
  // Minima are rounded apart from the codes that they are added to. A value of
  // nf4 is off by 8e-6 of the largest at most.
  const double share = form.label.find("nf4") != std::string::npos ? 8e-6 : 1e-6;
  for (const auto& [name, isa] : byte_dot_sets()) {
    for (const int64_t k : {128, 384, 1152}) {
      SCOPED_TRACE(std::string(name) + " k " + std::to_string(k));
      const SiteCase c = published_site(form, {64, 32}, k);
      const QuantizedSite site(open(form.scheme, isa), c);
      for (const size_t rows : {1, 11}) expect_products(site, c, random_x(rows * static_cast<size_t>(k)), share);
    }
  }
}

TEST_P(PublishedInt16, SameBitsInEverySetAndAmongAnyRows) {
  const PublishedForm& form = GetParam();
  const SiteCase c = published_site(form, {96, 32}, 256);
  std::vector<float> first;
  for (const auto& [name, isa] : byte_dot_sets()) {
    const QuantizedSite site(open(form.scheme, isa), c);
    const std::vector<float> all = site.run({.rows = 53, .live = 53}, false);
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << name;
    const std::vector<float> alone = site.run({.rows = 1, .live = 1}, false);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin())) << name;
    // Otherwise nothing here would say that x has become 16 bits.
    EXPECT_NE(QuantizedSite(open(form.scheme, 0), c).run({.rows = 53, .live = 53}, false), all) << name;
  }
}

TEST_P(PublishedInt16, LooksUpTheWeightsThatPlainCodeHas) {
  const PublishedForm& form = GetParam();
  if (form.permuted) GTEST_SKIP() << "no embedding is stored so";
  const SiteCase c = published_site(form, {64}, 384);
  std::vector<int32_t> index(64);
  std::iota(index.rbegin(), index.rend(), 0);
  const std::vector<float> plain = QuantizedSite(open(form.scheme, 0), c).embed(index);
  for (const auto& [name, isa] : byte_dot_sets()) {
    EXPECT_EQ(QuantizedSite(open(form.scheme, isa), c).embed(index), plain) << name;
  }
}

std::vector<PublishedForm> forms() {
  std::vector<PublishedForm> all = published_forms();
  const std::vector<std::string> schemes = installed("quantization");
  std::erase_if(all, [&](const PublishedForm& f) {
    return f.scheme == "fp8" || f.x_in_int8 || std::find(schemes.begin(), schemes.end(), f.scheme) == schemes.end();
  });
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, PublishedInt16, testing::ValuesIn(forms()), [](const auto& p) { return p.param.label; });

// The least scale of mxfp4 is 2^-127, which is no normal number.
TEST(PublishedMxfp4, HasItsLeastScale) {
  const std::vector<PublishedForm> all = forms();
  const auto form = std::find_if(all.begin(), all.end(), [](const auto& f) { return f.label == "mxfp4_packed"; });
  ASSERT_NE(form, all.end());
  PublishedForm least = *form;
  least.make = [&](const conformance::FileShape& shape, std::mt19937& random) {
    FileMatrix m = form->make(shape, random);
    for (FileMatrix::Tensor& t : m.tensors) {
      if (std::string_view(t.stored.name) != "weight_scale") continue;
      for (size_t i = 0; i < m.weights.size(); ++i) m.weights[i] = std::ldexp(m.weights[i], -int{t.bytes[i / 32]});
      std::fill(t.bytes.begin(), t.bytes.end(), uint8_t{0});
    }
    return m;
  };
  const SiteCase c = published_site(least, {32}, 128);
  std::vector<float> x = random_x(3 * 128);
  for (float& v : x) v *= 1e30F;
  for (const auto& [name, isa] : byte_dot_sets()) {
    SCOPED_TRACE(name);
    expect_products(QuantizedSite(open(least.scheme, isa), c), c, x, 1e-6);
  }
}

}  // namespace
}  // namespace tenon::test
