// Half-quadratic quantization finds zero points (Badri and Shaji, "Half-Quadratic Quantization of Large Machine
// Learning Models", 2023): the error is taken to be a few large numbers, which may be there, and many small ones, which
// a better zero point makes smaller. The two are found in turns.
#pragma once

#include "quantize_rows.h"

namespace tenon::rows {

// Returns int4_group_of_range() with that zero point of those tried which leaves
// the least mean |w - what it stands for|.
Int4Group int4_group_by_hqq(const float* w, uint32_t n);

}  // namespace tenon::rows
