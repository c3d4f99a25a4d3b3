// This has GGUF's packed formats (packings.h) for packed_products.h. It is compiled once for each instruction set.
#include "codes.h"
#include "kernels.h"
#include "tenon/sdk/cpu/packed_products.h"

namespace tenon::gguf {
namespace {

using namespace sdk::cpu;

// Steps i and i + 4 share bytes: the low and the high nibble.
inline void four_bits(const PackedUnit& unit, size_t at, RowCodes (&code)[8]) {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    const RowCodes c = unit.codes(at + 64 * i);
    code[i] = shifted<0>(c, 15);
    code[i + 4] = shifted<4>(c, 15);
  }
}
// Steps 0 to 2 have the lower six bits of their bytes; step 3 has two of each in the upper ones. 4 to 7 are alike.
inline void six_bits(const PackedUnit& unit, size_t at, RowCodes (&code)[8]) {
#pragma GCC unroll 2
  for (uint32_t half = 0; half < 2; ++half, at += 192) {
    const RowCodes c0 = unit.codes(at), c1 = unit.codes(at + 64), c2 = unit.codes(at + 128);
    RowCodes* to = code + 4 * half;
    to[0] = shifted<0>(c0, 63);
    to[1] = shifted<0>(c1, 63);
    to[2] = shifted<0>(c2, 63);
    to[3] = joined(joined(shifted<6>(c0, 3), shifted<4>(c1), 0x0c), shifted<2>(c2), 0x30);
  }
}

struct PackedQ4_0 : PackedUnit {
  static constexpr uint32_t kCode = kPackedQ4_0, kUnitBytes = 288, kBlocks = 1, kParts = 1;
  static constexpr int kOffset = 8;
  static constexpr bool kMinima = false;
  PackedBlock<1> block(uint32_t) const {
    PackedBlock<1> out;
    out.scale = halves(0);
    four_bits(*this, 32, out.code);
    return out;
  }
};
struct PackedQ4_1 : PackedUnit {
  static constexpr uint32_t kCode = kPackedQ4_1, kUnitBytes = 320, kBlocks = 1, kParts = 1;
  static constexpr int kOffset = 0;
  static constexpr bool kMinima = true;
  PackedBlock<1> block(uint32_t) const {
    PackedBlock<1> out;
    out.scale = halves(0);
    out.minimum = halves(32);
    four_bits(*this, 64, out.code);
    return out;
  }
};
struct PackedQ5_0 : PackedUnit {
  static constexpr uint32_t kCode = kPackedQ5_0, kUnitBytes = 416, kBlocks = 1, kParts = 1;
  static constexpr int kOffset = 16;
  static constexpr bool kMinima = false;
  PackedBlock<1> block(uint32_t) const {
    PackedBlock<1> out;
    out.scale = halves(0);
    six_bits(*this, 32, out.code);
    return out;
  }
};
struct PackedQ8_0 : PackedUnit {
  static constexpr uint32_t kCode = kPackedQ8_0, kUnitBytes = 544, kBlocks = 1, kParts = 1;
  static constexpr int kOffset = 128;
  static constexpr bool kMinima = false;
  PackedBlock<1> block(uint32_t) const {
    PackedBlock<1> out;
    out.scale = halves(0);
#pragma GCC unroll 8
    for (uint32_t s = 0; s < 8; ++s) out.code[s] = codes(32 + 64 * s);
    return out;
  }
};
struct PackedQ4_K : PackedUnit {
  static constexpr uint32_t kCode = kPackedQ4_K, kUnitBytes = 2368, kBlocks = 8, kParts = 1;
  static constexpr int kOffset = 0;
  static constexpr bool kMinima = true;
  explicit PackedQ4_K(const PackedUnit& unit) : PackedUnit(unit), d_(halves(0)), m_(negative(halves(32))) {}
  PackedBlock<1> block(uint32_t b) const {
    PackedBlock<1> out;
    const size_t part = 64 + b * size_t{288};
    out.scale = mul(d_, bytes_without_sign(part));
    out.minimum = mul(m_, bytes_without_sign(part + 16));
    four_bits(*this, part + 32, out.code);
    return out;
  }
  RowFloats d_, m_;
};
struct PackedQ6_K : PackedUnit {
  static constexpr uint32_t kCode = kPackedQ6_K, kUnitBytes = 3360, kBlocks = 8, kParts = 2;
  static constexpr int kOffset = 32;
  static constexpr bool kMinima = false;
  explicit PackedQ6_K(const PackedUnit& unit) : PackedUnit(unit), d_(halves(0)) {}
  PackedBlock<2> block(uint32_t b) const {
    PackedBlock<2> out;
    const size_t part = 32 + b * size_t{416};
    out.scale = d_;
    out.part_scale[0] = bytes_with_sign(part);
    out.part_scale[1] = bytes_with_sign(part + 16);
    six_bits(*this, part + 32, out.code);
    return out;
  }
  RowFloats d_;
};

constexpr PackedFormat kFormats[] = {packed_format<PackedQ4_0>(), packed_format<PackedQ4_1>(),
                                     packed_format<PackedQ8_0>(), packed_format<PackedQ4_K>(),
                                     packed_format<PackedQ6_K>(), packed_format<PackedQ5_0>()};

}  // namespace

constinit const PackedTable TENON_ISA::kPacked{kFormats, sizeof(kFormats) / sizeof(kFormats[0])};

}  // namespace tenon::gguf
