// The arithmetic of a draw for a register of candidates: random words by Philox4x32-10, and of each its noise -log(q).
// Lanes do not meet, and all arithmetic is additions, multiplications and divisions that are not fused, so the bits do
// not depend on the instruction set. cuda.cu does the same for one candidate.
//
// The logarithm is that of the exponent and the fraction of a number, where the fraction lies about 1:
// log(1 + d) = 2 atanh(d / (2 + d)), by its series up to the ninth power.
#pragma once

#include "draw.h"
#include "tenon/sdk/cpu/vector_bits.h"

namespace tenon::categorical {
namespace {

using U32 = sdk::cpu::U32Lanes;
using I32 = sdk::cpu::I32Lanes;
using F32 = sdk::cpu::F32Lanes;
using U64 = sdk::cpu::U64Lanes;

// This has four words a lane, each in the low half. See sdk/cpu/philox.h.
struct RandomWords {
  U64 word[4];
};
RandomWords philox(const DrawInput& in, U64 block) {
  U64 c0 = U64{} + in.position, c1 = {}, c2 = block, c3 = {};
  uint32_t key0 = in.key[0], key1 = in.key[1];
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const U64 a = sdk::cpu::multiply_low_halves(c0, U64{} + 0xd2511f53u);
    const U64 b = sdk::cpu::multiply_low_halves(c2, U64{} + 0xcd9e8d57u);
    c0 = (b >> 32) ^ c1 ^ key0;
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ key1;
    c3 = a;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

// Returns log(1 + d), 1 + d in [sqrt(1/2), sqrt(2)).
F32 log_near_one(F32 d) {
  const F32 s = d / (2.0F + d), z = s * s;
  return 2.0F * s + 2.0F * s * z * (1.0F / 3 + z * (1.0F / 5 + z * (1.0F / 7 + z * (1.0F / 9))));
}
// This is x as 2^exponent (1 + rest), 1 + rest in [sqrt(1/2), sqrt(2)). x: positive, normal.
struct Binary {
  F32 exponent, rest;
};
Binary split_binary(F32 x) {
  constexpr uint32_t kRootHalf = 0x3f3504f3u;  // the bits of sqrt(1/2)
  const U32 above = __builtin_bit_cast(U32, x) - kRootHalf;
  const F32 m = __builtin_bit_cast(F32, (above & 0x7fffffu) + kRootHalf);
  return {__builtin_convertvector(__builtin_bit_cast(I32, above) >> 23, F32), m - 1.0F};
}

// Returns -log(q) of the words.
F32 noise_of(U32 word) {
  const F32 u = (__builtin_convertvector(__builtin_bit_cast(I32, word >> 1), F32) + 0.5F) * 0x1p-31F;
  const F32 rest = 1.0F - u;
  const F32 v = rest > 0.0F ? rest : 0x1p-25F + F32{};  // u may have been rounded to 1
  Binary b = split_binary(v);
  // Near 1, v has lost the low bits of u, which decide among likely candidates.
  b.rest = b.exponent == 0.0F ? -u : b.rest;
  const F32 q = -(b.exponent * 0x1.62e43p-1F + log_near_one(b.rest));
  b = split_binary(q);
  return -(b.exponent * 0x1.62e43p-1F + log_near_one(b.rest));
}

}  // namespace
}  // namespace tenon::categorical
