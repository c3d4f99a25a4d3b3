// This looks in every step at what each processor of a sampler's chain leaves, right after the processor.
#pragma once

#include "tenon/abi/sampler.h"

namespace tenon {

// Records an op that fails where candidates are left that no sampler may leave, and says which: of SPARSE a count that
// is not 1 to cap or an id that is no token, of both forms no logit above -infinity. Rows that came to the processor so,
// or with a NaN or +infinity, which VERIFY tells of (tenon/sdk/told.h), are passed over: that is another's fault. It
// reads each candidate once, a small part of what any processor does. The op belongs to the recorder's scope. Throws
// sdk::Failed. Only for devices that walk the program.
void record_candidates_check(const tenon_candidates& given, const tenon_candidates& left, const tenon_recorder* rec);

}  // namespace tenon
