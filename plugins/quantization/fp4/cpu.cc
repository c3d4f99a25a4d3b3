#include "../coded/cpu_scheme.h"
#include "../coded/packings.h"
#include "schema.h"

namespace tenon::fp4 {
using Scheme = coded::CpuScheme<Schema, &coded::wide_kernels<Schema>>;
}

TENON_PLUGIN(tenon::fp4::Scheme);
