// These are row formats (products.h) of plain floats and GGUF's blocks, for vectors. In plain code they go through
// gguf_blocks.h. They are for the one source of an instruction set, see vector.h.
#pragma once

#include "tenon/sdk/cpu/products.h"
#include "tenon/sdk/gguf_books.h"

#if !defined(__AVX2__)
#include "tenon/sdk/gguf_blocks.h"
#endif

namespace tenon::sdk::cpu {
namespace {

#if defined(__AVX2__)

template <uint32_t Format>
struct Plain {
  // Rows are read one after the other: these formats are bound by memory, which likes that best.
  static constexpr uint32_t kCode = Format, kElements = 16, kHeader = 0, kColumns = 1;
  static constexpr size_t kBytes = size_t{16} * kElementBytes<Format>;
  static float scale(const uint8_t*) { return 1; }
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    sink(0, Floats16::decode<Format>(p));
  }
  static Floats16 some(const uint8_t* p, uint32_t n) { return Floats16::decode_first<Format>(p, n); }
};
using F32Row = Plain<TENON_F32>;
using F16Row = Plain<TENON_F16>;
using Bf16Row = Plain<TENON_BF16>;

template <uint32_t Code, uint32_t Elements, size_t Bytes, uint32_t Columns>
struct Blocks {
  static constexpr uint32_t kCode = Code, kElements = Elements, kHeader = 0, kColumns = Columns;
  static constexpr size_t kBytes = Bytes;
  static float scale(const uint8_t*) { return 1; }
};

inline __m128i upper_nibbles(__m128i b) {
  return _mm_srli_epi16(b, 4);
}
inline __m128i masked(__m128i b, int mask) {
  return _mm_and_si128(b, _mm_set1_epi8(static_cast<char>(mask)));
}

struct Q4_0Row : Blocks<TENON_Q4_0, 32, 18, 4> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const Nibbles<8> weights(half_scale(p), 0);
    sink(0, weights.low(p + 2));
    sink(1, weights.high(p + 2));
  }
};
struct Q4_1Row : Blocks<TENON_Q4_1, 32, 20, 4> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const Nibbles weights(half_scale(p), half_scale(p + 2));
    sink(0, weights.low(p + 4));
    sink(1, weights.high(p + 4));
  }
};

// Returns 16 in byte j where bit j of the word is set.
inline __m128i fifth_bits(const uint8_t* p) {
  uint16_t word;
  memcpy(&word, p, sizeof(word));
  const __m128i bit = _mm_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m128i spread =
      _mm_shuffle_epi8(_mm_set1_epi16(static_cast<short>(word)), _mm_set_epi64x(0x0101010101010101, 0));
  return masked(_mm_cmpeq_epi8(_mm_and_si128(spread, bit), bit), 16);
}
template <class Sink>
inline void five_bits(const uint8_t* fifth, const uint8_t* nibbles, float scale, float shift, Sink&& sink) {
  const __m128i q = load_bytes(nibbles);
  const Floats16 d = Floats16::all(scale), m = Floats16::all(shift);
  sink(0, fma(Floats16::from_u8(_mm_or_si128(masked(q, 15), fifth_bits(fifth))), d, m));
  sink(1, fma(Floats16::from_u8(_mm_or_si128(masked(upper_nibbles(q), 15), fifth_bits(fifth + 2))), d, m));
}
struct Q5_0Row : Blocks<TENON_Q5_0, 32, 22, 4> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const float d = half_scale(p);
    five_bits(p + 2, p + 6, d, -16 * d, sink);
  }
};
struct Q5_1Row : Blocks<TENON_Q5_1, 32, 24, 4> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    five_bits(p + 4, p + 8, half_scale(p), half_scale(p + 2), sink);
  }
};
struct Q8_0Row : Blocks<TENON_Q8_0, 32, 34, 4> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const Floats16 d = Floats16::all(half_scale(p));
    sink(0, mul(Floats16::decode<TENON_I8>(p + 2), d));
    sink(1, mul(Floats16::decode<TENON_I8>(p + 18), d));
  }
};

struct Q2_KRow : Blocks<TENON_Q2_K, 256, 84, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const float d = half_scale(p + 80), dmin = half_scale(p + 82);
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
      __m128i q[2] = {load_bytes(p + 16 + 32 * half), load_bytes(p + 32 + 32 * half)};
