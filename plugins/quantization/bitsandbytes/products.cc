// This file is compiled once for each instruction set.
#include "../int8_rows/products.h"

namespace tenon::int8_rows {

constinit const sdk::cpu::PackedTable TENON_ISA::kProducts{kProductFormats, 1};

}  // namespace tenon::int8_rows
