// kernels.cc of a scheme's folder, which is compiled once for each instruction set,
// makes the kernels of its codings by this.
#pragma once

#include "kernels.h"
#include "rows.h"

#define TENON_CODED_KERNELS(SCHEMA)                                                                     \
  namespace tenon::coded {                                                                              \
  namespace {                                                                                           \
  constexpr auto kFormats = row_formats<SCHEMA>();                                                      \
  }                                                                                                     \
  constinit const sdk::cpu::KernelTable TENON_ISA::kKernels{sdk::cpu::kRowOps, &sdk::cpu::tile_product, \
                                                            kFormats.data(), kFormats.size()};          \
  }                                                                                                     \
  static_assert(true)  // it takes the semicolon
