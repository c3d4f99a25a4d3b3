// This reads the checkpoints of fp8 that others publish. config.json says which: quant_method "fp8" (transformers and
// DeepSeek's own layout) or "compressed-tensors" with the format float-quantized.
//
// A matrix X of N rows and K columns has X.weight in e4m3 (N, K) and X.weight_scale or X.weight_scale_inv, by which
// codes are to be multiplied: one number, one a row, or one for each block of rows and columns. With static activations
// it has one number more, X.input_scale or X.activation_scale, by which x is rounded. With dynamic ones a step finds a
// scale for each row of x, or for each group of a row's columns: of blocks their columns.
//
// Invariants: every key of config.json is either read or known to be harmless, and every tensor of the matrix is
// used; anything else throws Refused with the key or tensor, what was found and what would be right. Blocks are
// whole multiples of kBlock columns wide. A NaN among the codes, a scale below 0 and a scale of x that is not
// above 0 throw Failed when they are loaded.
#include "published.h"

#include <algorithm>
#include <optional>

#include "../published/compressed_tensors.h"
#include "../published/description.h"
#include "../published/matrix.h"
#include "../published/plain_lists.h"

namespace tenon::fp8 {
namespace {

using published::Description;

const std::string &kX = published::kCompressedX, kEntriesOfX = kX + ".";

// config.json says this; of blocks their sizes, else 0.
struct Form {
  int64_t block_rows = 0, block_columns = 0;
  Rounding x;
  bool blocks() const { return block_rows != 0; }
};

// Blocks have a scale of x for each of their columns' groups, which scale_fmt "ue8m0" makes a power of two; else each
// row has one.
Rounding dynamic_rounding(const Description& d, int64_t block_columns) {
  d.only("scale_fmt", {"float", "ue8m0"});
  if (block_columns > 0)
    return {Activations::kBlock, static_cast<uint32_t>(block_columns), d.text("scale_fmt") == "ue8m0"};
  d.only("scale_fmt", {"float"});
  return {Activations::kToken};
}

// d is of compressed-tensors, and says nothing of x that is not done here; else this throws Refused with the key.
Rounding compressed_rounding(const Description& d) {
  if (!d.object(kX)) return {};
  (void)d.need(kEntriesOfX + "num_bits", {int64_t{8}});
  (void)d.need(kEntriesOfX + "type", {"float"});
  d.only_boolean(kEntriesOfX + "symmetric", true);
  if (!d.boolean(kEntriesOfX + "dynamic", false)) {
    d.only(kEntriesOfX + "strategy", {"tensor"});
    return {Activations::kStatic};
  }
  d.only_missing(kEntriesOfX + "scale_dtype");
  if (d.need(kEntriesOfX + "strategy", {"token", "group"}) == "token") return {Activations::kToken};
  const int64_t group = d.integer(kEntriesOfX + "group_size", 0);
  if (group <= 0 || group > INT32_MAX) d.wrong(kEntriesOfX + "group_size", "a positive number with the strategy group");
  return {Activations::kBlock, static_cast<uint32_t>(group)};
}

// Returns nothing if the checkpoint is of another kind.
std::optional<Form> form_of(const Description& d) {
  const std::string method = d.has("quant_method") ? d.text("quant_method") : "";
  Form form;
  if (method == "fp8") {
    d.only("fmt", {"e4m3"});
    d.only("activation_scheme", {"dynamic", "static"});
    d.only_missing("kv_cache_scheme");
    if (d.list("weight_block_size")) {
      form = {d.integer("weight_block_size.0", 0), d.integer("weight_block_size.1", 0), {}};
    }
    const bool static_x = d.text("activation_scheme", "dynamic") == "static";
    form.x = static_x ? Rounding{Activations::kStatic} : dynamic_rounding(d, form.block_columns);
    constexpr std::string_view kHarmless[] = {"dequantize", "ignored_layers", "modules_to_not_convert", "scale_fmt"};
    d.need_all_read(kHarmless);
  } else if (published::compressed_format(d) == "float-quantized") {
    (void)d.need(published::kCompressedWeights + "num_bits", {int64_t{8}});
    (void)d.need(published::kCompressedWeights + "type", {"float"});
    d.only_boolean(published::kCompressedWeights + "symmetric", true);
    (void)d.need(published::kCompressedWeights + "strategy", {"tensor", "channel", "block"});
    const published::CompressedWeights w = compressed_weights(d, true);
    form = {w.block_rows, w.block_columns, {}};
  } else {
    return {};
  }
  const bool fits = form.block_rows > 0 && form.block_columns > 0 && form.block_columns % PublishedSchema::kBlock == 0;
  if (form.block_rows == 0 && form.block_columns == 0) return form;
  if (fits) return form;
  throw sdk::Refused("config.json: quantization_config has blocks of " + std::to_string(form.block_rows) + " x " +
                     std::to_string(form.block_columns) + " weights; expected widths in whole multiples of " +
                     std::to_string(PublishedSchema::kBlock));
}

constexpr const char* kOneNumber = "one number in f32, f16 or bf16";

// Returns the name that the scale of x has, or would have: transformers' own, or that of the others.
const char* x_scale_name(const tenon_matrix& m) {
  return sdk::find_tensor(m, "activation_scale") != nullptr ? "activation_scale" : "input_scale";
}

// Says whether a matrix is stored in a form; config.json may say of matrices beside it that they are.
bool is_stored(const tenon_matrix& m) {
  const tenon_stored* weight = sdk::find_tensor(m, "weight");
  return weight != nullptr && (m.n_tensors > 1 || weight->format == TENON_F8E4M3);
}

enum class Scales { kMatrix, kRow, kBlock };

// Scales may have these shapes, the usual one first.
struct ScaleShape {
  Scales of;
  uint32_t rank;
  int64_t dim[2];
};

class Fp8Matrix final : public PublishedMatrix {
 public:
  Fp8Matrix(const tenon_linear& s, uint32_t mat, const Form& form) : PublishedMatrix(s, mat), form_(form) {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t n = s.out_dim[mat], k = s.in_dim;
    published::need_tensor(m, {"weight", TENON_F8E4M3, 2, {n, k, 0, 0}});
    scale_name_ = sdk::find_tensor(m, "weight_scale_inv") != nullptr ? "weight_scale_inv" : "weight_scale";
    const tenon_stored& scale = find_scale(m, n, k);
    scale_format_ = scale.format;
    coding_ = scales_ == Scales::kBlock ? 1 : 0;
    x_name_ = x_scale_name(m);
    if (const tenon_stored* x = sdk::find_tensor(m, x_name_)) {
      x_scale_at_ = published::index_of(m, x_name_);
      x_format_ = x->format;
      if (!published::Floats::reads(x_format_) || sdk::stored_bytes(*x) != tenon_format_block(x_format_).bytes) {
        throw sdk::Refused("tensor " + sdk::full_name(m, x_name_) + " is " + sdk::type_and_shape(*x) + "; expected " +
                           kOneNumber);
      }
    }
    published::need_no_others(m, {"weight", scale_name_, x_name_});
    weight_ = published::index_of(m, "weight");
    scale_ = published::index_of(m, scale_name_);
  }

