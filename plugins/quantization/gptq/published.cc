// GPTQ's form has a matrix of N rows and K columns in codes of b bits and G groups:
//   qweight i32 (K b / 32, N)    codes, column after column from the lowest bit on
//   qzeros  i32 (G, N b / 32)    zero points, row after row; less 1, unless checkpoint_format is "gptq_v2"
//   scales  f16 (G, N)
//   g_idx   i32 (K)              the group of each column; may be missing
// Weight (n, k) stands for scales[g][n] * (code - zero), g = g_idx[k].
#include "../published/description.h"
#include "../published/grouped.h"
#include "../published/plain_lists.h"
#include "../published/quantizer_keys.h"
#include "schema.h"

namespace tenon::gptq {
namespace {

using published::Description;
using published::packed_bits;

struct Form {
  int64_t bits, group;  // group: it has so many columns; 0: the whole row
  bool by_activations;  // columns of a group stand anywhere
  bool less_one;        // zero points are stored less 1
};

Form form_of(const Description& d) {
  (void)d.need("quant_method", {"gptq"});
  for (const char* key : {"checkpoint_format", "format"}) d.only(key, {"gptq", "gptq_v2"});
  const std::string format = d.text("checkpoint_format", d.text("format", "gptq"));
  if (d.text("format", format) != format) d.wrong("format", '"' + format + "\" as checkpoint_format says");
  d.only_boolean("is_marlin_format", false);
  d.only("pack_dtype", {"int32"});
  d.only("method", {"gptq"});
  for (const char* key : {"lm_head", "sym", "true_sequential", "static_groups"}) (void)d.boolean(key, false);
  const Form form = {d.need("bits", {2, 3, 4, 8}), d.need_group("group_size"), d.boolean("desc_act", false),
                     format == "gptq"};
  d.need_all_read(published::kQuantizerKeys);
  return form;
}

class GptqMatrix final : public published::GroupedMatrix {
 public:
  GptqMatrix(const tenon_linear& s, uint32_t mat, const Form& form)
      : GroupedMatrix(s, mat, form.bits, form.group), less_one_(form.less_one) {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t n = s.out_dim[mat], groups = static_cast<int64_t>(groups_);
    if (n * bits_ % 32 != 0 || s.in_dim * bits_ % 32 != 0) {
      throw sdk::Refused("matrix \"" + name_ + "\": " + std::to_string(n) + " rows of " + std::to_string(s.in_dim) +
                         " weights of " + std::to_string(bits_) + " bits are not whole words of 32 bits");
    }
    published::need_tensor(m, {"qweight", TENON_I32, 2, {s.in_dim * bits_ / 32, n, 0, 0}});
    published::need_tensor(m, {"qzeros", TENON_I32, 2, {groups, n * bits_ / 32, 0, 0}});
    published::need_tensor(m, {"scales", TENON_F16, 2, {groups, n, 0, 0}});
    published::need_no_others(m, {"g_idx", "qweight", "qzeros", "scales"});
    choose_coding(Schema::kCodings, m, "scales");
    weights_ = published::index_of(m, "qweight");
    zeros_ = published::index_of(m, "qzeros");
    if (sdk::find_tensor(m, "g_idx") != nullptr || (form.by_activations && groups > 1)) {
      published::need_tensor(m, {"g_idx", TENON_I32, 1, {s.in_dim, 0, 0, 0}});
      set_groups_of_columns(m, "g_idx", form.by_activations);
    }
  }

 protected:
  // A few words of all rows of the tile are gathered first, since those of a row lie far from each other in memory.
  void take_codes(const tenon_rows& src, uint64_t row, uint32_t count, uint8_t* codes) const override {
    constexpr uint32_t kColumns = 256, kMostWords = kColumns * 8 / 32;
    const auto* words = static_cast<const uint8_t*>(src.tensor[weights_].data) + row * sizeof(uint32_t);
    uint32_t tile[kMostWords * kTile], of_row[kMostWords];  // (words, count), (words)
    for (uint32_t begin = 0; begin < columns_; begin += kColumns) {
      const uint32_t some = std::min(kColumns, columns_ - begin), n = some * bits_ / 32;
      for (uint32_t i = 0; i < n; ++i, words += rows_ * sizeof(uint32_t)) {
        std::memcpy(tile + size_t{i} * count, words, count * sizeof(uint32_t));
      }
      for (uint32_t r = 0; r < count; ++r) {
        for (uint32_t i = 0; i < n; ++i) of_row[i] = tile[size_t{i} * count + r];
        published::unpack_codes(bits_, of_row, some, codes + r * pitch() + begin);
      }
    }
  }
  uint64_t scale_at(uint64_t row, uint64_t group) const override { return group * rows_ + row; }
  uint8_t zero_of(const tenon_rows& src, uint64_t row, uint64_t group) const override {
    const auto* words = static_cast<const uint8_t*>(src.tensor[zeros_].data);
    const uint64_t group_bytes = rows_ * bits_ / 8;
    const uint32_t stored = packed_bits(words + group * group_bytes, 1, row * bits_, bits_);
    const uint32_t zero = stored + (less_one_ ? 1 : 0);
    if (zero >> bits_ == 0) return static_cast<uint8_t>(zero);
    throw sdk::Failed("tensor " + full_name("qzeros") + ": the zero point of row " + std::to_string(row) + ", group " +
                      std::to_string(group) + " is stored as " + std::to_string(stored) +
                      ", and 1 more is no code of " + std::to_string(bits_) +
                      " bits; readers of that form disagree on what it means");
  }

 private:
  bool less_one_;
  uint32_t weights_ = 0, zeros_ = 0;
};

}  // namespace

std::unique_ptr<published::Matrix> Schema::published(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  if (sdk::find_tensor(m, "qweight") == nullptr) published::refuse_form(m, "qweight, qzeros, scales and g_idx of GPTQ");
  published::need_unlisted(s, mat);
  return std::make_unique<GptqMatrix>(s, mat, form_of(Description(s.description)));
}

}  // namespace tenon::gptq
