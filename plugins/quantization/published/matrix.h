// A published checkpoint stores this matrix, which becomes rows of a coding (coded/coding.h) while it loads: the codes
// keep their values, and scales and zero points their groups, so that nothing is rounded anew.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../coded/coding.h"
#include "byte_codes.h"
#include "tenon/sdk/convert.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/stored.h"

namespace tenon::published {

// This is a row of a matrix on its way into a coding: a code a weight and, by group of the coding, a scale and a zero
// point. A coding with one scale a row takes scale[0]; one with a scale of e4m3 for each 16 weights besides has those
// in the place of zero points; one with offsets has scale and offset side by side in the place of scales.
struct Row {
  const uint8_t* code;
  const float* scale;
  const uint8_t* zero = nullptr;  // only where the coding has zero points
};

// Returns c of a power of two 2^(c - 127); of 2^-127, which is no normal number, 0.
inline uint8_t exponent_of(float power) {
  uint32_t bits = 0;
  std::memcpy(&bits, &power, sizeof(bits));
  return static_cast<uint8_t>(bits >> 23);
}

// It makes a row of k codes of kBits bits as the coding holds it, and writes every byte of it. Scales are in the
// coding's format already. Codings with two levels of scales, or with scales of eights, hold no published matrix.
template <uint32_t kBits>
void hold_row_of(const coded::Coding& c, uint32_t k, const Row& from, uint8_t* to) {
  if (c.row_header() != 0) std::memcpy(to, from.scale, sizeof(float));
  to += c.row_header();
  for (uint32_t begin = 0, g = 0; begin < k; begin += c.group, ++g) {
    if (c.scaling == coded::Scaling::kGroup) std::memcpy(to, from.scale + g, sizeof(float));
    if (c.scaling == coded::Scaling::kZeroPoint || c.scaling == coded::Scaling::kHalfZeroPoint) {
      const bool half = c.scaling == coded::Scaling::kHalfZeroPoint;
      const uint16_t scale = half ? sdk::float_to_half(from.scale[g]) : sdk::float_to_bf16(from.scale[g]);
      std::memcpy(to, &scale, sizeof(scale));
      to[sizeof(scale)] = from.zero[g];
    }
    if (c.scaling == coded::Scaling::kOffset) std::memcpy(to, from.scale + size_t{2} * g, 2 * sizeof(float));
    if (c.scaling == coded::Scaling::kExponent) *to = exponent_of(from.scale[g]);
    if (c.scaling == coded::Scaling::kSixteens) std::memcpy(to, from.zero + size_t{2} * g, 2);
    to += c.group_header();
    for (uint32_t i = begin; i < begin + c.group; i += sdk::kUnitCodes, to += sdk::unit_bytes(kBits)) {
      if (i + sdk::kUnitCodes <= k) {
        make_unit<kBits>(from.code + i, to);
        continue;
      }
      uint8_t filled[sdk::kUnitCodes] = {};
      if (i < k) std::memcpy(filled, from.code + i, k - i);
      make_unit<kBits>(filled, to);
    }
  }
}
inline void hold_row(const coded::Coding& c, uint32_t k, const Row& from, uint8_t* to) {
  coded::with_index<8>(c.bits - 1, [&]<uint32_t kIndex>(std::integral_constant<uint32_t, kIndex>) {
    hold_row_of<kIndex + 1>(c, k, from, to);
  });
}

// Returns where a tensor stands among those of a matrix, which are sorted by name; n_tensors if it is not there.
inline uint32_t index_of(const tenon_matrix& m, std::string_view name) {
  uint32_t i = 0;
  while (i < m.n_tensors && name != m.tensor[i].name) ++i;
  return i;
}

template <class T>
T value_at(const tenon_slice& slice, uint64_t i) {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(slice.data) + i * sizeof(T), sizeof(T));
  return value;
}

// These are a tensor's numbers in f32, f16 or bf16. Each must be finite and, where
// the form has none below 0, not negative.
class Floats {
 public:
  enum class Sign { kAny, kNotNegative, kPositive };

  static constexpr bool reads(tenon_format f) { return f == TENON_F32 || f == TENON_F16 || f == TENON_BF16; }
  Floats(const tenon_slice& slice, tenon_format format, std::string name, Sign sign = Sign::kAny)
      : slice_(slice), format_(format), name_(std::move(name)), sign_(sign) {}
  // Throws sdk::Failed, with the tensor's name, for a number that must not be.
  float operator[](uint64_t i) const {
    const float value = format_ == TENON_F32   ? value_at<float>(slice_, i)
                        : format_ == TENON_F16 ? sdk::half_to_float(value_at<uint16_t>(slice_, i))
                                               : sdk::bf16_to_float(value_at<uint16_t>(slice_, i));
    if (!std::isfinite(value)) wrong(i, "not finite");
    if (sign_ == Sign::kNotNegative && value < 0) wrong(i, "negative");
    if (sign_ == Sign::kPositive && value <= 0) wrong(i, "not positive");
    return value;
  }

 private:
  [[noreturn]] void wrong(uint64_t i, const char* what) const {
    throw sdk::Failed("tensor " + name_ + ": number " + std::to_string(i) + " is " + what);
  }

