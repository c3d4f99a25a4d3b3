// Every instruction set's part of vector.h begins with this.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "tenon/abi/types.h"

namespace tenon::sdk::cpu {
namespace {

template <uint32_t N>
struct Floats;
template <uint32_t N>
struct Doubles;
template <uint32_t N>
struct Ints;
template <uint32_t N>
struct Codes;
template <uint32_t N>
struct Words;

// Floats<N>::decode reads so many bytes of an element.
template <uint32_t Format>
constexpr uint32_t kElementBytes = Format == TENON_F32                           ? 4
                                   : Format == TENON_F16 || Format == TENON_BF16 ? 2
                                                                                 : 1;

}  // namespace
}  // namespace tenon::sdk::cpu
