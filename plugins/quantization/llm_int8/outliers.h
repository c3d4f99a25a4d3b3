// Outliers of x add this to a product on the CPU: y[r][c] += scale[c] * (sum of fp16(x[r][i]) * q[c][i] over outliers
// i), an op after the product of integers, in which they count as zeros.
#pragma once

#include "tenon/sdk/cpu/linear_site.h"
#include "tenon/sdk/recorder.h"

namespace tenon::llm_int8 {

// Columns are cut by the device's `threads`.
void record_outliers(const sdk::cpu::LinearSite& site, uint32_t threads, const tenon_linear_call& call,
                     sdk::Recorder& rec);

}  // namespace tenon::llm_int8
