// How int8wo and int4wo write matrices: quantized rows, each part of them a tensor. Of a matrix X of N rows and K columns:
//   int8: X.weight i8 (N, K), X.weight_scale f32 (N)
//   int4 in groups of G: X.weight u8 (N, P / 2), X.weight_scale and X.weight_zero bf16 (N, P / G), P = K rounded up to
//   whole groups
// What the bytes stand for is said where rows are quantized: tenon/sdk/quantized_rows.h.
#pragma once

#include "tenon/abi/quantization.h"

namespace tenon::rows {

// The answers to describe(). description: the JSON text, which lives as long as the component.
tenon_written describe_int8(const tenon_linear& s, const char* description);
tenon_written describe_int4(const tenon_linear& s, uint32_t group, const char* description);

// The work of encode(). Weights are finite. Throws sdk::Refused for a group of weights that bf16 cannot hold.
void encode_int8(const tenon_linear& s, const tenon_encode& e);
void encode_int4(const tenon_linear& s, uint32_t group, const tenon_encode& e);

}  // namespace tenon::rows
