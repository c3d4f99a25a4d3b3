// This writes a matrix in AWQ's form for gemm, whose tensors the head of published.cc describes. search.cc
// finds factors and clips. Matrices that the form cannot have, such as embeddings and the head, are refused,
// and so is a group whose scale f16 cannot hold.
#include "writer.h"

#include <algorithm>
#include <string_view>

#include "tenon/sdk/error.h"
#include "tenon/sdk/layout.h"

namespace tenon::awq {
namespace {

enum Written : uint32_t { kWeights, kZeros, kScales };  // describe() has this order
constexpr double kLeastRows = 4;  // what is fitted to fewer rows of x loses more of the others than it spares

// Puts the codes of a line, a column of the matrix or a group, into its words. code(row) gives them.
template <class Code>
void put_line(uint32_t rows, uint32_t* words, const Code& code) {
  for (uint32_t row = 0; row < rows; ++row) {
    words[row / kRowsAWord] |= uint32_t{code(row)} << shift_of(row);
  }
}

void put(const Rounded& rounded, uint32_t n, uint32_t k, uint32_t groups, void* const* out) {
  const uint32_t words = n / kRowsAWord;
  auto* scales = static_cast<uint16_t*>(out[kScales]);
  for (uint32_t i = 0; i < k; ++i) {
    put_line(n, static_cast<uint32_t*>(out[kWeights]) + size_t{i} * words,
             [&](uint32_t row) { return rounded.codes[size_t{row} * k + i]; });
  }
  for (uint32_t g = 0; g < groups; ++g) {
    const auto grid = [&](uint32_t row) -> const calibrated::Grid& { return rounded.grids[size_t{row} * groups + g]; };
    for (uint32_t row = 0; row < n; ++row) {
      if (!grid(row).finite()) {
        throw sdk::Refused("row " + std::to_string(row) + " has a group whose range is too large for a scale in f16");
      }
      scales[size_t{g} * n + row] = grid(row).half();
    }
    put_line(n, static_cast<uint32_t*>(out[kZeros]) + size_t{g} * words, [&](uint32_t row) { return grid(row).zero; });
  }
}

// Q times K is the product that counts, and not Q and K by themselves: their
// ranges are left whole, as AWQ's authors do.
bool clips(std::string_view path) {
  return !path.ends_with(".attention.q") && !path.ends_with(".attention.k");
}

}  // namespace

Writer::Writer(const sdk::Params& params, const sdk::Env& env)
    : ObservesMoments(sdk::cpu::isa_of(env.device())),
      group_(params.integer("group_size")),
      scale_(params.boolean("scale")),
      clip_(params.boolean("clip")),
      threads_(env.device().units),
      description_(R"({"quant_method":"awq","bits":4,"group_size":)" + std::to_string(group_) +
                   R"(,"zero_point":true,"version":"gemm"})") {}

Rounding Writer::rounding(int64_t columns) const {
  return {.rule = {kBits, false, 0}, .group = static_cast<uint32_t>(group_ > 0 ? group_ : columns)};
}

tenon_written Writer::describe(const tenon_linear& s) const {
  if (s.rows_wanted != 0 || std::string_view(s.path) == "lm_head") {
    throw sdk::Refused("AWQ's form leaves embeddings and the head as they are");
  }
  const int64_t n = s.out_dim[0], k = s.in_dim, group = group_ > 0 ? group_ : k;
  if (n % kRowsAWord != 0 || k % group != 0) {
    throw sdk::Refused(std::to_string(n) + " rows of " + std::to_string(k) + " weights: rows must be a multiple of " +
                       std::to_string(kRowsAWord) + " and weights one of group_size, " + std::to_string(group));
  }
  auto w = sdk::abi_struct<tenon_written>();
  w.whole = 1;
  w.tensor[w.n_tensors++] = {"qweight", TENON_I32, 2, {k, n / kRowsAWord}};
  w.tensor[w.n_tensors++] = {"qzeros", TENON_I32, 2, {k / group, n / kRowsAWord}};
  w.tensor[w.n_tensors++] = {"scales", TENON_F16, 2, {k / group, n}};
  w.description = description_.c_str();
  w.plain_names = "modules_to_not_convert";
  return w;
}

void Writer::encode(const tenon_linear& s, const tenon_encode& e) const {
  const auto n = static_cast<uint32_t>(s.out_dim[0]), k = static_cast<uint32_t>(s.in_dim);
  calibrated::Workers workers(threads_);
  const Rounding chosen = rounding(s.in_dim);
  const calibrated::Moments moments(e.observed, k);
  const bool blind = e.observed == nullptr || moments.rows() < kLeastRows || !clip_ || !clips(s.path);
  const Rounded rounded =
      blind ? round_to_nearest({e.data, n, k, e.factor}, chosen, workers)
            : round_clipped({e.data, n, k, e.factor}, moments, chosen, calibrated::products(isa_), workers);
  put(rounded, n, k, k / chosen.group, e.out);
}

void Writer::column_factors(const tenon_linear& s, const tenon_column_factors& c) const {
  const auto k = static_cast<uint32_t>(s.in_dim);
  std::vector<SharedInput::Set> sets;
  double rows = 0;
  for (uint32_t e = 0; e < std::max(s.experts, 1U); ++e) {
    if (c.observed[e] == nullptr) continue;
    const calibrated::Moments moments(c.observed[e], k);
    if (moments.rows() > 0) sets.push_back({{c.data + size_t{e} * s.n_mats, s.n_mats}, moments});
    rows += moments.rows();
  }
  if (!scale_ || rows < kLeastRows) return;
  calibrated::Workers workers(threads_);
  const std::vector<float> factors = searched_factors({sets, {s.out_dim, s.n_mats}, k}, c.tied, rounding(s.in_dim),
                                                      calibrated::products(isa_), workers);
  if (factors.empty()) throw sdk::Failed("the products of x that were observed are not finite");
  std::copy(factors.begin(), factors.end(), c.factor);
}

}  // namespace tenon::awq
