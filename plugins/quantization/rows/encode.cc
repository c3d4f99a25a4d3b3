#include "encode.h"

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace tenon::rows {
namespace {

constexpr uint64_t kScaleBytes = 4;   // a row in int8 has a scale of so many
constexpr uint64_t kHeaderBytes = 4;  // weights that share a scale have so many in int4: scale and zero point in bf16
constexpr uint64_t kHalfBytes = 2;

tenon_stored stored(const char* name, tenon_format format, std::initializer_list<int64_t> dims) {
  tenon_stored t{};
  t.name = name;
  t.format = format;
  for (const int64_t dim : dims) t.dim[t.rank++] = dim;
  return t;
}

tenon_written written(const char* description, std::initializer_list<tenon_stored> tensors) {
  auto all = sdk::abi_struct<tenon_written>();
  for (const tenon_stored& t : tensors) all.tensor[all.n_tensors++] = t;
  all.description = description;
  return all;
}

}  // namespace

tenon_written describe_int8(const tenon_linear& s, const char* description) {
  const int64_t rows = s.out_dim[0];
  return written(description,
                 {stored("weight", TENON_I8, {rows, s.in_dim}), stored("weight_scale", TENON_F32, {rows})});
}

tenon_written describe_int4(const tenon_linear& s, uint32_t group, const char* description) {
  const int64_t rows = s.out_dim[0], groups = (s.in_dim + group - 1) / group;
  return written(description, {stored("weight", TENON_U8, {rows, groups * group / 2}),
                               stored("weight_scale", TENON_BF16, {rows, groups}),
                               stored("weight_zero", TENON_BF16, {rows, groups})});
}

void encode_int8(const tenon_linear& s, const tenon_encode& e) {
  const auto k = static_cast<uint32_t>(s.in_dim);
  auto* weight = static_cast<uint8_t*>(e.out[0]);
  auto* scale = static_cast<uint8_t*>(e.out[1]);
  std::vector<uint8_t> row(int8_row_bytes(k));
  for (uint64_t r = 0; r < e.rows; ++r, weight += k, scale += kScaleBytes) {
    quantize_int8_row(e.data + r * k, k, row.data());
    std::memcpy(scale, row.data(), kScaleBytes);
    std::memcpy(weight, row.data() + kScaleBytes, k);
  }
}

void encode_int4(const tenon_linear& s, uint32_t group, Int4GroupOf group_of, const tenon_encode& e) {
  const auto k = static_cast<uint32_t>(s.in_dim);
  auto* weight = static_cast<uint8_t*>(e.out[0]);
  auto* scale = static_cast<uint8_t*>(e.out[1]);
  auto* zero = static_cast<uint8_t*>(e.out[2]);
  std::vector<uint8_t> row(int4_row_bytes(k, group));
  for (uint64_t r = 0; r < e.rows; ++r) {
    if (!quantize_int4_row(e.data + r * k, k, group, row.data(), group_of)) {
      throw sdk::Refused("row " + std::to_string(e.row0 + r) + " has a group whose range is too large for bf16");
    }
    for (size_t at = 0; at < row.size(); at += kHeaderBytes + group / 2) {
      std::memcpy(scale, row.data() + at, kHalfBytes);
      std::memcpy(zero, row.data() + at + kHalfBytes, kHalfBytes);
      std::memcpy(weight, row.data() + at + kHeaderBytes, group / 2);
      scale += kHalfBytes;
      zero += kHalfBytes;
      weight += group / 2;
    }
  }
}

}  // namespace tenon::rows