#pragma GCC unroll 8
      for (uint32_t run = 8 * half; run < 8 * half + 8; ++run) {
        const auto scale = static_cast<float>(p[run] & 15), min = static_cast<float>(p[run] >> 4);
        sink(run, fma(Floats16::from_u8(masked(q[run % 2], 3)), Floats16::all(d * scale), Floats16::all(-dmin * min)));
        q[run % 2] = _mm_srli_epi16(q[run % 2], 2);
      }
    }
  }
};

struct Q3_KRow : Blocks<TENON_Q3_K, 256, 110, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const float d = half_scale(p + 108);
    const uint8_t* s = p + 96;
    __m128i third[2] = {load_bytes(p), load_bytes(p + 16)};
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
      __m128i q[2] = {load_bytes(p + 32 + 32 * half), load_bytes(p + 48 + 32 * half)};
#pragma GCC unroll 8
      for (uint32_t run = 8 * half; run < 8 * half + 8; ++run) {
        const uint32_t low = half == 0 ? s[run] & 15u : s[run - 8] >> 4u;
        const auto scale = static_cast<int>(low | ((s[8 + run % 4] >> (run / 4 * 2)) & 3u) << 4) - 32;
        __m128i& t = third[run % 2];
        const __m128i value = _mm_or_si128(masked(q[run % 2], 3), _mm_slli_epi16(masked(t, 1), 2));
        sink(run, mul(Floats16::from_i8(_mm_sub_epi8(value, _mm_set1_epi8(4))),
                      Floats16::all(d * static_cast<float>(scale))));
        q[run % 2] = _mm_srli_epi16(q[run % 2], 2);
        t = _mm_srli_epi16(t, 1);
      }
    }
  }
};

// These are scales (bytes 0 to 7) and minima (8 to 15) of Q4_K and Q5_K from their 12 bytes, times d and dmin.
struct GroupScales {
  float scale[8], min[8];
  GroupScales(const uint8_t* p) {
    const float d = half_scale(p), dmin = half_scale(p + 2);
    uint32_t w[3];
    memcpy(w, p + 4, sizeof(w));
    const uint32_t mask6 = 0x3f3f3f3fu, mask4 = 0x0f0f0f0fu, mask2 = 0x03030303u;
    const uint32_t s0 = w[0] & mask6, s1 = (w[2] & mask4) | ((w[0] >> 6) & mask2) << 4;
    const uint32_t m0 = w[1] & mask6, m1 = ((w[2] >> 4) & mask4) | ((w[1] >> 6) & mask2) << 4;
    const Floats16 v = Floats16::from_u8(
        _mm_setr_epi32(static_cast<int>(s0), static_cast<int>(s1), static_cast<int>(m0), static_cast<int>(m1)));
    float values[16];
    store(values, v);
    for (int i = 0; i < 8; ++i) {
      scale[i] = values[i] * d;
      min[i] = -(values[8 + i] * dmin);
    }
  }
};
struct Q4_KRow : Blocks<TENON_Q4_K, 256, 144, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const GroupScales s(p);
    for (uint32_t pair = 0; pair < 4; ++pair) {
      const uint8_t* q = p + 16 + 32 * pair;
      const Nibbles low(s.scale[2 * pair], s.min[2 * pair]), high(s.scale[2 * pair + 1], s.min[2 * pair + 1]);
      sink(4 * pair, low.low(q));
      sink(4 * pair + 1, low.low(q + 16));
      sink(4 * pair + 2, high.high(q));
      sink(4 * pair + 3, high.high(q + 16));
    }
  }
};
struct Q5_KRow : Blocks<TENON_Q5_K, 256, 176, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const GroupScales s(p);
    __m128i fifth[2] = {load_bytes(p + 16), load_bytes(p + 32)};
