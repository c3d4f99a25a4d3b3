// This file is compiled once for each instruction set that has dot products of bytes.
#include "e2m1_rows.h"
#include "held.h"

TENON_CODED_PRODUCTS(tenon::published::HeldBooks);
