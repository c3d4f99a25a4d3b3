// These are matrices of integers in groups along the row, each with a scale and a zero point: a weight stands for
// scale * (code - zero). GPTQ, AWQ and compressed-tensors differ in where the numbers lie; the base class does the
// rest.
#pragma once

#include <numeric>
#include <span>

#include "grouped_codings.h"
#include "matrix.h"

namespace tenon::published {

// Returns n bits from bit `at` on of little-endian words that stand `stride` words apart.
inline uint32_t packed_bits(const uint8_t* words, uint64_t stride, uint64_t at, uint32_t n) {
  const auto word = [&](uint64_t i) {
    uint32_t w;
    std::memcpy(&w, words + i * stride * sizeof(w), sizeof(w));
    return w;
  };
  const uint64_t first = at / 32;
  const auto shift = static_cast<uint32_t>(at % 32);
  uint64_t bits = word(first);
  if (shift + n > 32) bits |= uint64_t{word(first + 1)} << 32;
  return static_cast<uint32_t>(bits >> shift) & ((1U << n) - 1);
}

class GroupedMatrix : public Matrix {
 public:
  void take_rows(const tenon_rows& src, const Put& put) override {
    place_columns(src);
    const Floats scales(src.tensor[scale_tensor_], scale_format_, full_name(scale_name_));
    const auto n = static_cast<uint32_t>((columns_ + held_group_ - 1) / held_group_);
    const auto held_of_file = static_cast<uint32_t>((group_ + held_group_ - 1) / held_group_);
    std::vector<uint8_t> codes(size_t{kTile} * pitch()), ordered(permuted_ ? columns_ : 0), zero(n);
    std::vector<float> scale(n);
    for (uint64_t first = 0; first < rows_; first += kTile) {
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(kTile, rows_ - first));
      take_codes(src, first, count, codes.data());
      for (uint32_t r = 0; r < count; ++r) {
        const uint64_t row = first + r;
        for (uint32_t g = 0, of_file = 0; g < n; g += held_of_file, ++of_file) {
          const uint32_t some = std::min(held_of_file, n - g);
          std::fill_n(scale.data() + g, some, scales[scale_at(row, of_file)]);
          std::fill_n(zero.data() + g, some, zero_of(src, row, of_file));
        }
        const uint8_t* code = codes.data() + size_t{r} * pitch();
        if (permuted_) code = put_in_order(code, ordered);
        put(row, {code, scale.data(), zero.data()});
      }
    }
  }

 protected:
  // Rows are taken so many at a time: where a tensor goes column by column, they lie side by side in memory.
  static constexpr uint32_t kTile = 64;

  // `group` is the file's; at most 0: the whole row.
  GroupedMatrix(const tenon_linear& s, uint32_t mat, int64_t bits, int64_t group)
      : Matrix(s, mat),
        bits_(static_cast<uint32_t>(bits)),
        group_(static_cast<uint64_t>(group > 0 ? std::min(group, s.in_dim) : s.in_dim)),
        groups_((columns_ + group_ - 1) / group_) {}

  // Chooses the coding that holds the matrix. scale: the scales' tensor, in f16 or bf16.
  void choose_coding(std::span<const coded::Coding> codings, const tenon_matrix& m, const char* scale) {
    scale_name_ = scale;
    scale_tensor_ = index_of(m, scale);
    scale_format_ = m.tensor[scale_tensor_].format;
    const auto scaling = scale_format_ == TENON_F16 ? coded::Scaling::kHalfZeroPoint : coded::Scaling::kZeroPoint;
    for (uint32_t i = 0; i < codings.size(); ++i) {
      const coded::Coding& c = codings[i];
      // One group of a row may end anywhere.
      const bool whole = groups_ == 1 || group_ % c.group == 0;
      if (c.bits != bits_ || c.scaling != scaling || !whole || (held_group_ != 0 && c.group <= held_group_)) continue;
      coding_ = i;
      held_group_ = c.group;
    }
    if (held_group_ != 0) return;
    throw sdk::Refused("matrix \"" + name_ + "\": groups of " + std::to_string(group_) +
                       " weights; expected whole multiples of 32, or one group a row");
  }
  // Reads g_idx, the group of each column, from this tensor.
  void set_groups_of_columns(const tenon_matrix& m, const char* name, bool may_be_permuted) {
    group_name_ = name;
    group_tensor_ = index_of(m, name);
    permuted_ = may_be_permuted && groups_ > 1;
  }

  // A row of codes begins so many bytes after the one before: the columns, and up to seven bytes of any value.
  size_t pitch() const { return (size_t{columns_} + 7) / 8 * 8; }
  // Fills codes (count, pitch), `count` rows from `row` on, with columns in the file's order.
  virtual void take_codes(const tenon_rows& src, uint64_t row, uint32_t count, uint8_t* codes) const = 0;
  virtual uint64_t scale_at(uint64_t row, uint64_t group) const = 0;
  virtual uint8_t zero_of(const tenon_rows& src, uint64_t row, uint64_t group) const = 0;

  uint32_t bits_;
  uint64_t group_, groups_;

 private:
  // Finds the order of columns in which those of a group stand side by side, in their order.
  void place_columns(const tenon_rows& src) {
    permutation_.resize(columns_);
    std::iota(permutation_.begin(), permutation_.end(), 0U);
    if (group_name_ == nullptr) return;
    const tenon_slice& indices = src.tensor[group_tensor_];
    const auto where = [&](uint32_t i) { return "tensor " + full_name(group_name_) + ": column " + std::to_string(i); };
    std::vector<uint32_t> group(columns_);
    for (uint32_t i = 0; i < columns_; ++i) {
      const auto g = value_at<int32_t>(indices, i);
      if (g < 0 || static_cast<uint64_t>(g) >= groups_) {
        throw sdk::Failed(where(i) + " is of group " + std::to_string(g) + "; there are " + std::to_string(groups_));
      }
      group[i] = static_cast<uint32_t>(g);
      if (!permuted_ && group[i] != i / group_) {
        throw sdk::Failed(where(i) + " is of group " + std::to_string(g) + "; expected " + std::to_string(i / group_) +
                          ", as config.json does not say that columns are in another order");
      }
    }
    std::stable_sort(permutation_.begin(), permutation_.end(),
                     [&](uint32_t a, uint32_t b) { return group[a] < group[b]; });
    for (uint32_t i = 0; i < columns_; ++i) {
      if (group[permutation_[i]] == i / group_) continue;
      throw sdk::Failed("tensor " + full_name(group_name_) + ": group " + std::to_string(i / group_) +
                        " has other than " +
                        std::to_string(std::min<uint64_t>(group_, columns_ - i / group_ * group_)) + " columns");
    }
  }

  // Returns a row of codes with those of a group side by side, in `ordered`.
  const uint8_t* put_in_order(const uint8_t* codes, std::vector<uint8_t>& ordered) const {
    std::transform(permutation_.begin(), permutation_.end(), ordered.begin(), [&](uint32_t i) { return codes[i]; });
    return ordered.data();
  }

  uint32_t held_group_ = 0;
  const char *scale_name_ = nullptr, *group_name_ = nullptr;  // null: columns are in the groups' order
  uint32_t scale_tensor_ = 0, group_tensor_ = 0;
  tenon_format scale_format_ = TENON_F16;
};

}  // namespace tenon::published