  tenon_slice slice_;
  tenon_format format_;
  std::string name_;
  Sign sign_;
};

// A form needs this tensor: its name, and what is right of it. Throws
// sdk::Refused if it is missing or of another shape.
inline const tenon_stored& need_tensor(const tenon_matrix& m, const tenon_stored& wanted) {
  const tenon_stored* found = sdk::find_tensor(m, wanted.name);
  if (found == nullptr) {
    throw sdk::Refused("tensor " + sdk::full_name(m, wanted.name) + " is missing; expected " +
                       sdk::type_and_shape(wanted));
  }
  const bool same = found->format == wanted.format && found->rank == wanted.rank &&
                    std::equal(found->dim, found->dim + found->rank, wanted.dim);
  if (!same) {
    throw sdk::Refused("tensor " + sdk::full_name(m, wanted.name) + " is " + sdk::type_and_shape(*found) +
                       "; expected " + sdk::type_and_shape(wanted));
  }
  return *found;
}
// Does the same for a tensor of floats, in whichever format.
inline const tenon_stored& need_floats(const tenon_matrix& m, tenon_stored wanted) {
  const tenon_stored* found = sdk::find_tensor(m, wanted.name);
  if (found != nullptr && Floats::reads(found->format)) wanted.format = found->format;
  return need_tensor(m, wanted);
}
// Throws sdk::Refused for a tensor that the form does not know.
inline void need_no_others(const tenon_matrix& m, const std::vector<std::string_view>& known) {
  for (const tenon_stored& t : sdk::tensors_of(m)) {
    if (std::find(known.begin(), known.end(), t.name) != known.end()) continue;
    std::string names;
    for (const std::string_view k : known) names += (names.empty() ? "" : ", ") + std::string(k);
    throw sdk::Refused("tensor " + sdk::full_name(m, t.name) + " is not one that this scheme reads: " + names);
  }
}

// Throws sdk::Refused for a matrix in a form that the scheme does not read; `reads` says which tensors it does.
[[noreturn]] inline void refuse_form(const tenon_matrix& m, const std::string& reads) {
  throw sdk::Refused("matrix \"" + std::string(m.name) + "\" is stored as " + sdk::list_of(sdk::tensors_of(m)) +
                     "; this scheme reads " + reads);
}

// Returns the names of matrix `mat` of a site, by expert.
inline std::vector<std::string> names_of(const tenon_linear& s, uint32_t mat) {
  std::vector<std::string> names;
  for (uint32_t e = 0; e < std::max(s.experts, 1U); ++e) names.push_back(s.matrix[e * s.n_mats + mat].name);
  return names;
}

// This is the form of one matrix of a site, or of that matrix of every expert, found when the site is claimed or bound.
// Errors of a load name the expert's.
class Matrix {
 public:
  using Put = std::function<void(uint64_t row, const Row&)>;

  Matrix(const tenon_linear& s, uint32_t mat)
      : name_(s.matrix[mat].name),
        rows_(static_cast<uint64_t>(s.out_dim[mat])),
        columns_(static_cast<uint32_t>(s.in_dim)),
        matrices_(s.n_mats),
        names_(names_of(s, mat)) {}
  virtual ~Matrix() = default;

  uint32_t coding() const { return coding_; }  // it is the index of the scheme's coding that holds the matrix
  // Its columns are held in another order, which permutation() has after load().
  bool permuted() const { return permuted_; }
  const std::vector<uint32_t>& permutation() const { return permutation_; }
  // Calls put for each row. src has all rows. Throws sdk::Failed for numbers that are damaged.
  void load(const tenon_rows& src, const Put& put) {
    name_ = names_[src.mat / matrices_];
    take_rows(src, put);
  }
  // Matrices beside each other share x, so they must have the same order of columns. `first` is that of the first one, and
  // this was loaded last. Throws sdk::Failed.
  void need_order(const std::vector<uint32_t>& first, const Matrix& of) const {
    const auto [found, expected] = std::mismatch(permutation_.begin(), permutation_.end(), first.begin(), first.end());
    if (found == permutation_.end() && expected == first.end()) return;
    throw sdk::Failed("the columns of matrix \"" + name_ + "\" are in another order than those of \"" + of.name_ +
                      "\" beside it, which has the same x: from place " + std::to_string(found - permutation_.begin()) +
                      " of the order on");
  }

 protected:
  virtual void take_rows(const tenon_rows& src, const Put& put) = 0;
  size_t expert_of(const tenon_rows& src) const { return src.mat / matrices_; }
  std::string full_name(const char* tensor) const { return "\"" + name_ + "." + tensor + "\""; }

  std::string name_;  // errors name the matrix that is being loaded so
  uint64_t rows_;
  uint32_t columns_;
  uint32_t coding_ = 0;
  bool permuted_ = false;
  std::vector<uint32_t> permutation_;  // column i of the held matrix is this column of the file

 private:
  uint32_t matrices_;  // the site, or each of its experts, has so many
  std::vector<std::string> names_;
};

}  // namespace tenon::published
