// This looks in every step at what each processor of a sampler's chain leaves, right after the processor.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/abi/sampler.h"

namespace tenon {

// This is a row of candidates in the host's memory.
struct CandidateRow {
  uint32_t vocab, cap;
  const float* logits;
  const int32_t* id;  // nullptr of DENSE
  int32_t count;      // entries; the vocabulary of DENSE
};

// Says why the row's count or its ids are none that a processor may leave: "leaves ..."; "" if they are sound.
std::string entries_problem(const CandidateRow& row);
// Says why none of its entries, which are sound, can be chosen; "" if one can.
std::string choice_problem(const CandidateRow& row);

// Records an op that fails where candidates are left that no sampler may leave, and says which: of SPARSE a count that
// is not 1 to cap or an id that is no token, of both forms no logit above -infinity. Rows that came to the processor
// so, or with a NaN or +infinity, which VERIFY tells of (tenon/sdk/told.h), are passed over: that is another's fault.
// It reads each candidate once, a small part of what any processor does. The op belongs to the recorder's scope. Throws
// sdk::Failed. This is only for devices that walk the program: the others tell the host in the end.
void record_candidates_check(const tenon_candidates& given, const tenon_candidates& left, const tenon_recorder* rec);

}  // namespace tenon
