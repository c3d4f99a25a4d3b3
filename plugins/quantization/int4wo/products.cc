// These are packed rows (packings.h) as products of x in 16 bits read them. The file is compiled once for each
// instruction set that has dot products of bytes.
#include "kernels.h"
#include "pack.h"
#include "tenon/sdk/cpu/wide_products.h"

namespace tenon::int4wo {
namespace {

using namespace sdk::cpu;

// A weight is scale * code + (zero - 8 * scale).
template <uint32_t kGroup>
struct PackedInt4 : PackedUnit {
  static constexpr uint32_t kCode = code_of(kGroup), kUnitBytes = 64 + 8 * kGroup, kBlocks = kGroup / 32;
  static constexpr int kOffset = 0;
  static constexpr bool kMinima = true;

  explicit PackedInt4(const PackedUnit& unit)
      : PackedUnit(unit), scale_(bfloats(0)), minimum_(fma(scale_, RowFloats::all(-8), bfloats(32))) {}
  PackedBlock<1> block(uint32_t b) const {
    PackedBlock<1> out;
    out.scale = scale_;
    out.minimum = minimum_;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const RowCodes c = codes(64 + b * size_t{256} + 64 * i);
      out.code[i] = shifted<0>(c, 15);
      out.code[i + 4] = shifted<4>(c, 15);
    }
    return out;
  }

 private:
  RowFloats scale_, minimum_;
};
constexpr PackedFormat kFormats[] = {wide_format<PackedInt4<32>>(), wide_format<PackedInt4<64>>(),
                                     wide_format<PackedInt4<128>>(), wide_format<PackedInt4<256>>()};

}  // namespace

constinit const PackedTable TENON_ISA::kPacked{kFormats, 4};

}  // namespace tenon::int4wo
