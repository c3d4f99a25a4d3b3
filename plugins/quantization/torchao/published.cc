// torchao's tensors in safetensors have a matrix of N rows and K columns so, G groups a row:
//   Int8Tensor                _weight_qdata i8 (N, K), _weight_scale (N, 1), and _weight_zero_point i8 (N, 1), all 0
//   IntxUnpackedToInt8Tensor  _weight_qdata i8 (N, K), _weight_scale (N, G), _weight_zero_point i8 (N, G)
//   Int4Tensor                _weight_qdata i8 (N, K / 2), _weight_scale (G, N), _weight_zero_point (G, N), both floats
// A weight of the first two stands for scale * (q - zero point), and of the third for scale * q + zero point, where a
// byte has q of two columns, from -8 to 7, the first in the lower half. config.json says which: quant_type's type, and
// the bits of the second.
#include "../published/description.h"
#include "../published/grouped.h"
#include "../published/paired.h"
#include "../published/plain_lists.h"
#include "schema.h"

namespace tenon::torchao {
namespace {

using published::Description;

struct Form {
  int64_t bits = 8;     // numbers are held in so many
  bool packed = false;  // Int4Tensor
};

Form form_of(const Description& d) {
  (void)d.need("quant_method", {"torchao"});
  const std::string of = "quant_type.default.", data = of + "_data.";
  const std::string type =
      d.need(of + "_type", {"Int8WeightOnlyConfig", "IntxWeightOnlyConfig", "Int4WeightOnlyConfig"});
  Form form;
  if (type == "IntxWeightOnlyConfig") {
    const std::string bits =
        d.need(data + "weight_dtype._data", {"int1", "int2", "int3", "int4", "int5", "int6", "int7", "int8"});
    if (bits <= "int4") form.bits = 4;
    d.only(data + "intx_packing_format._data", {"UNPACKED_TO_INT8"});
  } else if (type == "Int4WeightOnlyConfig") {
    form = {.bits = 4, .packed = true};
    d.only(data + "int4_packing_format._data", {"PLAIN"});
  }
  // These say how the numbers were found, in which groups (the scales' shape says that), and which matrices have some.
  const std::string algorithm = data + "intx_choose_qparams_algorithm", granularity = data + "granularity",
                    group = data + "group_size", inductor = data + "set_inductor_config",
                    mapping = data + "mapping_type", dtype = data + "weight_dtype", scale = data + "scale_dtype",
                    packing = data + "intx_packing_format", version = of + "_version",
                    packing4 = data + "int4_packing_format", algorithm4 = data + "int4_choose_qparams_algorithm",
                    tile4 = data + "int4_tile_packed_ntile";
  const std::string_view harmless[] = {"include_input_output_embeddings",
                                       "modules_to_not_convert",
                                       "quant_type_kwargs",
                                       "untie_embedding_weights",
                                       algorithm,
                                       granularity,
                                       group,
                                       inductor,
                                       mapping,
                                       dtype,
                                       scale,
                                       packing,
                                       packing4,
                                       algorithm4,
                                       tile4,
                                       version};
  d.need_all_read(harmless);
  return form;
}

constexpr const char *kCodes = "_weight_qdata", *kScale = "_weight_scale", *kZero = "_weight_zero_point";

// Returns the groups of a row, which the shape of the scales tells: (N, G), or (G, N) by group.
int64_t groups_of(const tenon_linear& s, uint32_t mat, bool by_group) {
  const tenon_matrix& m = s.matrix[mat];
  const int64_t n = s.out_dim[mat], k = s.in_dim;
  const tenon_stored* scale = sdk::find_tensor(m, kScale);
  const int64_t found = scale != nullptr && scale->rank == 2 ? scale->dim[by_group ? 0 : 1] : 0;
  const int64_t groups = std::max<int64_t>(found, 1);
  published::need_floats(m, {kScale, TENON_BF16, 2, {by_group ? groups : n, by_group ? n : groups, 0, 0}});
  if (k % groups == 0) return groups;
  throw sdk::Refused("tensor " + sdk::full_name(m, kScale) + " has " + std::to_string(groups) +
                     " scales for a row of " + std::to_string(k) + " weights; expected a divisor of that");
}

void need_tensors(const tenon_linear& s, uint32_t mat, int64_t groups) {
  const tenon_matrix& m = s.matrix[mat];
  const int64_t n = s.out_dim[mat];
  published::need_tensor(m, {kCodes, TENON_I8, 2, {n, s.in_dim, 0, 0}});
  published::need_tensor(m, {kZero, TENON_I8, 2, {n, groups, 0, 0}});
  published::need_no_others(m, {kCodes, kScale, kZero});
}

// This form has scales in 16 bits.
class GroupMatrix final : public published::GroupedMatrix {
 public:
  GroupMatrix(const tenon_linear& s, uint32_t mat, int64_t bits, int64_t groups)
      : GroupedMatrix(s, mat, bits, s.in_dim / groups) {
    const tenon_matrix& m = s.matrix[mat];
    need_tensors(s, mat, groups);
    choose_coding(Schema::kCodings, m, kScale);
    codes_ = published::index_of(m, kCodes);
    zeros_ = published::index_of(m, kZero);
  }

