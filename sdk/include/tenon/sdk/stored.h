// A scheme looks up here what a file has under the names of its matrices, and refuses it with the tensor's
// name, what was found and what would be right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tenon/abi/quantization.h"
#include "tenon/sdk/error.h"

namespace tenon::sdk {

inline std::span<const tenon_stored> tensors_of(const tenon_matrix& m) {
  return {m.tensor, m.n_tensors};
}

inline uint64_t stored_bytes(const tenon_stored& t) {
  const tenon_block block = tenon_format_block(t.format);
  if (block.elements == 0) return 0;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < t.rank; ++i) elements *= static_cast<uint64_t>(t.dim[i]);
  return elements / block.elements * block.bytes;
}
// One of the tensor's `rows` rows has so many bytes; 0 if its first dimension is not the rows.
inline uint64_t row_bytes(const tenon_stored& t, int64_t rows) {
  return t.rank == 0 || t.dim[0] != rows || rows <= 0 ? 0 : stored_bytes(t) / static_cast<uint64_t>(rows);
}

// The text is like "i8 (40, 64)".
inline std::string type_and_shape(const tenon_stored& t) {
  std::string text = std::string(tenon_format_name(t.format)) + " (";
  for (uint32_t i = 0; i < t.rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(t.dim[i]);
  return text + ")";
}
// The text is like "model.layers.3.mlp.down_proj.weight", quotes included.
inline std::string full_name(const tenon_matrix& m, std::string_view tensor) {
  return std::string("\"") + m.name + "." + std::string(tensor) + "\"";
}
// The text is like "qweight i32 (8, 40), scales f16 (2, 40)".
inline std::string list_of(std::span<const tenon_stored> tensors) {
  std::string text;
  for (const tenon_stored& t : tensors)
    text += (text.empty() ? "" : ", ") + std::string(t.name) + " " + type_and_shape(t);
  return text;
}

// It gives null if the matrix has no tensor of that name.
inline const tenon_stored* find_tensor(const tenon_matrix& m, std::string_view name) {
  for (const tenon_stored& t : tensors_of(m)) {
    if (name == t.name) return &t;
  }
  return nullptr;
}

// It gives the format of matrix `mat`, one of the first expert's if the site is routed; nothing if that is not plain.
inline std::optional<tenon_format> plain_format(const tenon_linear& s, uint32_t mat) {
  const tenon_matrix& m = s.matrix[mat];
  if (m.n_tensors != 1 || std::string_view(m.tensor->name) != "weight") return {};
  const tenon_stored& t = *m.tensor;
  if (t.rank != 2 || t.dim[0] != s.out_dim[mat] || t.dim[1] != s.in_dim) return {};
  return t.format;
}
// It does the same, and throws Refused for a matrix that is not plain.
inline tenon_format need_plain(const tenon_linear& s, uint32_t mat) {
  if (const auto format = plain_format(s, mat)) return *format;
  const tenon_matrix& m = s.matrix[mat];
  throw Refused("matrix \"" + std::string(m.name) + "\" is stored as " + list_of(tensors_of(m)) +
                "; this scheme reads one tensor, weight (" + std::to_string(s.out_dim[mat]) + ", " +
                std::to_string(s.in_dim) + ")");
}

// It throws Refused unless a matrix consists of the tensors `expected`, with
// these formats and shapes, and of no others.
inline void need_tensors(const tenon_matrix& m, std::span<const tenon_stored> expected) {
  for (const tenon_stored& wanted : expected) {
    const tenon_stored* found = find_tensor(m, wanted.name);
    if (found == nullptr) {
      throw Refused("tensor " + full_name(m, wanted.name) + " is missing; expected " + type_and_shape(wanted));
    }
    const bool same = found->format == wanted.format && found->rank == wanted.rank &&
                      std::equal(found->dim, found->dim + found->rank, wanted.dim);
    if (same) continue;
    throw Refused("tensor " + full_name(m, wanted.name) + " is " + type_and_shape(*found) + "; expected " +
                  type_and_shape(wanted));
  }
  for (const tenon_stored& t : tensors_of(m)) {
    const auto named = [&](const tenon_stored& e) { return std::string_view(e.name) == t.name; };
    if (std::any_of(expected.begin(), expected.end(), named)) continue;
    throw Refused("tensor " + full_name(m, t.name) + " is not one that this scheme reads: " + list_of(expected));
  }
}

}  // namespace tenon::sdk
