// This file is compiled for AVX-512 VNNI, where one look-up gives 32 numbers of 16 bits.
#include "../coded/wide_rows.h"
#include "schema.h"

TENON_CODED_PRODUCTS(tenon::fp6::Schema);
