// compressed-tensors stores a matrix of N rows and K columns of b bits so, G groups a row (1 by channel or tensor):
//   format "pack-quantized":   weight_packed i32 (N, ceil(K b / 32))    2^(b - 1) + q, row after row, lowest bits first
//                              weight_shape i64 (2)                     N, K
//   format "int-quantized":    weight i8 (N, K)      q
//   both:  weight_scale f16 or bf16 (N, G), or (1) for the whole matrix; f32, too, where x is rounded
//          weight_zero_point, unless it is symmetric: i8 (N, G), if packed i32 (ceil(N b / 32), G), packed down the
//                             columns, and i8 (1) for the whole matrix
//          weight_g_idx i32 (K), the group of each column, if activations ordered them
// A weight stands for scale * (q - zero point); zero points and q are signed. The codes that are held are 2^(b - 1)
// larger.
#include "../published/compressed_tensors.h"
#include "../published/description.h"
#include "../published/grouped.h"
#include "../published/plain_lists.h"
#include "rounded.h"
#include "schema.h"

namespace tenon::compressed_tensors {
namespace {

using published::CompressedWeights;
using published::Description;
using published::packed_bits;

const std::string& kX = published::kCompressedX;

struct Form {
  CompressedWeights weights;
  int64_t bits;
};

// Each row of x becomes int8 by a scale that every step finds, and meets rows of int8 with one scale.
void need_rounding(const Description& d) {
  (void)d.need(kX + ".num_bits", {int64_t{8}});
  (void)d.need(kX + ".type", {"int"});
  if (!d.boolean(kX + ".dynamic", false)) {
    d.wrong(kX + ".dynamic", "true: each row of x gets its scale in every step, and none is read from a file");
  }
  (void)d.need(kX + ".strategy", {"token"});
  d.only_boolean(kX + ".symmetric", true);
  (void)d.need(published::kCompressedWeights + "strategy", {"tensor", "channel"});
  d.only_boolean(published::kCompressedWeights + "symmetric", true);
}

Form form_of(const Description& d) {
  (void)d.need("quant_method", {"compressed-tensors"});
  const std::string group = published::kCompressedGroup, weights = published::kCompressedWeights;
  (void)d.need(d.has(group + "format") ? group + "format" : "format", {"pack-quantized", "int-quantized"});
  d.only("format", {"pack-quantized", "int-quantized"});
  (void)d.need(weights + "type", {"int"});
  (void)d.need(weights + "strategy", {"tensor", "channel", "group"});
  const bool packed = published::compressed_format(d) == "pack-quantized";
  const int64_t bits = packed ? d.need(weights + "num_bits", {4, 8}) : d.need(weights + "num_bits", {8});
  if (packed) d.only_missing(kX);
  if (d.object(kX)) need_rounding(d);
  Form form = {compressed_weights(d, false), bits};
  if (form.weights.strategy == "group" && form.weights.group == 0) {
    d.wrong(weights + "group_size", "a positive number with the strategy group");
  }
  if (form.weights.strategy != "group") form.weights.group = 0;
  return form;
}

class CompressedMatrix final : public published::GroupedMatrix {
 public:
  CompressedMatrix(const tenon_linear& s, uint32_t mat, const Form& form)
      : GroupedMatrix(s, mat, form.bits, form.weights.group),
        packed_(form.weights.format == "pack-quantized"),
        symmetric_(form.weights.symmetric),
        one_scale_(form.weights.strategy == "tensor") {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t n = s.out_dim[mat], k = s.in_dim, groups = static_cast<int64_t>(groups_);
    const char* weight = packed_ ? "weight_packed" : "weight";
    row_words_ = (static_cast<uint64_t>(k) * bits_ + 31) / 32;
    if (packed_) {
      published::need_tensor(m, {weight, TENON_I32, 2, {n, static_cast<int64_t>(row_words_), 0, 0}});
      need_shape(m);
    } else {
      published::need_tensor(m, {weight, TENON_I8, 2, {n, k, 0, 0}});
    }
    const tenon_stored one = {"weight_scale", TENON_F16, 1, {1, 0, 0, 0}};
    const tenon_stored by_row = {"weight_scale", TENON_F16, 2, {n, groups, 0, 0}};
    tenon_stored wanted = one_scale_ ? one : by_row;
    const tenon_stored* scale = sdk::find_tensor(m, "weight_scale");
    if (scale != nullptr && scale->format == TENON_BF16) wanted.format = TENON_BF16;
    published::need_tensor(m, wanted);
    choose_coding(Schema::kCodings, m, "weight_scale");
    weights_ = published::index_of(m, weight);
    need_zeros(m, n, groups);
    std::vector<std::string_view> known = {weight, "weight_scale"};
    if (packed_) known.push_back("weight_shape");
    if (!symmetric_) known.push_back("weight_zero_point");
    if (form.weights.by_activations) {
      known.push_back("weight_g_idx");
      published::need_tensor(m, {"weight_g_idx", TENON_I32, 1, {k, 0, 0, 0}});
      set_groups_of_columns(m, "weight_g_idx", true);
    }
    published::need_no_others(m, known);
  }

  void take_rows(const tenon_rows& src, const Put& put) override {
    if (packed_) check_shape(src);
    GroupedMatrix::take_rows(src, put);
  }

