// Any quantization scheme owes this, however its weights look inside: it holds the file's matrices, multiplies by what
// it holds, does what it claims, and a row has the same bits alone and among others.
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "conformance/published_forms.h"
#include "conformance/quantization_host.h"
#include "conformance/quantization_writing.h"
#include "conformance/suites.h"
#include "conformance/weight_rows.h"

namespace tenon::conformance {
namespace {

// A scheme's sums may differ so much from those in float64, relative; it is wide enough for activations in 8 bits, of
// which floats are off by a sixteenth of themselves at most.
constexpr double kTolerance = 6e-2;
// This is the tolerance where a row of x is of zeros and of one other number, which every rounding of activations
// keeps: weights may still become halves, and sums are in f32.
constexpr double kUnroundedTolerance = 2e-3;

void require_close(const std::vector<float>& got, const std::vector<double>& wanted, const std::string& what,
                   double tolerance = kTolerance) {
  require(got.size() == wanted.size(), what + ": has " + std::to_string(got.size()) + " values");
  Difference d;
  for (size_t i = 0; i < got.size(); ++i) d.add(double{got[i]}, wanted[i]);
  require(d.relative() <= tolerance, what + ": off by " + std::to_string(d.relative()) + " relative to float64");
}

// Returns (rows, kWidth): rows of 0 and 1, and of 0 and -1, in turn.
std::vector<float> unrounded(uint32_t rows) {
  std::mt19937 random(rows);
  std::vector<float> x(size_t{rows} * kWidth);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random() % 2) * (i / kWidth % 2 == 0 ? 1.F : -1.F);
  return x;
}

bool takes(const Component& scheme, const SiteCase& site) {
  const tenon_bounds bounds = OpRunner::bounds({.rows = 1});
  const LinearDescription d(site);
  tenon_claim claim{};
  claim.h = {sizeof(claim), 1, 0};
  return scheme.table<tenon_quantization>().claim(scheme.self(), &d.linear, &bounds, &claim, nullptr) == TENON_OK;
}

// Returns matrices in the first format that the scheme takes, or in the first form of published checkpoints.
std::optional<SiteCase> taken_site(const Subject& subject, uint32_t experts) {
  const std::unique_ptr<Component> component = subject.open();
  for (const tenon_format format : kFileFormats) {
    SiteCase site = {.source = {format, format}, .rows = {40, 19}, .k = kWidth, .experts = experts};
    if (takes(*component, site)) return site;
  }
  for (const PublishedForm& form : published_forms()) {
    SiteCase site = published_site(form, {64, 32}, kWidth, experts);
    if (takes(*component, site)) return site;
  }
  return {};
}
SiteCase site_of(const Subject& subject) {
  if (const std::optional<SiteCase> site = taken_site(subject, 0)) return *site;
  // A setting may be for another device; the defaults are for every one.
  if (!subject.variant().settings.empty()) throw NotTested("it refuses every site in this setting");
  fail("refuses a site of two matrices in every format that a file may have");
}

void keeps_to_its_operands(const Subject& subject) {
  const QuantizedSite site(subject.open(), site_of(subject));
  for (const StepCase& step : {StepCase{}, StepCase{.rows = 9, .live = 7, .pitch = 3, .own_live = true}}) {
    site.run(step, false);
  }
  if (site.has_rows()) site.embed({39, 0, 7, 7});
}

void holds_the_matrices(const Subject& subject) {
  const SiteCase c = site_of(subject);
  QuantizedSite site(subject.open(), c);
  site.learn();
  Difference d;
  for (size_t m = 0; m < c.rows.size(); ++m) {
    for (int64_t row = 0; row < c.rows[m]; ++row) {
      for (int64_t i = 0; i < kWidth; ++i) d.add(site.weight(m, row, i), site.source(m, row, i));
    }
  }
  require(d.relative() <= kHeld, "products with unit vectors show other matrices than the file's: off by " +
                                     std::to_string(d.relative()) + " relative");
}

void multiplies(const Subject& subject) {
  QuantizedSite site(subject.open(), site_of(subject));
  site.learn();
  for (const StepCase& step : {StepCase{}, StepCase{.rows = 9, .live = 7, .pitch = 3, .own_live = true},
                               StepCase{.rows = 8, .live = 7, .sequences = true}}) {
    require_close(site.run(step, false), site.exact(step, false).y, std::to_string(step.rows) + " rows");
  }
  for (const uint32_t rows : {1U, 3U, 9U, 24U}) {
    const StepCase step{.rows = rows, .live = rows, .x = unrounded(rows)};
    require_close(site.run(step, false), site.exact(step, false).y, std::to_string(rows) + " rows of zeros and ones",
                  kUnroundedTolerance);
  }
}

void does_what_it_claims(const Subject& subject) {
  SiteCase c = site_of(subject);
  c.rows = {24, 24};
  const QuantizedSite any(subject.open(), c);
  const std::vector<std::vector<tenon_id>> epilogues{
      {}, {TENON_F_ADD}, {TENON_F_BIAS}, {TENON_F_BIAS, TENON_F_ADD}, {TENON_F_SILU_MUL}};
  for (const bool norm : {false, true}) {
    for (const std::vector<tenon_id>& epilogue : epilogues) {
      const StepCase step{.rows = 4, .live = 3, .norm = norm, .epilogue = epilogue};
      if (!any.claims(step)) continue;
      QuantizedSite site(subject.open(), c, 3, nullptr, step);
      site.learn();
      require_close(site.run(step, true), site.exact(step, true).y,
                    (norm ? "a norm, " : "") + std::to_string(epilogue.size()) + " ops after the product");
    }
  }
}

void looks_up_rows(const Subject& subject) {
  QuantizedSite site(subject.open(), site_of(subject));
  if (!site.has_rows()) return;
  site.learn();
  const std::vector<int32_t> index{39, 0, 7, 7};
  std::vector<double> wanted;
  for (const int32_t row : index) {
    for (int64_t i = 0; i < kWidth; ++i) wanted.push_back(site.weight(0, row, i));
  }
  require_close(site.embed(index), wanted, "rows that are looked up");
}

// A promise of more rows is kept all the same for so many sequences of a row each (tenon_quantization).
constexpr uint32_t kSteadySequences = 4;

void a_row_alone(const Subject& subject) {
  const QuantizedSite site(subject.open(), site_of(subject));
  const uint32_t most = std::min(site.row_invariant_max(), 33U);
  if (most == 0) throw NotTested("it promises no count of rows (row_invariant_max is 0)");
  const std::vector<float> all = site.run({.rows = most, .live = most}, false);
  for (uint32_t live = 1; live <= most; live += live < 9 ? 1 : 8) {
    const std::vector<float> y = site.run({.rows = most, .live = live}, false, live);
    require(std::equal(y.begin(), y.end(), all.begin()),
            std::to_string(live) + " rows have other bits than among " + std::to_string(most));
  }
  for (uint32_t rows = 1; rows <= std::min(most, kSteadySequences); rows *= 2) {
    const std::vector<float> y =
        site.run({.rows = rows, .live = rows, .sequences = true, .most_out_rows = most}, false, rows);
    require(std::equal(y.begin(), y.end(), all.begin()),
            std::to_string(rows) + " sequences of a row each have other bits than " + std::to_string(most) + " rows");
  }
}

void loads_in_any_pieces(const Subject& subject) {
  const SiteCase c = site_of(subject);
  const QuantizedSite a(subject.open(), c, 1), b(subject.open(), c, 100);
  require(a.run({}, false) == b.run({}, false), "loading row by row gives other products than all rows at once");
}

void routes_rows(const Subject& subject) {
  constexpr uint32_t kExperts = 5;
  const std::optional<SiteCase> c = taken_site(subject, kExperts);
  if (!c) throw NotTested("it refuses routed sites");
  QuantizedSite site(subject.open(), *c);
  site.learn();
  std::mt19937 random(3);
  for (const uint32_t rows : {1U, 2U, 7U, 16U, 17U, 40U}) {
    StepCase step{.rows = rows, .live = rows, .pitch = rows % 3};
    const auto check = [&](const std::string& routing) {
      require_close(site.run(step, false), site.exact(step, false).y, std::to_string(rows) + " rows, " + routing);
    };
    for (uint32_t r = 0; r < rows; ++r) step.expert.push_back(static_cast<int32_t>(random() % kExperts));
    check("experts at random");
    for (uint32_t r = 0; r < rows; r += 3) step.expert[r] = -1;
    if (rows > 1) check("some skipped");
    step.expert.assign(rows, kExperts - 1);
    check("one expert for all");
  }
}

void skips_rows(const Subject& subject) {
  const std::optional<SiteCase> c = taken_site(subject, 3);
  if (!c) throw NotTested("it refuses routed sites");
  const QuantizedSite site(subject.open(), *c);
  for (const uint32_t rows : {1U, 5U, 20U}) {
    const StepCase step{.rows = rows, .live = rows, .expert = std::vector<int32_t>(rows, -1)};
    for (const float y : site.run(step, false)) require(y == 0, "the product of a row that is skipped is not zero");
  }
}

}  // namespace

std::vector<Check> quantization_checks() {
  return {{kBounds, &keeps_to_its_operands},  {"held_matrices", &holds_the_matrices},
          {"float64", &multiplies},           {"claims", &does_what_it_claims},
          {"lookup", &looks_up_rows},         {"a_row_alone", &a_row_alone},
          {"loading", &loads_in_any_pieces},  {"written", &reads_what_it_writes},
          {"column_factors", &takes_factors}, {"routed", &routes_rows},
          {"skipped_rows", &skips_rows}};
}

}  // namespace tenon::conformance
