// Every attention owes this: the softmax of float64 over awkward shapes, and the same bits for a row alone and among
// others, whatever the bounds.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "conformance/attention_host.h"
#include "conformance/attention_views.h"
#include "conformance/suites.h"
#include "tenon/core/error.h"
#include "tenon/sdk/kv_codec.h"
#include "tenon/sdk/linked_rows.h"

namespace tenon::conformance {
namespace {

// Adds heads that do not fill vectors, and groups of query heads.
void add_sizes(std::vector<AttentionCase>& all) {
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
}

// Adds contexts and steps that cross key blocks, splits and pages.
void add_steps(std::vector<AttentionCase>& all) {
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
  all.push_back({.name = "prompts_beside_few_rows",
                 .q_heads = 2,
                 .k_dim = 16,
                 .v_dim = 16,
                 .sequences = {{10, 1}, {300, 70}, {0, 33}, {63, 8}, {64, 9}, {513, 1}, {1, 2}},
                 .page_tokens = 8});
}

// Adds windows, soft caps and sinks.
void add_masks(std::vector<AttentionCase>& all) {
  for (const uint32_t window : {1, 2, 64, 100, 300}) {
    all.push_back({.name = "window" + std::to_string(window),
                   .q_heads = 2,
                   .k_dim = 16,
                   .v_dim = 16,
                   .sequences = {{290, 40}, {3, 2}},
                   .window = window});
  }
  all.push_back({.name = "softcap", .q_heads = 2, .k_dim = 16, .v_dim = 16, .sequences = {{100, 3}}, .softcap = 5});
  for (const uint32_t before : {0, 63, 600}) {
    all.push_back({.name = "sinks" + std::to_string(before),
                   .q_heads = 6,
                   .kv_heads = 2,
                   .k_dim = 16,
                   .v_dim = 24,
                   .sequences = {{before, 1}, {3, 40}},
                   .window = before == 600 ? 50U : 0U,
                   .sinks = true});
  }
  all.push_back({.name = "all_at_once",
                 .q_heads = 6,
                 .kv_heads = 2,
                 .k_dim = 24,
                 .v_dim = 40,
                 .sequences = {{300, 3}, {5, 30}},
                 .window = 37,
                 .softcap = 30});
}

// Adds sequences each of whose rows sees only the rows that it follows.
void add_drafts(std::vector<AttentionCase>& all) {
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
}

// Adds the same cases in half precision.
void add_halves(std::vector<AttentionCase>& all) {
  const size_t n = all.size();
  for (size_t i = 0; i < n; ++i) {
    for (const tenon_format codec : {TENON_F16, TENON_BF16}) {
      AttentionCase c = all[i];
      c.codec = codec;
      c.name += std::string("_") + tenon_format_name(codec);
      all.push_back(c);
    }
  }
}

// Sinks in half precision meet a row whose context is cut into splits, a
// prompt, and so many sequences that none is cut.
void add_sinks_in_half(std::vector<AttentionCase>& all) {
  for (const tenon_format codec : {TENON_F16, TENON_BF16}) {
    AttentionCase c{.q_heads = 8, .kv_heads = 2, .k_dim = 64, .v_dim = 64, .codec = codec, .sinks = true};
    c.name = std::string("sinks_of_a_row_") + tenon_format_name(codec);
    c.sequences = {{1100, 1}};
    c.page_tokens = 64;
    all.push_back(c);
    c.name = std::string("sinks_of_a_prompt_") + tenon_format_name(codec);
    c.sequences = {{40, 200}, {90, 2}};
    c.page_tokens = 512;
    all.push_back(c);
    c.name = std::string("sinks_of_many_") + tenon_format_name(codec);
    c.kv_heads = 8;
    c.k_dim = c.v_dim = 16;
    c.sequences.assign(72, {40, 1});
    c.page_tokens = 16;
    all.push_back(c);
  }
}

// These have a row each, beside each other and alone.
void add_sequences(std::vector<AttentionCase>& all) {
  all.push_back({.name = "four_sequences",
                 .q_heads = 8,
                 .kv_heads = 2,
                 .k_dim = 64,
                 .v_dim = 64,
                 .sequences = {{600, 1}, {760, 1}, {1000, 1}, {63, 1}},
                 .codec = TENON_F16});
}

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all;
  add_sizes(all);
  add_steps(all);
  add_masks(all);
  add_drafts(all);
  add_halves(all);
  add_sinks_in_half(all);
  add_sequences(all);
  return all;
}

// Does the component read this cache? If not, it must say why.
bool reads(const AttentionHost& host, const Component& attention) {
  std::string why;
  const tenon_status status = host.claim(attention, &why);
  if (status == TENON_OK) return true;
  require(status == TENON_REFUSED, "claim failed: " + why);
  require(!why.empty(), "refuses a cache's format and does not say why");
  return false;
}

AttentionHost::Answer answer_of(const AttentionHost& host, const Component& attention, uint64_t seed) {
  AttentionHost::Answer answer = host.run(attention, {.seed = seed});
  require(answer.fault.empty(), answer.fault);
  return answer;
}

// On a device with queues scores and weights may be rounded to the cache's own format.
double tolerance(const Component& attention, tenon_format codec) {
  if (attention.device().walks() || codec == TENON_F32) return 1e-5;
  return codec == TENON_F16 ? 5e-3 : 3e-2;
}

// Requires that the error of each row is small, relative to the row's largest value.
void require_near(const std::vector<float>& got, const std::vector<double>& want, size_t columns, double tolerance) {
  require(got.size() == want.size(), "answers " + std::to_string(got.size()) + " values");
  for (size_t row = 0; row < got.size(); row += columns) {
    double largest = 0, error = 0;
    for (size_t i = row; i < row + columns; ++i) {
      largest = std::max(largest, std::abs(want[i]));
      error = std::isnan(got[i]) ? INFINITY : std::max(error, std::abs(got[i] - want[i]));
    }
    if (error > tolerance * largest) {
      fail("row " + std::to_string(row / columns) + " is off by " + std::to_string(error / largest) +
           " relative to float64");
    }
  }
}

// Runs a check over all cases that the component reads, and returns how many. A fault is said with its case.
template <class F>
size_t each_case(const Component& attention, uint64_t seed, F&& check) {
  size_t read = 0;
  for (const AttentionCase& c : cases()) {
    const AttentionHost host(c, ++seed);
    try {
      if (!reads(host, attention)) continue;
      ++read;
      check(c, host, seed);
    } catch (const Error& e) {
      fail(c.name + ": " + e.diagnostics().front().message);
    }
  }
  return read;
}

void keeps_to_its_operands(const Subject& subject) {
  const std::unique_ptr<Component> attention = subject.open();
  const size_t read = each_case(*attention, 1, [&](const AttentionCase&, const AttentionHost& host, uint64_t seed) {
    answer_of(host, *attention, seed);
  });
  require(read > 0, "reads none of the caches that it was given");
}

void agrees_with_float64(const Subject& subject) {
  if (subject.has_own(TENON_OWN_FORMULA)) throw NotTested("it declares a formula of its own");
  const std::unique_ptr<Component> attention = subject.open();
  each_case(*attention, 1, [&](const AttentionCase& c, const AttentionHost& host, uint64_t seed) {
    const AttentionHost::Answer got = answer_of(host, *attention, seed);
    // The cache's rounding is in the reference too: what is left is the arithmetic's.
    require_near(got.out, host.expected(), c.v_dim, tolerance(*attention, c.codec));
  });
}

void a_row_alone(const Subject& subject) {
  const std::unique_ptr<Component> attention = subject.open();
  const uint32_t most = attention->table<tenon_attention>().row_invariant_max;
  each_case(*attention, 100, [&](const AttentionCase& c, const AttentionHost& host, uint64_t seed) {
    // For so many of one row each a number is a promise. The largest number is a promise for any step.
    constexpr uint32_t kSequences = 4;
    const bool single = std::all_of(c.sequences.begin(), c.sequences.end(), [](const auto& s) { return s.rows == 1; });
    if (host.rows() > (single && most != UINT32_MAX ? std::min(most, kSequences) : most)) return;
    if (c.tree && c.name.find("chain") == std::string::npos) return;  // a branch alone is another sequence
    const AttentionHost::Answer all = answer_of(host, *attention, seed);
    const size_t columns = size_t{c.q_heads} * c.v_dim;
    for (uint32_t row = 0; row < host.rows(); row += 1 + host.rows() / 12) {
      const uint32_t n = std::min(host.rows() - row, 1 + row % 3);
      const AttentionHost::Answer some = host.run(
          *attention,
          {.begin = row, .end = row + n, .padding = row % 2, .kv_len = host.longest() + row * 77, .seed = row});
      require(some.fault.empty(), some.fault);
      if (std::memcmp(some.out.data(), all.out.data() + row * columns, n * columns * sizeof(float)) == 0) continue;
      fail("rows " + std::to_string(row) + " to " + std::to_string(row + n) + " have other bits than among all rows");
    }
  });
}

// The rows that are read do not depend on whether others are read, and the cache does not, either.
void gives_the_rows_that_are_wanted(const Subject& subject) {
  const std::unique_ptr<Component> attention = subject.open();
  each_case(*attention, 200, [&](const AttentionCase& c, const AttentionHost& host, uint64_t seed) {
    const AttentionHost::Answer all = answer_of(host, *attention, seed);
    AttentionHost::How how{.seed = seed};
    // Somebody reads the last row of every other sequence, as of a prompt that ends, and the first row of the step.
    if (host.rows() > 1) how.wanted.push_back(0);
    uint32_t end = 0;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      end += c.sequences[s].rows;
      if (s % 2 == 0 && end > 1) how.wanted.push_back(static_cast<int32_t>(end) - 1);
    }
    if (how.wanted.empty()) return;
    const AttentionHost::Answer some = host.run(*attention, how);
    require(some.fault.empty(), some.fault);
    require(some.cache == all.cache, "what is in the cache depends on which rows are read");
    const int64_t columns = int64_t{c.q_heads} * c.v_dim;
    std::vector<float> got;
    std::vector<double> want;
    for (const int32_t row : how.wanted) {
      got.insert(got.end(), some.out.begin() + row * columns, some.out.begin() + (row + 1) * columns);
      want.insert(want.end(), all.out.begin() + row * columns, all.out.begin() + (row + 1) * columns);
    }
    require_near(got, want, c.v_dim, tolerance(*attention, c.codec));
  });
}

