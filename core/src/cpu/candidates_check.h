// What a processor of a sampler's chain leaves, looked at in every step where it leaves it.
#pragma once

#include "tenon/abi/sampler.h"

namespace tenon {

// Records an op that fails where candidates are left that no sampler may leave, and says which: of SPARSE a count that
// is not 1 to cap or an id that is no token, of both forms a logit that is NaN or +infinity, or none above -infinity.
// Rows that came to the processor with such a logit are passed over: they are the fault of what was there before. It
// reads each candidate once, a small part of what any processor does. The op belongs to the recorder's scope. Throws
// sdk::Failed. Only for devices that walk the program.
void record_candidates_check(const tenon_candidates& given, const tenon_candidates& left, const tenon_recorder* rec);

}  // namespace tenon
