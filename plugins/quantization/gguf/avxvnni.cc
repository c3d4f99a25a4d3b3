#include "kernels.h"
#include "tenon/sdk/cpu/packed_products.h"

namespace tenon::gguf {

constinit const sdk::cpu::PackedTable kAvxVnniPacked = sdk::cpu::kPackedTable;

}  // namespace tenon::gguf
