// This file is compiled once for each instruction set.
#include "../coded/schema_kernels.h"
#include "held.h"

TENON_CODED_KERNELS(tenon::published::HeldBooks);
