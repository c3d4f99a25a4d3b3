// This writes a solution as the tensors that published.cc names at its top. The first version of the form is written,
// which all readers know: zero points are stored less 1, so none is 0, and none is stored with all bits set.
#include "writer.h"

#include <cstring>

#include "../calibrated/packing.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/layout.h"

namespace tenon::gptq {
namespace {

constexpr int64_t kWordBits = 32;
enum Written : uint32_t { kWeights, kZeros, kScales, kGroupOf };  // describe() has this order

std::string text_of(bool b) {
  return b ? "true" : "false";
}

void put_codes(const Solution& s, uint32_t bits, uint32_t* words) {
  for (uint64_t row = 0; row < s.rows; ++row) {
    const uint8_t* codes = s.codes.data() + row * s.columns;
    for (uint64_t i = 0; i < s.columns; ++i) calibrated::put_bits(words + row, s.rows, i * bits, bits, codes[i]);
  }
}

void put_grids(const Solution& s, uint32_t bits, uint32_t* zeros, uint16_t* scales) {
  const uint64_t words = uint64_t{s.rows} * bits / kWordBits;
  for (uint64_t row = 0; row < s.rows; ++row) {
    for (uint64_t g = 0; g < s.groups; ++g) {
      const calibrated::Grid& grid = s.grids[row * s.groups + g];
      if (!grid.finite()) {
        throw sdk::Refused("row " + std::to_string(row) + " has a group whose range is too large for a scale in f16");
      }
      calibrated::put_bits(zeros + g * words, 1, row * bits, bits, grid.zero - 1);
      scales[g * s.rows + row] = grid.half();
    }
  }
}

}  // namespace

Writer::Writer(const sdk::Params& params, const sdk::Env& env)
    : ObservesMoments(sdk::cpu::isa_of(env.device())),
      bits_(static_cast<uint32_t>(params.integer("bits"))),
      group_(params.integer("group_size")),
      act_order_(params.boolean("act_order")),
      static_groups_(params.boolean("static_groups")),
      symmetric_(params.boolean("symmetric")),
      search_(params.boolean("search")),
      damp_(params.real("damp")),
      threads_(env.device().units),
      description_(R"({"quant_method":"gptq","bits":)" + std::to_string(bits_) + R"(,"group_size":)" +
                   std::to_string(group_) + R"(,"desc_act":)" + text_of(act_order_) + R"(,"static_groups":)" +
                   text_of(static_groups_) + R"(,"sym":)" + text_of(symmetric_) +
                   R"(,"true_sequential":false,"lm_head":false,"damp_percent":)" + std::to_string(damp_) +
                   R"(,"checkpoint_format":"gptq"})") {}

SolverOptions Writer::options(int64_t columns) const {
  return {.rule = {bits_, symmetric_, 1},
          .group = static_cast<uint32_t>(group_ > 0 ? group_ : columns),
          .act_order = act_order_,
          .static_groups = static_groups_,
          .search = search_,
          .damp = damp_};
}

tenon_written Writer::describe(const tenon_linear& s) const {
  if (s.rows_wanted != 0 || std::string_view(s.path) == "lm_head") {
    throw sdk::Refused("GPTQ's form leaves embeddings and the head as they are");
  }
  const int64_t n = s.out_dim[0], k = s.in_dim, bits = bits_;
  if (n * bits % kWordBits != 0 || k * bits % kWordBits != 0) {
    throw sdk::Refused(std::to_string(n) + " rows of " + std::to_string(k) + " weights of " + std::to_string(bits) +
                       " bits are not whole words of 32 bits");
  }
  const int64_t group = group_ > 0 ? group_ : k, groups = (k + group - 1) / group;
  auto w = sdk::abi_struct<tenon_written>();
  w.whole = 1;
  w.tensor[w.n_tensors++] = {"qweight", TENON_I32, 2, {k * bits / kWordBits, n}};
  w.tensor[w.n_tensors++] = {"qzeros", TENON_I32, 2, {groups, n * bits / kWordBits}};
  w.tensor[w.n_tensors++] = {"scales", TENON_F16, 2, {groups, n}};
  w.tensor[w.n_tensors++] = {"g_idx", TENON_I32, 1, {k}};
  w.description = description_.c_str();
  return w;
}

void Writer::encode(const tenon_linear& s, const tenon_encode& e) const {
  const auto n = static_cast<uint32_t>(s.out_dim[0]), k = static_cast<uint32_t>(s.in_dim);
  calibrated::Workers workers(threads_);
  const SolverOptions chosen = options(s.in_dim);
  const calibrated::Moments moments(e.observed, k);
  const bool blind = e.observed == nullptr || moments.rows() == 0;
  const std::optional<Solution> solution =
      blind ? round_to_nearest({e.data, n, k}, chosen, workers)
            : solve({e.data, n, k}, moments, chosen, calibrated::products(isa_), workers);
  if (!solution) throw sdk::Failed("the products of x that were observed are not finite");
  put_codes(*solution, bits_, static_cast<uint32_t*>(e.out[kWeights]));
  put_grids(*solution, bits_, static_cast<uint32_t*>(e.out[kZeros]), static_cast<uint16_t*>(e.out[kScales]));
  auto* group_of = static_cast<int32_t*>(e.out[kGroupOf]);
  for (uint32_t i = 0; i < k; ++i) group_of[i] = static_cast<int32_t>(solution->group_of[i]);
}

}  // namespace tenon::gptq
