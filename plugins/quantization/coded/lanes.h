// This says how the 32 codes of a row's unit lie in its lane of packed rows, `bits` words of four bytes. It is for code
// that is compiled for the base machine only.
//
//   planes          as in the unit (tenon/sdk/packed_codes.h)
//   fields of E bits, where E is 8 for 3 bits, and 16 for 5 and 6 bits that are looked up in a table of 16 bits
//
// A step is 32 / E codes, one for each field of a word. A word has two steps, or three of 5 bits, from its fields'
// lowest bits up. What is left of some fields' upper bits makes a step more:
//
//   3 and 6 bits   eight steps in three words: the lower 2 E / 8 bits of steps 6 and 7 are in words 0 and 1, their
//                  upper ones in word 2, those of step 6 first
//   5 bits         sixteen steps in five words: bit i of step 15 is in word i
//
// Step s has codes 4 s to 4 s + 3 in fields of 8 bits; of 16 bits steps 2 s and 2 s + 1 have codes 4 s and 4 s + 2,
// 4 s + 1 and 4 s + 3, as rows of x have words (word_place() of tenon/sdk/cpu/row_kernels.h).
//
// Example: word 0 of 6 bits has, from the lowest bit up, codes 0 and 1, the lower four bits of
// code 13, and the same of codes 2, 3 and 15.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "quantize.h"
#include "tenon/sdk/packed_codes.h"
#include "tenon/sdk/small_floats.h"

namespace tenon::coded {

// This gives the bits of a field in lanes of codes of kBits bits; 0: they are planes.
template <class Codes>
inline constexpr uint32_t kFieldBits = 0;
template <>
inline constexpr uint32_t kFieldBits<IntegerCodes<3>> = 8;
template <uint32_t kExponent, uint32_t kMantissa>
inline constexpr uint32_t kFieldBits<BookCodes<sdk::SmallFloat<kExponent, kMantissa>>> =
    kExponent + kMantissa < 6 ? 16 : 0;

namespace detail {

// Calls f(word, bit of the field, first bit of the code, bits) for each piece of a step's codes.
template <class F>
constexpr void each_piece_of_step(uint32_t bits, uint32_t field, uint32_t step, const F& f) {
  if (bits == 5) {
    if (step < 15) return f(step / 3, step % 3 * bits, 0U, bits);
    for (uint32_t i = 0; i < bits; ++i) f(i, 15U, i, 1U);
    return;
  }
  const uint32_t word = step / 8 * 3, left = field - 2 * bits, in_eight = step % 8;
  if (in_eight < 6) return f(word + in_eight / 2, in_eight % 2 * bits, 0U, bits);
  f(word + in_eight - 6, 2 * bits, 0U, left);
  f(word + 2, 2 * bits + (in_eight - 6) * (bits - left), left, bits - left);
}

// Calls f(code, word, bit of the word, first bit of the code, bits) for each piece of a lane.
template <class F>
constexpr void each_piece_of_lane(uint32_t bits, uint32_t field, const F& f) {
  const uint32_t fields = 32 / field;
  for (uint32_t step = 0; step < sdk::kUnitCodes / fields; ++step) {
    for (uint32_t i = 0; i < fields; ++i) {
      const uint32_t code = field == 8 ? 4 * step + i : step / 2 * 4 + step % 2 + 2 * i;
      each_piece_of_step(bits, field, step, [&](uint32_t word, uint32_t bit, uint32_t first, uint32_t n) {
        f(code, word, i * field + bit, first, n);
      });
    }
  }
}

}  // namespace detail

// These make a lane of a unit, and a unit of a lane.
template <uint32_t kBits, uint32_t kField>
void make_lane(const uint8_t* unit, uint8_t* lane) {
  if constexpr (kField == 0) {
    std::memcpy(lane, unit, sdk::unit_bytes(kBits));
  } else {
    uint32_t words[kBits] = {};
    detail::each_piece_of_lane(
        kBits, kField, [&](uint32_t code, uint32_t word, uint32_t bit, uint32_t first, uint32_t n) {
          words[word] |= (sdk::code_in_unit(kBits, unit, code) >> first & ((1U << n) - 1)) << bit;
        });
    std::memcpy(lane, words, sizeof(words));
  }
}
template <uint32_t kBits, uint32_t kField>
void make_unit(const uint8_t* lane, uint8_t* unit) {
  if constexpr (kField == 0) {
    std::memcpy(unit, lane, sdk::unit_bytes(kBits));
  } else {
    uint32_t words[kBits];
    std::memcpy(words, lane, sizeof(words));
    std::memset(unit, 0, sizeof(words));
    detail::each_piece_of_lane(kBits, kField,
                               [&](uint32_t code, uint32_t word, uint32_t bit, uint32_t first, uint32_t n) {
                                 sdk::add_to_unit(kBits, (words[word] >> bit & ((1U << n) - 1)) << first, unit, code);
                               });
  }
}

}  // namespace tenon::coded