// Views that a plain cache does not have are read by the rules of the header, or refused with a reason.
void reads_views_or_says_why_not(const Subject& subject) {
  if (subject.has_own(TENON_OWN_FORMULA)) throw NotTested("it declares a formula of its own");
  const std::unique_ptr<Component> attention = subject.open();
  uint64_t seed = 300;
  for (const ViewCase& c : view_cases()) {
    ViewHost host(c, *attention, ++seed);
    const ViewHost::Answer got = host.run();
    if (!got.refusal.empty()) continue;
    require(got.fault.empty(), c.name + ": " + got.fault);
    const ViewHost::Expected want = host.expected();
    const double most =
        tolerance(*attention, c.recent != 0 && c.codec == TENON_F32 ? tenon_format{TENON_F16} : c.codec);
    try {
      require_near(got.out, want.out, ViewHost::kValueDim, most);
    } catch (const Error& e) {
      fail(c.name + ": " + e.diagnostics().front().message);
    }
    for (size_t i = 0; i < got.weights.size(); ++i) {
      if (std::isnan(want.weights[i])) continue;  // a slot without rows keeps what it has
      require(std::abs(got.weights[i] - want.weights[i]) <= most,
              c.name + ": the softmax weight of cell " + std::to_string(i % ViewHost::kCells) + " is " +
                  std::to_string(got.weights[i]) + ", not " + std::to_string(want.weights[i]));
    }
  }
}

