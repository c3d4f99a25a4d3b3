// These convert rows of f32 to a codec and back with F16C and AVX2; they give the bits of tenon/sdk/kv_codec.h.
#pragma once

#include <stdint.h>

namespace tenon::slot_cache {

void store_row_avx2(uint32_t codec, const float* from, uint32_t n, float scale, void* to);
void load_row_avx2(uint32_t codec, const void* from, uint32_t n, float scale, float* to);
float most_of_row_avx2(const float* from, uint32_t n);  // returns the element of greatest magnitude

}  // namespace tenon::slot_cache