 protected:
  void take_codes(const tenon_rows& src, uint64_t row, uint32_t count, uint8_t* codes) const override {
    const uint64_t row_bytes = packed_ ? row_words_ * sizeof(uint32_t) : columns_;
    const auto* q = static_cast<const uint8_t*>(src.tensor[weights_].data) + row * row_bytes;
    for (uint32_t r = 0; r < count; ++r, q += row_bytes, codes += pitch()) {
      if (packed_) {
        published::unpack_codes(static_cast<uint32_t>(bits_), q, columns_, codes);
      } else {
        for (uint32_t i = 0; i < columns_; ++i) codes[i] = static_cast<uint8_t>(q[i] ^ 128U);
      }
    }
  }
  uint64_t scale_at(uint64_t row, uint64_t group) const override { return one_scale_ ? 0 : row * groups_ + group; }
  uint8_t zero_of(const tenon_rows& src, uint64_t row, uint64_t group) const override {
    if (symmetric_) return static_cast<uint8_t>(1U << (bits_ - 1));
    const auto* data = static_cast<const uint8_t*>(src.tensor[zeros_].data);
    if (packed_ && !one_scale_) {
      return static_cast<uint8_t>(packed_bits(data + group * sizeof(uint32_t), groups_, row * bits_, bits_));
    }
    const auto zero = static_cast<int8_t>(data[scale_at(row, group)]);
    const int32_t held = zero + (1 << (bits_ - 1));
    if (held >= 0 && held >> bits_ == 0) return static_cast<uint8_t>(held);
    throw sdk::Failed("tensor " + full_name("weight_zero_point") + " has " + std::to_string(zero) +
                      ", which is no number of " + std::to_string(bits_) + " bits");
  }

 private:
  void need_shape(const tenon_matrix& m) {
    shape_ = published::index_of(m, "weight_shape");
    tenon_stored wanted = {"weight_shape", TENON_I64, 1, {2, 0, 0, 0}};
    if (shape_ < m.n_tensors && m.tensor[shape_].format == TENON_I32) wanted.format = TENON_I32;
    published::need_tensor(m, wanted);
    shape_format_ = wanted.format;
  }
  void check_shape(const tenon_rows& src) const {
    const auto dim = [&](uint32_t i) {
      return shape_format_ == TENON_I32 ? published::value_at<int32_t>(src.tensor[shape_], i)
                                        : published::value_at<int64_t>(src.tensor[shape_], i);
    };
    if (dim(0) == static_cast<int64_t>(rows_) && dim(1) == int64_t{columns_}) return;
    throw sdk::Failed("tensor " + full_name("weight_shape") + " says (" + std::to_string(dim(0)) + ", " +
                      std::to_string(dim(1)) + "); expected (" + std::to_string(rows_) + ", " +
                      std::to_string(columns_) + ")");
  }
  void need_zeros(const tenon_matrix& m, int64_t n, int64_t groups) {
    const bool there = sdk::find_tensor(m, "weight_zero_point") != nullptr;
    if (symmetric_) {
      if (!there) return;
      throw sdk::Refused("tensor " + sdk::full_name(m, "weight_zero_point") +
                         " is there, but config.json says that weights are symmetric");
    }
    if (one_scale_) {
      published::need_tensor(m, {"weight_zero_point", TENON_I8, 1, {1, 0, 0, 0}});
    } else if (packed_) {
      published::need_tensor(m, {"weight_zero_point", TENON_I32, 2, {(n * bits_ + 31) / 32, groups, 0, 0}});
    } else {
      published::need_tensor(m, {"weight_zero_point", TENON_I8, 2, {n, groups, 0, 0}});
    }
    zeros_ = published::index_of(m, "weight_zero_point");
  }

  bool packed_, symmetric_, one_scale_;
  uint64_t row_words_ = 0;
  uint32_t weights_ = 0, zeros_ = 0, shape_ = 0;
  tenon_format shape_format_ = TENON_I64;
};

}  // namespace

bool Choice::rounds_x(const tenon_linear& s) const {
  const Description d(s.description);
  return published::compressed_format(d) == "int-quantized" && d.has(kX);
}

RoundedMatrix::RoundedMatrix(const tenon_linear& s, uint32_t mat)
    : names_(published::names_of(s, mat)), rows_(static_cast<uint64_t>(s.out_dim[mat])) {
  const tenon_matrix& m = s.matrix[mat];
  const tenon_stored* weight = sdk::find_tensor(m, "weight");
  if (weight == nullptr || weight->format != TENON_I8) published::refuse_form(m, "weight i8 of compressed-tensors");
  published::need_unlisted(s, mat);
  one_scale_ = form_of(Description(s.description)).weights.strategy == "tensor";
  published::need_tensor(m, {"weight", TENON_I8, 2, {s.out_dim[mat], s.in_dim, 0, 0}});
  const tenon_stored one = {"weight_scale", TENON_BF16, 1, {1, 0, 0, 0}};
  const tenon_stored by_row = {"weight_scale", TENON_BF16, 2, {s.out_dim[mat], 1, 0, 0}};
  format_ = published::need_floats(m, one_scale_ ? one : by_row).format;
  published::need_no_others(m, {"weight", "weight_scale"});
  int8_rows::need_width(s);
}

std::vector<float> RoundedMatrix::scales(size_t expert, const published::ReadTensor& read) const {
  const published::Floats scales(read(rows::kScale), format_, "\"" + names_[expert] + ".weight_scale\"");
  std::vector<float> of_rows(rows_);
  for (uint64_t row = 0; row < rows_; ++row) of_rows[row] = scales[one_scale_ ? 0 : row];
  return of_rows;
}

std::unique_ptr<published::Matrix> Schema::published(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  const tenon_stored* weight = sdk::find_tensor(m, "weight");
  if (sdk::find_tensor(m, "weight_packed") == nullptr && (weight == nullptr || weight->format != TENON_I8)) {
    published::refuse_form(m, "weight_packed i32 or weight i8 of compressed-tensors");
  }
  published::need_unlisted(s, mat);
  return std::make_unique<CompressedMatrix>(s, mat, form_of(Description(s.description)));
}

}  // namespace tenon::compressed_tensors
