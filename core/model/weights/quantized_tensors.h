// How safetensors are written that hold the rows of tenon/core/quantized_rows.h. Of a matrix X of N rows and K columns:
//   int8 rows: X int8 (N, K), X_scale f32 (N)
//   int4 rows in groups of G: X uint8 (N, P / 2), X_scale and X_zero bf16 (N, P / G), P = K rounded up to whole groups
// and __metadata__ has "tenon.format.X": "int8wo columns=K" or "int4wo group_size=G columns=K".
#pragma once

#include <span>
#include <string>
#include <vector>

#include "table_weights.h"

namespace tenon::weights {

// One tensor of the file.
struct StoredPart {
  std::string name;
  tenon_format format;
  std::vector<int64_t> shape;
};
// Of a matrix in such rows: weights, scales and, of int4, zero points.
std::vector<StoredPart> stored_parts(const WeightTensor& matrix);
// Key (with "__metadata__.") and value of the metadata that says so.
std::pair<std::string, std::string> format_entry(const WeightTensor& matrix);
// Rows to what each part holds of them, one after the other. `parts`: bytes of the rows in each.
void split_rows(tenon_format format, uint64_t columns, std::span<const std::byte> rows,
                std::vector<std::vector<std::byte>>& parts);

}  // namespace tenon::weights
