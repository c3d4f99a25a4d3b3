#include "kernels.h"
#include "tenon/sdk/cpu/packed_products.h"

namespace tenon::gguf {

constinit const sdk::cpu::PackedTable kAvx512VnniPacked = sdk::cpu::kPackedTable;

}  // namespace tenon::gguf
