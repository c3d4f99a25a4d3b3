#include "pack.h"

#include <cmath>
#include <cstring>
#include <string>

#include "tenon/sdk/error.h"

namespace tenon::int4wo {

void pack_row(const float* w, uint32_t k, uint32_t group, rows::Int4GroupOf group_of, uint8_t* row) {
  for (uint32_t i = 0; i < k; ++i) {
    if (!std::isfinite(w[i])) throw sdk::Failed("weight " + std::to_string(i) + " of a row is not finite");
  }
  if (!rows::quantize_int4_row(w, k, group, row, group_of)) {
    throw sdk::Failed("a group of weights that bf16 cannot hold");
  }
}

void take_row(const rows::Int4Tensors& from, uint32_t k, uint32_t group, uint8_t* row) {
  for (const uint8_t* tensor : {from.scale, from.zero}) {
    for (uint32_t i = 0; i < (k + group - 1) / group; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, tensor + 2 * size_t{i}, sizeof(half));
      if (!std::isfinite(sdk::bf16_to_float(half))) {
        throw sdk::Failed("the scale or zero point of a group is not finite");
      }
    }
  }
  rows::join_int4_row(from, k, group, row);
}

}  // namespace tenon::int4wo
