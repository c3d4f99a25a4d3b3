// This file is compiled once for each instruction set.
#include "kernels.h"

#include "tenon/sdk/cpu/row_formats.h"

namespace tenon::none {
namespace {

using namespace sdk::cpu;
constexpr RowFormat kFormats[] = {row_format<F32Row>(), row_format<F16Row>(), row_format<Bf16Row>()};
constexpr KernelTable kTable{kRowOps, &tile_product, kFormats, sizeof(kFormats) / sizeof(kFormats[0])};

}  // namespace

constinit const KernelTable TENON_ISA::kKernels = kTable;

}  // namespace tenon::none
