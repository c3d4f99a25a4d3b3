// Rows of f32 to a plain codec and back with F16C and AVX2; the same bits as tenon/sdk/cpu/convert.h.
#pragma once

#include <stdint.h>

namespace tenon::static_cache {

void store_row_avx2(uint32_t codec, const float* from, uint32_t n, void* to);
void load_row_avx2(uint32_t codec, const void* from, uint32_t n, float* to);

}  // namespace tenon::static_cache
