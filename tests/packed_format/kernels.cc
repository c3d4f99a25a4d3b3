// This is compiled once for each instruction set.
#include "tenon/sdk/cpu/packed_products.h"
#include "tenon/sdk/cpu/products.h"
#include "two_bits.h"

namespace acme {
namespace {

using namespace tenon::sdk::cpu;

struct TwoBits : PackedUnit {
  static constexpr uint32_t kCode = kTwoBits, kUnitBytes = acme::kUnitBytes, kBlocks = 1, kParts = 1;
  static constexpr int kOffset = 1;
  static constexpr bool kMinima = false;
  PackedBlock<1> block(uint32_t) const {
    PackedBlock<1> out;
    out.scale = halves(0);
    for (uint32_t s = 0; s < 2; ++s) {
      const RowCodes c = codes(32 + 64 * s);
      out.code[s] = shifted<0>(c, 3);
      out.code[s + 2] = shifted<2>(c, 3);
      out.code[s + 4] = shifted<4>(c, 3);
      out.code[s + 6] = shifted<6>(c, 3);
    }
    return out;
  }
};
constexpr PackedFormat kFormats[] = {packed_format<TwoBits>()};

}  // namespace

// The table has no format of its own in f32, and nothing but what rows of x go through on their way.
constinit const KernelTable TENON_ISA::kKernels = {kRowOps, &tile_product, nullptr, 0};
constinit const PackedTable TENON_ISA::kPacked = {kFormats, 1};

}  // namespace acme