#pragma GCC unroll 8
    for (uint32_t group = 0; group < 8; ++group) {
      const Floats16 scale = Floats16::all(s.scale[group]), min = Floats16::all(s.min[group]);
      for (uint32_t half = 0; half < 2; ++half) {
        __m128i q = load_bytes(p + 48 + group / 2 * 32 + 16 * half);
        if (group % 2 == 1) q = upper_nibbles(q);
        q = _mm_or_si128(masked(q, 15), _mm_slli_epi16(masked(fifth[half], 1), 4));
        sink(2 * group + half, fma(Floats16::from_u8(q), scale, min));
        fifth[half] = _mm_srli_epi16(fifth[half], 1);
      }
    }
  }
};

struct Q6_KRow : Blocks<TENON_Q6_K, 256, 210, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const Floats16 scales = mul(Floats16::from_i8(load_bytes(p + 192)), Floats16::all(half_scale(p + 208)));
    float scale[16];
    store(scale, scales);
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
      __m128i high[2] = {load_bytes(p + 128 + 32 * half), load_bytes(p + 144 + 32 * half)};
#pragma GCC unroll 8
      for (uint32_t run = 8 * half; run < 8 * half + 8; ++run) {
        __m128i low = load_bytes(p + 64 * half + run % 4 * 16);
        if (run % 8 >= 4) low = upper_nibbles(low);
        __m128i& h = high[run % 2];
        const __m128i value = _mm_or_si128(masked(low, 15), _mm_slli_epi16(masked(h, 3), 4));
        sink(run, mul(Floats16::from_i8(_mm_sub_epi8(value, _mm_set1_epi8(32))), Floats16::all(scale[run])));
        h = _mm_srli_epi16(h, 2);
      }
    }
  }
};

// These are 32 weights out of sixteen numbers, whose codes are the nibbles of 16 bytes.
struct ChosenNumbers {
  __m128i numbers;
  Floats16 scale;

  ChosenNumbers(const int8_t (&all)[16], float factor) : numbers(load_bytes(all)), scale(Floats16::all(factor)) {}
  Floats16 at(__m128i codes) const {
    return mul(Floats16::from_i8(_mm_shuffle_epi8(numbers, masked(codes, 15))), scale);
  }
  Floats16 low(const uint8_t* nibbles) const { return at(load_bytes(nibbles)); }
  Floats16 high(const uint8_t* nibbles) const { return at(upper_nibbles(load_bytes(nibbles))); }
};
struct Iq4NlRow : Blocks<TENON_IQ4_NL, 32, 18, 4> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const ChosenNumbers weights(Iq4Numbers::kNumbers, half_scale(p));
    sink(0, weights.low(p + 2));
    sink(1, weights.high(p + 2));
  }
};
struct Iq4XsRow : Blocks<TENON_IQ4_XS, 256, 136, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const float d = half_scale(p);
#pragma GCC unroll 8
    for (uint32_t group = 0; group < 8; ++group) {
      const uint32_t upper = (p[2 + group / 4] >> (group % 4 * 2)) & 3u,
                     lower = (p[4 + group / 2] >> (group % 2 * 4)) & 15u;
      const ChosenNumbers weights(Iq4Numbers::kNumbers,
                                  d * static_cast<float>(static_cast<int>(lower | upper << 4) - 32));
      sink(2 * group, weights.low(p + 8 + 16 * group));
      sink(2 * group + 1, weights.high(p + 8 + 16 * group));
    }
  }
};
struct Mxfp4Row : Blocks<TENON_MXFP4, 32, 17, 4> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const uint32_t bits = p[0] < 2 ? 0x00200000u << p[0] : (uint32_t{p[0]} - 1) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    const ChosenNumbers weights(E2m1Numbers::kDoubled, power);
    sink(0, weights.low(p + 1));
    sink(1, weights.high(p + 1));
  }
};

struct Tq2_0Row : Blocks<TENON_TQ2_0, 256, 66, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const Floats16 d = Floats16::all(half_scale(p + 64));
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
      __m128i q[2] = {load_bytes(p + 32 * half), load_bytes(p + 16 + 32 * half)};
#pragma GCC unroll 8
      for (uint32_t run = 8 * half; run < 8 * half + 8; ++run) {
        sink(run, mul(Floats16::from_i8(_mm_sub_epi8(masked(q[run % 2], 3), _mm_set1_epi8(1))), d));
        q[run % 2] = _mm_srli_epi16(q[run % 2], 2);
      }
    }
  }
};