 protected:
  void take_codes(const tenon_rows& src, uint64_t row, uint32_t count, uint8_t* codes) const override {
    const auto* q = static_cast<const uint8_t*>(src.tensor[codes_].data) + row * columns_;
    const uint32_t half = 1U << (bits_ - 1);
    for (uint32_t r = 0; r < count; ++r, q += columns_, codes += pitch()) {
      uint8_t all = 0;
      for (uint32_t i = 0; i < columns_; ++i) {
        codes[i] = static_cast<uint8_t>(q[i] + half);
        all |= codes[i];
      }
      if (all >> bits_ == 0) continue;
      for (uint32_t i = 0; i < columns_; ++i) (void)held(static_cast<int8_t>(q[i]), kCodes);  // throws for the first
    }
  }
  uint64_t scale_at(uint64_t row, uint64_t group) const override { return row * groups_ + group; }
  uint8_t zero_of(const tenon_rows& src, uint64_t row, uint64_t group) const override {
    return held(published::value_at<int8_t>(src.tensor[zeros_], scale_at(row, group)), kZero);
  }

 private:
  // Returns a signed number as the coding has it, from 0 on.
  uint8_t held(int8_t number, const char* tensor) const {
    const int32_t code = number + (1 << (bits_ - 1));
    if (code >= 0 && code >> bits_ == 0) return static_cast<uint8_t>(code);
    throw sdk::Failed("tensor " + full_name(tensor) + " has " + std::to_string(number) + ", which is no number of " +
                      std::to_string(bits_) + " bits");
  }

  uint32_t codes_ = 0, zeros_ = 0;
};

// This form has a scale a row, in f32.
class RowMatrix final : public published::Matrix {
 public:
  RowMatrix(const tenon_linear& s, uint32_t mat) : Matrix(s, mat) {
    const tenon_matrix& m = s.matrix[mat];
    published::need_tensor(m, {kScale, TENON_F32, 2, {s.out_dim[mat], 1, 0, 0}});
    need_tensors(s, mat, 1);
    codes_ = published::index_of(m, kCodes);
    scales_ = published::index_of(m, kScale);
    zeros_ = published::index_of(m, kZero);
    coding_ = kRows;
  }
  void take_rows(const tenon_rows& src, const Put& put) override {
    const published::Floats scales(src.tensor[scales_], TENON_F32, full_name(kScale));
    const auto* q = static_cast<const uint8_t*>(src.tensor[codes_].data);
    std::vector<uint8_t> codes(columns_);
    for (uint64_t row = 0; row < rows_; ++row, q += columns_) {
      const auto zero = published::value_at<int8_t>(src.tensor[zeros_], row);
      if (zero != 0) {
        throw sdk::Failed("tensor " + full_name(kZero) + ": number " + std::to_string(row) + " is " +
                          std::to_string(zero) + "; with scales in f32 expected 0");
      }
      for (uint32_t i = 0; i < columns_; ++i) codes[i] = static_cast<uint8_t>(q[i] ^ 128U);
      const float scale = scales[row];
      put(row, {codes.data(), &scale});
    }
  }

