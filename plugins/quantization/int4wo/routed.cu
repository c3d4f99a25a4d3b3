#include "routed.cuh"

namespace tenon {
TENON_INT4_ROUTED(, 32)
TENON_INT4_ROUTED(, 64)
TENON_INT4_ROUTED(, 128)
}  // namespace tenon
