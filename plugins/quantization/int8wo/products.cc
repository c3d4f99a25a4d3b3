// These are packed rows (packings.h) as products of x in 16 bits read them. The file is compiled once for each
// instruction set that has dot products of bytes.
#include "kernels.h"
#include "pack.h"
#include "tenon/sdk/cpu/wide_products.h"

namespace tenon::int8wo {
namespace {

using namespace sdk::cpu;

struct PackedInt8 : PackedUnit {
  static constexpr uint32_t kCode = kInt8Row, kUnitBytes = 512, kBlocks = 1;
  static constexpr int kOffset = 128;
  static constexpr bool kMinima = false, kRowScales = true;

  explicit PackedInt8(const PackedUnit& unit) : PackedUnit(unit) {}
  PackedBlock<1> block(uint32_t) const {
    PackedBlock<1> out;
    out.scale = RowFloats::all(1);
#pragma GCC unroll 8
    for (uint32_t s = 0; s < 8; ++s) out.code[s] = codes(64 * size_t{s});
    return out;
  }
};
constexpr PackedFormat kFormats[] = {wide_format<PackedInt8>()};

}  // namespace

constinit const PackedTable TENON_ISA::kPacked{kFormats, 1};

}  // namespace tenon::int8wo
