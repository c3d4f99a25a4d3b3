// These are the row kernels of each instruction set; they are equal to the bit.
#pragma once

#include "tenon/sdk/cpu/row_kernels.h"

namespace tenon::int4wo::scalar {
extern const sdk::cpu::KernelTable kKernels;
}
namespace tenon::int4wo::avx2 {
extern const sdk::cpu::KernelTable kKernels;
}
namespace tenon::int4wo::avx512 {
extern const sdk::cpu::KernelTable kKernels;
}
// These multiply x in 16 bits by packed rows; they are equal to the bit.
namespace tenon::int4wo::avx_vnni {
extern const sdk::cpu::PackedTable kPacked;
}
namespace tenon::int4wo::avx512_vnni {
extern const sdk::cpu::PackedTable kPacked;
}
