#include "kernels.h"
#include "table.h"
#include "tenon/sdk/cpu/packed_products.h"

namespace tenon::gguf {

constinit const sdk::cpu::KernelTable kScalarKernels = kTable;
constinit const sdk::cpu::PackedTable kScalarPacked = sdk::cpu::kPackedTable;

}  // namespace tenon::gguf