  void take_rows(const tenon_rows& src, const Put& put) override {
    const published::Floats scales(src.tensor[scale_], scale_format_, full_name(scale_name_),
                                   published::Floats::Sign::kNotNegative);
    if (x_format_ != TENON_FORMAT_NONE) {
      const auto sign = published::Floats::Sign::kPositive;
      x_scale_ = published::Floats(src.tensor[x_scale_at_], x_format_, full_name(x_name_), sign)[0];
    }
    const auto* code = static_cast<const uint8_t*>(src.tensor[weight_].data);
    std::vector<float> scale(
        scales_ == Scales::kBlock ? (columns_ + PublishedSchema::kBlock - 1) / PublishedSchema::kBlock : 1);
    for (uint64_t row = 0; row < rows_; ++row, code += columns_) {
      if (std::any_of(code, code + columns_, &sdk::SmallFloat<4, 3>::is_nan)) {
        throw sdk::Failed("tensor " + full_name("weight") + ": a weight of row " + std::to_string(row) + " is NaN");
      }
      for (size_t g = 0; g < scale.size(); ++g) scale[g] = scales[scale_at(row, g)];
      put(row, {code, scale.data()});
    }
  }

 private:
  // Finds which numbers the scales are of. Throws Refused for a shape that is none of theirs.
  const tenon_stored& find_scale(const tenon_matrix& m, int64_t n, int64_t k) {
    if (form_.blocks()) {
      scales_ = Scales::kBlock;
      const int64_t rows = (n + form_.block_rows - 1) / form_.block_rows;
      blocks_a_row_ = static_cast<uint64_t>((k + form_.block_columns - 1) / form_.block_columns);
      return published::need_floats(m, {scale_name_, TENON_F32, 2, {rows, static_cast<int64_t>(blocks_a_row_), 0, 0}});
    }
    const ScaleShape shapes[] = {{Scales::kRow, 2, {n, 1}},
                                 {Scales::kRow, 1, {n, 0}},
                                 {Scales::kMatrix, 0, {0, 0}},
                                 {Scales::kMatrix, 1, {1, 0}},
                                 {Scales::kMatrix, 2, {1, 1}}};
    const tenon_stored* found = sdk::find_tensor(m, scale_name_);
    for (const ScaleShape& shape : shapes) {
      if (found == nullptr || found->rank != shape.rank || !published::Floats::reads(found->format) ||
          !std::equal(shape.dim, shape.dim + shape.rank, found->dim)) {
        continue;
      }
      scales_ = shape.of;
      return *found;
    }
    return published::need_floats(m, {scale_name_, TENON_F32, 2, {n, 1, 0, 0}});
  }

