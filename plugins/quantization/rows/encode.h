// int8wo and int4wo write matrices as the tensors of stored_rows.h.
#pragma once

#include "quantize_rows.h"
#include "tenon/abi/quantization.h"

namespace tenon::rows {

// These answer describe(). `description` is the JSON text, which lives as long as the component.
tenon_written describe_int8(const tenon_linear& s, const char* description);
tenon_written describe_int4(const tenon_linear& s, uint32_t group, const char* description);

// These do the work of encode(). Weights are finite. Throws sdk::Refused for a group of weights that bf16 cannot hold.
void encode_int8(const tenon_linear& s, const tenon_encode& e);
using Int4GroupOf = Int4Group (*)(const float* w, uint32_t n);
void encode_int4(const tenon_linear& s, uint32_t group, Int4GroupOf group_of, const tenon_encode& e);

}  // namespace tenon::rows
