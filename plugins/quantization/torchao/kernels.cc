// Compiled once for each instruction set.
#include "../coded/kernels.h"

#include "../coded/rows.h"
#include "schema.h"

namespace tenon::coded {
namespace {
constexpr auto kFormats = row_formats<torchao::Schema>();
}

constinit const sdk::cpu::KernelTable TENON_ISA::kKernels{sdk::cpu::kRowOps, &sdk::cpu::tile_product, kFormats.data(),
                                                          kFormats.size()};

}  // namespace tenon::coded
