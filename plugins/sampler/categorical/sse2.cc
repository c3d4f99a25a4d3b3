#include <immintrin.h>

#include "draw.h"

namespace tenon::categorical {
namespace {

constexpr uint32_t kBytes = 16;
typedef uint64_t U64 __attribute__((vector_size(kBytes)));

U64 multiply(U64 a, U64 b) {
  return __builtin_bit_cast(U64, _mm_mul_epu32(__builtin_bit_cast(__m128i, a), __builtin_bit_cast(__m128i, b)));
}
U64 zip_low(U64 a, U64 b) {
  return __builtin_shufflevector(a, b, 0, 2);
}
U64 zip_high(U64 a, U64 b) {
  return __builtin_shufflevector(a, b, 1, 3);
}

#include "draw_body.h"

}  // namespace

Draw draw_sse2(const DrawInput& in) {
  return draw(in);
}

}  // namespace tenon::categorical