// The result has in every format that attention leaves the numbers that it has in f32, rounded.
void leaves_its_result_for_a_product(const Subject& subject) {
  const std::unique_ptr<Component> attention = subject.open();
  if (attention->table<tenon_attention>().leaves_links == 0) return;
  for (const uint32_t sequences : {1, 14, 62, 158, 254}) {
    for (const uint32_t dim : {64, 96, 128}) {
      AttentionCase c{.name = std::to_string(sequences) + "_for_a_product",
                      .q_heads = 8,
                      .kv_heads = 2,
                      .k_dim = dim,
                      .v_dim = dim,
                      .codec = dim == 96 ? TENON_BF16 : TENON_F16,
                      .append = true};
      for (uint32_t s = 0; s < sequences; ++s) c.sequences.push_back({s * 37 % 90, sequences == 1 ? 14U : 1U});
      const AttentionHost host(c, sequences);
      const AttentionHost::Answer plain = host.run(*attention);
      if (!plain.fault.empty()) continue;  // what it takes on is another check
      for (const tenon_format format : sdk::kLinkFormats) {
        if (format == TENON_F8E4M3) continue;  // its scale is the module's choice
        const AttentionHost::Answer left = host.run(*attention, {.out_format = format});
        if (left.refused) continue;
        require(left.fault.empty(), left.fault);
        const double rounding = sdk::element_of(format) == TENON_F16 ? 0x1p-11 : 0x1p-8, least = 0x1p-20;
        for (size_t i = 0; i < plain.out.size(); ++i) {
          if (std::abs(left.out[i] - plain.out[i]) <= rounding * std::abs(plain.out[i]) + least) continue;
          fail(to_string(c) + ": number " + std::to_string(i) + " is left as " + std::to_string(left.out[i]) +
               ", in f32 it is " + std::to_string(plain.out[i]));
        }
      }
    }
  }
}

