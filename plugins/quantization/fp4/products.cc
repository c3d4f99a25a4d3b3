// This file is compiled once for each instruction set that has dot products of bytes.
#include "../coded/wide_rows.h"
#include "schema.h"

TENON_CODED_PRODUCTS(tenon::fp4::Schema);