// These are the digits of base three of sixteen bytes, the first digits first.
struct Digits {
  __m256i rest;

  explicit Digits(__m128i bytes) : rest(_mm256_cvtepu8_epi16(bytes)) {}
  // Returns the digits less 1; goes on to the next.
  __m128i next() {
    const __m256i tripled = _mm256_mullo_epi16(rest, _mm256_set1_epi16(3)), digit = _mm256_srli_epi16(tripled, 8);
    rest = _mm256_and_si256(tripled, _mm256_set1_epi16(255));
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(digit), _mm256_extracti128_si256(digit, 1));
    return _mm_sub_epi8(bytes, _mm_set1_epi8(1));
  }
};
struct Tq1_0Row : Blocks<TENON_TQ1_0, 256, 54, 2> {
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const Floats16 d = Floats16::all(half_scale(p + 52));
    Digits first[2] = {Digits(load_bytes(p)), Digits(load_bytes(p + 16))}, second(load_bytes(p + 32));
#pragma GCC unroll 10
    for (uint32_t run = 0; run < 10; ++run) sink(run, mul(Floats16::from_i8(first[run % 2].next()), d));
#pragma GCC unroll 5
    for (uint32_t run = 10; run < 15; ++run) sink(run, mul(Floats16::from_i8(second.next()), d));
    // Each of four weights is the next digit of one of four bytes: the bytes go on to their digit by a power of three.
    int32_t word;
    memcpy(&word, p + 48, sizeof(word));
    Digits last(_mm_set1_epi32(word));
    const __m256i powers = _mm256_setr_epi16(1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27);
    last.rest = _mm256_and_si256(_mm256_mullo_epi16(last.rest, powers), _mm256_set1_epi16(255));
    sink(15, mul(Floats16::from_i8(last.next()), d));
  }
};

#else

template <tenon_format Format, uint32_t Elements, size_t Bytes>
struct ScalarRow {
  static constexpr uint32_t kCode = Format, kElements = Elements, kHeader = 0, kColumns = 1;
  static constexpr size_t kBytes = Bytes;
  static float scale(const uint8_t*) { return 1; }
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    float w[Elements];
    unpack_row(Format, p, Elements, w);
    for (uint32_t i = 0; i < Elements / kLanes; ++i) sink(i, Floats16::load(w + i * kLanes));
  }
};
template <tenon_format Format, size_t Bytes>
struct ScalarPlain : ScalarRow<Format, 16, Bytes * 16> {
  static Floats16 some(const uint8_t* p, uint32_t n) {
    float w[16] = {};
    unpack_row(Format, p, n, w);
    return Floats16::load(w);
  }
};
using F32Row = ScalarPlain<TENON_F32, 4>;
using F16Row = ScalarPlain<TENON_F16, 2>;
using Bf16Row = ScalarPlain<TENON_BF16, 2>;
using Q4_0Row = ScalarRow<TENON_Q4_0, 32, 18>;
using Q4_1Row = ScalarRow<TENON_Q4_1, 32, 20>;
using Q5_0Row = ScalarRow<TENON_Q5_0, 32, 22>;
using Q5_1Row = ScalarRow<TENON_Q5_1, 32, 24>;
using Q8_0Row = ScalarRow<TENON_Q8_0, 32, 34>;
using Q2_KRow = ScalarRow<TENON_Q2_K, 256, 84>;
using Q3_KRow = ScalarRow<TENON_Q3_K, 256, 110>;
using Q4_KRow = ScalarRow<TENON_Q4_K, 256, 144>;
using Q5_KRow = ScalarRow<TENON_Q5_K, 256, 176>;
using Q6_KRow = ScalarRow<TENON_Q6_K, 256, 210>;
using Iq4NlRow = ScalarRow<TENON_IQ4_NL, 32, 18>;
using Iq4XsRow = ScalarRow<TENON_IQ4_XS, 256, 136>;
using Tq1_0Row = ScalarRow<TENON_TQ1_0, 256, 54>;
using Tq2_0Row = ScalarRow<TENON_TQ2_0, 256, 66>;
using Mxfp4Row = ScalarRow<TENON_MXFP4, 32, 17>;

#endif

}  // namespace
}  // namespace tenon::sdk::cpu
