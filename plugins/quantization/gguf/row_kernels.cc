// This file is compiled once for each instruction set.
#include "kernels.h"
#include "tenon/sdk/cpu/row_formats.h"

namespace tenon::gguf {
namespace {

using namespace sdk::cpu;
constexpr RowFormat kFormats[] = {row_format<F32Row>(),   row_format<F16Row>(),   row_format<Bf16Row>(),
                                  row_format<Q4_0Row>(),  row_format<Q4_1Row>(),  row_format<Q5_0Row>(),
                                  row_format<Q5_1Row>(),  row_format<Q8_0Row>(),  row_format<Q2_KRow>(),
                                  row_format<Q3_KRow>(),  row_format<Q4_KRow>(),  row_format<Q5_KRow>(),
                                  row_format<Q6_KRow>(),  row_format<Iq4NlRow>(), row_format<Iq4XsRow>(),
                                  row_format<Tq1_0Row>(), row_format<Tq2_0Row>(), row_format<Mxfp4Row>()};
constexpr KernelTable kTable{kRowOps, &tile_product, kFormats, sizeof(kFormats) / sizeof(kFormats[0])};

}  // namespace

constinit const KernelTable TENON_ISA::kKernels = kTable;

}  // namespace tenon::gguf
