// This file is compiled once for each instruction set.
#include "../int8_rows/kernels.h"

#include "../int8_rows/rows.h"
#include "schema.h"

namespace tenon::int8_rows {

constinit const sdk::cpu::KernelTable TENON_ISA::kKernels{kOps<bitsandbytes::RoundedSchema>, &sdk::cpu::tile_product,
                                                          kFormats, 1};

}  // namespace tenon::int8_rows
