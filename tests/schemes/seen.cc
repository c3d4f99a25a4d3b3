// quantization.seen is a scheme of a stranger's with a stored form of its own, which looks at what goes into its
// matrices. A weight stands for code * row_scale * column_scale. Columns of x that are large on average get a small
// column_scale, so that their weights are rounded to finer steps; see AWQ, Lin et al. 2023, arXiv:2306.00978.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "plain_scheme.h"

namespace {

// observe() sums |x| by column, and then counts the rows, all in f64.
uint64_t state_bytes(int64_t columns) {
  return (static_cast<uint64_t>(columns) + 1) * sizeof(double);
}

struct ObserveArgs {
  uint32_t k, rows;
  int64_t x_stride;  // elements
};

// A chunk is one column; the last is the number of rows.
void add_columns(const ObserveArgs& a, const sdk::Part& part) {
  enum { kState, kXIn, kLiveRows };
  const uint32_t live = std::min(*part.ptr<const uint32_t>(kLiveRows), a.rows);
  auto* sums = part.ptr<double>(kState);
  for (uint32_t column = part.begin(); column < part.end(); ++column) {
    for (uint32_t r = 0; r < live; ++r) {
      sums[column] += column == a.k ? 1 : std::abs(double{part.ptr<const float>(kXIn)[r * a.x_stride + column]});
    }
  }
}

class Seen : public tenon::test::PlainScheme<Seen> {
 public:
  static constexpr const char* kName = "seen";
  static constexpr const char* kDoc = "8-bit weights with a scale a row and one a column, chosen by what x is like";
  static constexpr auto kParams = sdk::params(
      sdk::real({.name = "strength", .doc = "how much a column's mean |x| counts", .value = 0.5, .min = 0, .max = 1}));

  Seen(const sdk::Params& params, const sdk::Env&) : strength_(params.real("strength")) {}

  // Everything becomes f32. What the file has in the scheme's own tensors stands for code * row_scale * column_scale.
  void load(Site& site, const tenon_rows& src, void* const* store, void*, void*) const {
    const tenon_format format = site.mat(src).source;
    cpu::each_loaded_row(site, src, store, [&](uint8_t* to, const cpu::FileRow& from) {
      auto* w = reinterpret_cast<float*>(to);
      if (format != kOwnTensors) return sdk::unpack_row(format, from[0], site.k, w);
      const auto* columns = static_cast<const uint8_t*>(src.tensor[kColumnScale].data);
      float row_scale = 0, column_scale = 0;
      std::memcpy(&row_scale, from[kRowScale], sizeof(float));
      for (uint32_t i = 0; i < site.k; ++i) {
        std::memcpy(&column_scale, columns + i * sizeof(float), sizeof(float));
        w[i] = static_cast<float>(static_cast<int8_t>(from[kCodes][i])) * row_scale * column_scale;
      }
    });
  }

  tenon_written describe(const tenon_linear& s) const {
    if (s.out_dim[0] % 2 != 0) throw sdk::Refused("an odd number of rows");
    auto w = sdk::abi_struct<tenon_written>();
    w.whole = 1;
    w.tensor[w.n_tensors++] = {"codes", TENON_I8, 2, {s.out_dim[0], s.in_dim}};
    w.tensor[w.n_tensors++] = {"row_scale", TENON_F32, 1, {s.out_dim[0]}};
    w.tensor[w.n_tensors++] = {"column_scale", TENON_F32, 1, {s.in_dim}};
    w.description = R"({"quant_method":"seen","bits":8})";
    return w;
  }

  void encode(const tenon_linear& s, const tenon_encode& e) const {
    const auto k = static_cast<size_t>(s.in_dim);
    auto* codes = static_cast<int8_t*>(e.out[0]);
    auto* row_scale = static_cast<float*>(e.out[1]);
    const std::vector<float> column_scale = columns_of(k, static_cast<const double*>(e.observed));
    std::copy(column_scale.begin(), column_scale.end(), static_cast<float*>(e.out[2]));
    std::vector<float> scaled(k);
    for (size_t r = 0; r < e.rows; ++r) {
      float largest = 1e-30F;
      for (size_t i = 0; i < k; ++i) {
        scaled[i] = e.data[r * k + i] / column_scale[i];
        largest = std::max(largest, std::abs(scaled[i]));
      }
      row_scale[r] = largest / 127;
      for (size_t i = 0; i < k; ++i) codes[r * k + i] = static_cast<int8_t>(std::rint(scaled[i] / row_scale[r]));
    }
  }

  uint64_t observed_bytes(const tenon_linear& s) const { return s.experts != 0 ? 0 : state_bytes(s.in_dim); }

  void observe(const tenon_linear& s, const tenon_observe_call& call, sdk::Recorder& r) const {
    const tenon_tensor x = r.describe(call.x);
    const ObserveArgs args{static_cast<uint32_t>(s.in_dim), static_cast<uint32_t>(x.dim[0]), x.stride[0] / 4};
    const tenon_operand operands[] = {
        {call.state, TENON_READ | TENON_WRITE}, {call.x, TENON_READ}, {live_rows(call.row_live, r), TENON_READ}};
    r.emit<add_columns>({.name = "add_columns", .operands = operands, .chunks = {args.k + 1}}, args);
  }

  // Takes plain matrices, which become f32, and those that the scheme has written.
  static tenon_format source(const tenon_linear& s, uint32_t mat) {
    if (sdk::find_tensor(s.matrix[mat], "codes") == nullptr) return cpu::unpacked_source(s, mat);
    const tenon_stored expected[] = {{"codes", TENON_I8, 2, {s.out_dim[mat], s.in_dim, 0, 0}},
                                     {"row_scale", TENON_F32, 1, {s.out_dim[mat], 0, 0, 0}},
                                     {"column_scale", TENON_F32, 1, {s.in_dim, 0, 0, 0}}};
    sdk::need_tensors(s.matrix[mat], expected);
    return kOwnTensors;
  }

 private:
  static constexpr tenon_format kOwnTensors = 1U << 20;  // beside the formats of tenon/abi/types.h
  enum { kCodes, kColumnScale, kRowScale };              // in the order of their names

  // Returns mean |x| to the power of -strength for each column, around 1; all are 1 without an observation.
  std::vector<float> columns_of(size_t k, const double* sums) const {
    std::vector<float> scale(k, 1.0F);
    if (sums == nullptr || sums[k] == 0) return scale;
    double log_mean = 0;
    for (size_t i = 0; i < k; ++i) log_mean += std::log(std::max(sums[i] / sums[k], 1e-6)) / static_cast<double>(k);
    for (size_t i = 0; i < k; ++i) {
      scale[i] = static_cast<float>(std::exp(strength_ * (log_mean - std::log(std::max(sums[i] / sums[k], 1e-6)))));
    }
    return scale;
  }

  double strength_;
};

}  // namespace

TENON_PLUGIN(Seen);
