// These are the inputs of a small op, and what float64 makes of them, for the suites of every device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tenon/abi/op.h"

namespace tenon::conformance {

inline constexpr int32_t kPositions = 32;  // a table of rope has so many

struct OpShape {
  uint32_t rows = 1, live = 1;
  int64_t columns = 64;  // ops that have no heads have so many
  int32_t q_heads = 2, kv_heads = 1, k_dim = 16, v_dim = 16;
  int32_t rotated = 16, interleaved = 0;
};

struct OpInputs {
  OpShape shape;
  int64_t columns = 0;  // x has so many
  std::vector<float> x;
  tenon_fop op{};                        // it has its numbers and integers
  std::vector<float> tensor[4];          // it is by place in t[], and empty where there is none
  std::vector<int64_t> tensor_shape[4];  // it has rows only if there are two
  std::vector<int32_t> position;         // by row
  uint32_t least_rows = 0;               // so many rows of y are made even where fewer are live

  uint32_t made_rows() const { return std::max(shape.live, least_rows); }
};

// Returns values between -2 and 2 for all that the op asks for; nullopt if it asks for a table that is not known here.
std::optional<OpInputs> inputs_of(const std::string& name, const tenon_small_op& table, const OpShape& shape);
// Returns the rows of y that are made, or nullopt for an op that is not known here.
std::optional<std::vector<double>> expected_of(const std::string& name, const OpInputs& in);

}  // namespace tenon::conformance
