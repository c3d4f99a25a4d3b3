// This file is compiled once for each instruction set.
#include "kernels.h"

#include "pack.h"
#include "tenon/sdk/cpu/products.h"

namespace tenon::int8wo {
namespace {

using namespace sdk::cpu;

struct Int8Row {
  static constexpr uint32_t kCode = kInt8Row, kElements = 16, kHeader = kScaleBytes, kColumns = 2;
  static constexpr size_t kBytes = 16;
  static float scale(const uint8_t* row) {
    float s;
    memcpy(&s, row, sizeof(s));
    return s;
  }
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    sink(0, Floats16::decode<TENON_I8>(p));
  }
};
constexpr RowFormat kFormats[] = {row_format<Int8Row>()};
constexpr KernelTable kTable{kRowOps, &tile_product, kFormats, 1};

}  // namespace

constinit const KernelTable TENON_ISA::kKernels = kTable;

}  // namespace tenon::int8wo
