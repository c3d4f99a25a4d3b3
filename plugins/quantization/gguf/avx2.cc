#include "kernels.h"
#include "table.h"
#include "tenon/sdk/cpu/packed_products.h"

namespace tenon::gguf {

constinit const sdk::cpu::KernelTable kAvx2Kernels = kTable;
constinit const sdk::cpu::PackedTable kAvx2Packed = sdk::cpu::kPackedTable;

}  // namespace tenon::gguf
