// Products of x in 16 bits read packed rows (packings.h) so. This is compiled once for each instruction set that has
// dot products of bytes. A quad's two integers become two words of each lane, and a shuffle chooses the two x of their
// columns: eight dot products multiply 32 k of a vector's rows.
#include <utility>

#include "../coded/kernels.h"
#include "pairs.h"
#include "tenon/sdk/cpu/wide_products.h"

namespace tenon::sparse24 {
namespace {

using namespace sdk::cpu;

// For each pair that a quad may keep this says which bytes of four words of x are the two of its columns. It has as
// many entries as a look-up in a register has lanes.
struct Places {
  uint32_t of_pair[kSide];
};
constexpr Places kPlaces = [] {
  Places places{};
  for (uint32_t i = 0; i < kPairCount; ++i) {
    const uint32_t first = 2 * word_place(kPairs[i].first), second = 2 * word_place(kPairs[i].second);
    places.of_pair[i] = first | (first + 1) << 8 | second << 16 | (second + 1) << 24;
  }
  return places;
}();

template <uint32_t kIndex>
struct PackedSparse : PackedUnit {
  static constexpr uint32_t kCode = kOwnFormats + kIndex, kHeader = kGroups[kIndex] != 0 ? kGroupRows * kHalfBytes : 0;
  static constexpr uint32_t kBlocks = kGroups[kIndex] != 0 ? kGroups[kIndex] / kUnit : 1;
  static constexpr uint32_t kUnitBytes = kHeader + kBlocks * kGroupRows * sparse24::kUnitBytes;
  static constexpr int kOffset = 0;
  static constexpr bool kMinima = false, kRowScales = kHeader == 0;

  explicit PackedSparse(const PackedUnit& unit)
      : PackedUnit(unit), scale_(kHeader != 0 ? halves(0) : RowFloats::all(1)) {}
  ChosenBlock block(uint32_t b) const {
    ChosenBlock out;
    out.scale = scale_;
    const size_t at = kHeader + b * size_t{192};
    const RowCodes four[2] = {codes(at), codes(at + 64)}, pairs = codes(at + 128);
    const auto put = [&]<uint32_t... kQuad>(std::integer_sequence<uint32_t, kQuad...>) {
      ((out.place[kQuad] = looked_up_lanes<4 * kQuad>(kPlaces.of_pair, pairs)), ...);
      ((out.word[kQuad] = signed_fours<4 * (kQuad % 4)>(four[kQuad / 4])), ...);
    };
    put(std::make_integer_sequence<uint32_t, kQuads>{});
    return out;
  }

 private:
  RowFloats scale_;
};
constexpr PackedFormat kFormats[] = {wide_format<PackedSparse<0>>(), wide_format<PackedSparse<1>>(),
                                     wide_format<PackedSparse<2>>(), wide_format<PackedSparse<3>>()};

}  // namespace
}  // namespace tenon::sparse24

constinit const tenon::sdk::cpu::PackedTable tenon::coded::TENON_ISA::kPacked{tenon::sparse24::kFormats, 4};