void prefers_a_format_that_it_reads(const Subject& subject) {
  const std::unique_ptr<Component> attention = subject.open();
  auto format = sdk::abi_struct<tenon_kv_format>();
  Reason why;
  why.check(attention->table<tenon_attention>().preferred_format(attention->self(), &format, &why.raw),
            "has no preferred format");
  const AttentionHost host({.name = "any", .sequences = {{1, 1}}, .codec = format.k.codec}, 1);
  require(reads(host, *attention), "refuses the format that it prefers");
}

void refuses_what_it_cannot_read(const Subject& subject) {
  const std::unique_ptr<Component> attention = subject.open();
  const AttentionHost host({.name = "any", .sequences = {{1, 1}}}, 1);
  const tenon_attn a = host.layer();
  const tenon_bounds b = OpRunner::bounds({});
  const tenon_kv_format format = sdk::kv_format(TENON_Q8_0, TENON_F64);
  const tenon_kv_view view = host.prototype(format);
  auto claim = sdk::abi_struct<tenon_claim>();
  Reason why;
  const tenon_status status =
      attention->table<tenon_attention>().claim(attention->self(), &a, &view, &b, &claim, &why.raw);
  require(status == TENON_REFUSED, "does not refuse a cache's format that nobody knows");
  require(*why.text != '\0', "refuses a cache's format and does not say why");
}

}  // namespace

std::vector<Check> attention_checks() {
  return {{kBounds, &keeps_to_its_operands},
          {"float64", &agrees_with_float64},
          {"a_row_alone", &a_row_alone},
          {"out_rows", &gives_the_rows_that_are_wanted},
          {"views", &reads_views_or_says_why_not},
          {"links", &leaves_its_result_for_a_product},
          {"preferred_format", &prefers_a_format_that_it_reads},
          {"refusal", &refuses_what_it_cannot_read}};
}

}  // namespace tenon::conformance