 private:
  uint32_t codes_ = 0, scales_ = 0, zeros_ = 0;
};

// This form has two numbers a byte, and floats for zero points.
class PackedMatrix final : public published::PairedMatrix {
 public:
  PackedMatrix(const tenon_linear& s, uint32_t mat, int64_t groups) : PairedMatrix(s, mat) {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t n = s.out_dim[mat], group = s.in_dim / groups;
    if (group % kLeastGroup != 0) {
      throw sdk::Refused("matrix \"" + name_ + "\": groups of " + std::to_string(group) +
                         " weights; expected whole multiples of 32");
    }
    published::need_tensor(m, {kCodes, TENON_I8, 2, {n, s.in_dim / 2, 0, 0}});
    scale_format_ = published::need_floats(m, {kScale, TENON_BF16, 2, {groups, n, 0, 0}}).format;
    zero_format_ = published::need_floats(m, {kZero, TENON_BF16, 2, {groups, n, 0, 0}}).format;
    published::need_no_others(m, {kCodes, kScale, kZero});
    codes_ = published::index_of(m, kCodes);
    scales_ = published::index_of(m, kScale);
    zeros_ = published::index_of(m, kZero);
    choose_coding(Schema::kCodings, 4, static_cast<uint32_t>(group));
  }

 protected:
  void take_codes(const tenon_rows& src, uint64_t row, uint8_t* codes) const override {
    const auto* q = static_cast<const uint8_t*>(src.tensor[codes_].data) + row * columns_ / 2;
    published::unpack_codes(4, q, columns_, codes);
    for (uint32_t i = 0; i < columns_; ++i) codes[i] ^= 8U;
  }
  Numbers numbers_of(const tenon_rows& src) const override {
    return {{src.tensor[scales_], scale_format_, full_name(kScale)},
            {src.tensor[zeros_], zero_format_, full_name(kZero)}};
  }
  // A code is 8 more than its number.
  Pair pair_of(const Numbers& numbers, uint64_t row, uint64_t group) const override {
    const uint64_t of_file = group * rows_ + row;
    const float scale = numbers.scales[of_file], offset = numbers.zeros[of_file] - 8 * scale;
    if (std::isfinite(offset)) return {scale, offset};
    throw sdk::Failed("tensor " + full_name(kZero) + ": number " + std::to_string(of_file) +
                      " less 8 times its scale is beyond f32");
  }

 private:
  uint32_t codes_ = 0, scales_ = 0, zeros_ = 0;
  tenon_format scale_format_ = TENON_BF16, zero_format_ = TENON_BF16;
};

}  // namespace

std::unique_ptr<published::Matrix> Schema::published(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  if (sdk::find_tensor(m, kCodes) == nullptr) {
    published::refuse_form(m, "_weight_qdata, _weight_scale and _weight_zero_point of torchao");
  }
  const Form form = form_of(Description(s.description));
  const int64_t groups = groups_of(s, mat, form.packed);
  published::need_unlisted(s, mat);
  if (form.packed) return std::make_unique<PackedMatrix>(s, mat, groups);
  if (sdk::find_tensor(m, kScale)->format == TENON_F32) return std::make_unique<RowMatrix>(s, mat);
  return std::make_unique<GroupMatrix>(s, mat, form.bits, groups);
}

}  // namespace tenon::torchao
