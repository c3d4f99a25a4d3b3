#include <immintrin.h>

#include "draw.h"

namespace tenon::categorical {
namespace {

constexpr uint32_t kBytes = 64;
typedef uint64_t U64 __attribute__((vector_size(kBytes)));

U64 multiply(U64 a, U64 b) {
  return __builtin_bit_cast(U64, _mm512_mul_epu32(__builtin_bit_cast(__m512i, a), __builtin_bit_cast(__m512i, b)));
}
U64 zip_low(U64 a, U64 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
U64 zip_high(U64 a, U64 b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

#include "draw_body.h"

}  // namespace

Draw draw_avx512(const DrawInput& in) {
  return draw(in);
}

}  // namespace tenon::categorical
