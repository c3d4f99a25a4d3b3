// This file is compiled once for each instruction set.
#include "../coded/schema_kernels.h"
#include "published.h"

TENON_CODED_KERNELS(tenon::fp8::PublishedSchema);