  uint64_t scale_at(uint64_t row, uint64_t group) const {
    if (scales_ == Scales::kMatrix) return 0;
    if (scales_ == Scales::kRow) return row;
    const auto rows = static_cast<uint64_t>(form_.block_rows), columns = static_cast<uint64_t>(form_.block_columns);
    return row / rows * blocks_a_row_ + group * PublishedSchema::kBlock / columns;
  }

  Form form_;
  Scales scales_ = Scales::kRow;
  const char *scale_name_, *x_name_;
  tenon_format scale_format_, x_format_ = TENON_FORMAT_NONE;
  uint32_t weight_ = 0, scale_ = 0, x_scale_at_ = 0;
  uint64_t blocks_a_row_ = 0;
};

}  // namespace

std::unique_ptr<published::Matrix> PublishedSchema::published(const tenon_linear& s, uint32_t mat) {
  const Description d(s.description);
  const std::optional<Form> form = form_of(d);
  if (!form || !is_stored(s.matrix[mat])) return nullptr;
  published::need_unlisted(s, mat);
  return std::make_unique<Fp8Matrix>(s, mat, *form);
}

std::vector<std::string> PublishedSchema::x_scales(const tenon_linear& s) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < std::max(s.experts, 1U) * s.n_mats; ++i) {
    const tenon_matrix& m = s.matrix[i];
    if (sdk::find_tensor(m, x_scale_name(m)) != nullptr) names.push_back(sdk::full_name(m, x_scale_name(m)));
  }
  return names;
}

Rounding PublishedSchema::rounding(const tenon_linear& s, std::string_view wish) {
  if (s.product_wanted == 0 || wish == "f32") return {};
  if (wish == "token") return {Activations::kToken};
  const Description d(s.description);
  const std::optional<Form> form = form_of(d);
  if (wish == "block") {
    if (form && form->x.by == Activations::kBlock) return form->x;
    return {Activations::kBlock, form && form->blocks() ? static_cast<uint32_t>(form->block_columns) : kBlock};
  }
  uint32_t n = 0;
  for (uint32_t i = 0; i < s.n_mats; ++i) n += form && is_stored(s.matrix[i]) ? 1 : 0;
  Rounding x = form && n > 0 ? form->x : Rounding{};
  if (form && n > 0 && published::compressed_format(d) == "float-quantized") x = compressed_rounding(d);
  if (wish == "static") {
    x = {Activations::kStatic};
    n = s.n_mats;
  }
  if (x.by == Activations::kF32) return x;
  if (n < s.n_mats) throw sdk::Refused("matrices side by side of which only some round x");
  for (uint32_t i = 0; x.by == Activations::kStatic && i < s.n_mats; ++i) {
    const tenon_matrix& m = s.matrix[i];
    if (sdk::find_tensor(m, x_scale_name(m)) != nullptr) continue;
    throw sdk::Refused("tensor " + sdk::full_name(m, x_scale_name(m)) + " is missing; expected " + kOneNumber +
                       ", by which x is rounded; activations = \"f32\" or \"token\" needs none");
  }
  return x;
}

}  // namespace tenon::fp8
