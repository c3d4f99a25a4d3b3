// AWQ's form for gemm has a matrix of N rows and K columns in G groups:
//   qweight i32 (K, N / 8)    codes of 4 bits; a word has those of 8 rows, the first in bits 0 to 3, then from bits 16,
//                             4, 20, 8, 24, 12 and 28 on
//   qzeros  i32 (G, N / 8)    zero points, packed alike
//   scales  f16 (G, N)
// Weight (n, k) stands for scales[g][n] * (code - zero), g = k / group_size.
#include "../published/description.h"
#include "../published/grouped.h"
#include "../published/plain_lists.h"
#include "../published/quantizer_keys.h"
#include "schema.h"

namespace tenon::awq {
namespace {

using published::Description;

int64_t group_of(const Description& d) {
  (void)d.need("quant_method", {"awq"});
  (void)d.need(d.has("bits") ? "bits" : "w_bit", {4});
  bool packing = false;
  for (const char* key : {"version", "format", "checkpoint_format"}) {
    d.only(key, {"gemm", "GEMM"});
    packing = packing || d.has(key);
  }
  if (!packing) d.wrong("version", "\"gemm\"");
  d.only("method", {"awq"});
  d.only("pack_dtype", {"int32"});
  d.only_boolean("desc_act", false);
  // Zero points are stored whatever these say.
  for (const char* key : {"zero_point", "sym", "lm_head", "true_sequential"}) (void)d.boolean(key, true);
  const int64_t group = d.need_group(d.has("group_size") ? "group_size" : "q_group_size");
  d.need_all_read(published::kQuantizerKeys);
  return group;
}

class AwqMatrix final : public published::GroupedMatrix {
 public:
  AwqMatrix(const tenon_linear& s, uint32_t mat, int64_t group) : GroupedMatrix(s, mat, kBits, group) {
    const tenon_matrix& m = s.matrix[mat];
    const int64_t n = s.out_dim[mat], groups = static_cast<int64_t>(groups_);
    if (n % kRowsAWord != 0) {
      throw sdk::Refused("matrix \"" + name_ + "\": " + std::to_string(n) + " rows; expected a multiple of 8");
    }
    published::need_tensor(m, {"qweight", TENON_I32, 2, {s.in_dim, n / kRowsAWord, 0, 0}});
    published::need_tensor(m, {"qzeros", TENON_I32, 2, {groups, n / kRowsAWord, 0, 0}});
    published::need_tensor(m, {"scales", TENON_F16, 2, {groups, n, 0, 0}});
    published::need_no_others(m, {"qweight", "qzeros", "scales"});
    choose_coding(Schema::kCodings, m, "scales");
    weights_ = published::index_of(m, "qweight");
    zeros_ = published::index_of(m, "qzeros");
  }

 protected:
  // A few columns of the tile are gathered first, since they lie far from each other in memory. The words that eight
  // columns have of the same eight rows make a square of codes, which is transposed.
  void take_codes(const tenon_rows& src, uint64_t row, uint32_t count, uint8_t* codes) const override {
    constexpr uint32_t kColumns = 64;
    const auto* words = static_cast<const uint8_t*>(src.tensor[weights_].data) + row / kRowsAWord * sizeof(uint32_t);
    const uint32_t n = count / kRowsAWord;
    uint32_t tile[kColumns][kMostWords] = {};
    for (uint32_t begin = 0; begin < columns_; begin += kColumns) {
      const uint32_t some = std::min(kColumns, columns_ - begin);
      for (uint32_t i = 0; i < some; ++i, words += rows_ / kRowsAWord * sizeof(uint32_t)) {
        std::memcpy(tile[i], words, n * sizeof(uint32_t));
      }
      for (uint32_t w = 0; w < n; ++w) {
        for (uint32_t i = 0; i < some; i += 8) unpack_square(&tile[i][w], codes + w * kRowsAWord * pitch() + begin + i);
      }
    }
  }
  uint64_t scale_at(uint64_t row, uint64_t group) const override { return group * rows_ + row; }
  uint8_t zero_of(const tenon_rows& src, uint64_t row, uint64_t group) const override {
    return code(src.tensor[zeros_], group, row);
  }

 private:
  static constexpr uint32_t kMostWords = kTile / kRowsAWord;  // a column of a tile has so many

  // Unpacks a word of each of eight columns, kMostWords apart, into eight codes of each of its rows.
  void unpack_square(const uint32_t* words, uint8_t* codes) const {
    uint64_t square[8];
    for (uint32_t c = 0; c < 8; ++c) square[c] = published::spread<kBits>(words[c * kMostWords]);
    published::transpose(square);
    const size_t step = pitch();
    for (uint32_t r = 0; r < kRowsAWord; ++r) {
      std::memcpy(codes + r * step, &square[shift_of(r) / kBits], sizeof(square[0]));
    }
  }

  // `line` is a column, or a group.
  uint8_t code(const tenon_slice& words, uint64_t line, uint64_t row) const {
    const auto word = published::value_at<uint32_t>(words, line * (rows_ / kRowsAWord) + row / kRowsAWord);
    return static_cast<uint8_t>(word >> shift_of(row) & 15U);
  }

  uint32_t weights_ = 0, zeros_ = 0;
};

}  // namespace

std::unique_ptr<published::Matrix> Schema::published(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  if (sdk::find_tensor(m, "qweight") == nullptr) published::refuse_form(m, "qweight, qzeros and scales of AWQ");
  published::need_unlisted(s, mat);
  return std::make_unique<AwqMatrix>(s, mat, group_of(Description(s.description)));
}

}  // namespace tenon::awq
