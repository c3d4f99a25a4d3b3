// This file is compiled once for each instruction set.
#include "../coded/schema_kernels.h"
#include "schema.h"

TENON_CODED_KERNELS(tenon::nf4::Schema);
