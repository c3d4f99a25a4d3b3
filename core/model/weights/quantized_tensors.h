// How safetensors hold the rows of tenon/sdk/quantized_rows.h. Of a matrix X of N rows and K columns:
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
  uint64_t row_bytes;  // of the matrix's row
};
// Of a matrix in such rows: weights, scales and, of int4, zero points.
std::vector<StoredPart> stored_parts(const WeightTensor& matrix);
// Key (with "__metadata__.") and value of the metadata that says so.
std::pair<std::string, std::string> format_entry(const WeightTensor& matrix);
// Rows to what each part holds of them, one behind the other, and back. `parts`: bytes of the rows in each.
void split_rows(tenon_format format, uint64_t columns, std::span<const std::byte> rows,
                std::vector<std::vector<std::byte>>& parts);
void join_row(tenon_format format, uint64_t columns, std::span<const std::byte* const> parts, std::byte* row);

// Tensors of safetensors files, those that belong together as one matrix each. Throws Error(kModel) where the metadata
// names tensors that are missing or of another type or shape.
std::unique_ptr<Weights> open_tensors(Contents contents, std::vector<MappedFile> files);

}  // namespace tenon::weights
