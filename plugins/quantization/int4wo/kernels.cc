// This file is compiled once for each instruction set.
#include "kernels.h"

#include "pack.h"
#include "tenon/sdk/cpu/products.h"

namespace tenon::int4wo {
namespace {

using namespace sdk::cpu;

inline float bf16_at(const uint8_t* p) {
  uint16_t half;
  memcpy(&half, p, sizeof(half));
  const uint32_t bits = uint32_t{half} << 16;
  float f;
  memcpy(&f, &bits, sizeof(f));
  return f;
}

template <uint32_t G>
struct Int4Row {
  static constexpr uint32_t kCode = code_of(G), kElements = G, kHeader = 0, kColumns = 4;
  static constexpr size_t kBytes = kGroupHeader + G / 2;
  static float scale(const uint8_t*) { return 1; }
  template <class Sink>
  static void block(const uint8_t* p, Sink&& sink) {
    const Nibbles<8> weights(bf16_at(p), bf16_at(p + 2));
    for (uint32_t i = 0; i < G / 32; ++i) {
      sink(2 * i, weights.low(p + kGroupHeader + 16 * i));
      sink(2 * i + 1, weights.high(p + kGroupHeader + 16 * i));
    }
  }
};
constexpr RowFormat kFormats[] = {row_format<Int4Row<32>>(), row_format<Int4Row<64>>(), row_format<Int4Row<128>>(),
                                  row_format<Int4Row<256>>()};
constexpr KernelTable kTable{kRowOps, &tile_product, kFormats, 4};

}  // namespace

constinit const KernelTable TENON_ISA::kKernels = kTable;

}  // namespace tenon::int4wo
