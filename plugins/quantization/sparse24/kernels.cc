// This is compiled once for each instruction set. A weight is scale * (code - 8), with code = integer + 8, which scale
// * code and scale * 8 give exactly, since a scale has 11 bits.
#include "../coded/kernels.h"

#include "definition.h"
#include "tenon/sdk/cpu/products.h"
#include "tenon/sdk/cpu/sparse_rows.h"

namespace tenon::sparse24 {
namespace {

using namespace sdk::cpu;

inline float scale_at(const uint8_t* p) {
#if defined(__AVX2__)
  return half_scale(p);
#else
  return sdk::half_to_float(static_cast<uint16_t>(p[0] | p[1] << 8));
#endif
}

// Makes the weights of a unit whose group has a scale, for a sink of products.h.
template <class Sink>
inline void put_unit(const SparseQuads& weights, const uint8_t* unit, uint32_t first, Sink&& sink) {
  weights(unit, unit + kQuads, first, sink);
}

// This reads a row whose groups of weights have a scale each.
template <uint32_t kIndex>
struct GroupRow {
  static constexpr uint32_t kCode = kOwnFormats + kIndex, kElements = kGroups[kIndex], kHeader = 0, kColumns = 4;
  static constexpr uint32_t kUnits = kElements / kUnit;
  static constexpr size_t kBytes = kHalfBytes + kUnits * kUnitBytes;
  static float scale(const uint8_t*) { return 1; }
  template <class Sink>
  static void block(const uint8_t* group, Sink&& sink) {
    const SparseQuads weights(scale_at(group));
#pragma GCC unroll 4
    for (uint32_t u = 0; u < kUnits; ++u) put_unit(weights, group + kHalfBytes + u * kUnitBytes, 2 * u, sink);
  }
};
// This reads a row that has one scale.
struct WholeRow {
  static constexpr uint32_t kCode = kOwnFormats, kElements = kUnit, kHeader = kHalfBytes, kColumns = 2;
  static constexpr size_t kBytes = kUnitBytes;
  static float scale(const uint8_t* row) { return scale_at(row); }
  template <class Sink>
  static void block(const uint8_t* unit, Sink&& sink) {
    put_unit(SparseQuads(1), unit, 0, sink);
  }
};
constexpr RowFormat kFormats[] = {row_format<WholeRow>(), row_format<GroupRow<1>>(), row_format<GroupRow<2>>(),
                                  row_format<GroupRow<3>>()};

constexpr KernelTable kTable{kRowOps, &tile_product, kFormats, kGroupCount};

}  // namespace
}  // namespace tenon::sparse24

namespace tenon::coded {
constinit const sdk::cpu::KernelTable TENON_ISA::kKernels = sparse24::kTable;
}  // namespace tenon::coded
