// These are what the words of tenon/sdk/cpu/vector.h give for one instruction set, as plain arrays.
#pragma once

#include <stdint.h>

namespace tenon::test {

enum { kMostLanes = 16 };

struct VectorInput {
  float a[kMostLanes], b[kMostLanes], c[kMostLanes];
  uint16_t halves[kMostLanes], bf16[kMostLanes];
  uint8_t bytes[kMostLanes];  // U8 and I8
  uint8_t codes[4 * kMostLanes];
  int8_t x[4];  // every lane's codes meet these
};

// These are results by lane, of Floats<kWidth> but where it says otherwise.
struct VectorWords {
  uint32_t width;
  float from_f32[kMostLanes], from_f16[kMostLanes], from_bf16[kMostLanes], from_u8[kMostLanes], from_i8[kMostLanes];
  float first_of_f32[kMostLanes];  // width / 2 of them
  float multiplied[kMostLanes], divided[kMostLanes], most[kMostLanes], rounded[kMostLanes], signs[kMostLanes];
  float powers[kMostLanes];     // powers of the rounded numbers
  float not_below[kMostLanes];  // b where a is not below c
  float largest;
  float fused[kMostLanes];                    // a * b + c, of Floats<16>
  float sum16, sums4[4];                      // sums of Floats<16>: a; a, b, c, a
  float first16[kMostLanes];                  // the first 11 of a
  float transposed[kMostLanes * kMostLanes];  // (width, width), in which row r had a[c] + 100 r
  uint32_t double_width;
  double sums[kMostLanes];  // a * b + (c[1] + a), of Doubles<kDoubleWidth>
  // From vector_bits.h come the products of 1000003 (i + 1) + 2^40 with 4000000007, and the
  // lanes of 0, 1, ... and 100, 101, ... in turn.
  uint32_t long_lanes;
  uint64_t long_products[kMostLanes], interleaved[2 * kMostLanes];
  uint32_t dot_lanes;
  int32_t dots[kMostLanes];     // products with codes that are 8 too large
  int32_t shifted[kMostLanes];  // codes shifted down by 2, masked with 3, joined with the codes' 0x30
  int32_t raised[kMostLanes];   // codes shifted up by 2, their bits 0x30, and 256 times the sum
  int32_t found[kMostLanes];    // a table's entries for the codes' lowest four bits: 127 less 3 times them
};

namespace scalar {
VectorWords words(const VectorInput& in);
}
namespace avx2 {
VectorWords words(const VectorInput& in);
}
namespace avx512 {
VectorWords words(const VectorInput& in);
}
namespace avx512_vnni {
VectorWords words(const VectorInput& in);
}

}  // namespace tenon::test
