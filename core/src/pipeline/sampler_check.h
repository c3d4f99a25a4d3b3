// While a program is recorded, what each sampler leaves is checked against what the next component needs.
#pragma once

#include <string>

#include "tenon/abi/sampler.h"
#include "tenon/core/program.h"

namespace tenon {

// Returns "" or what is wrong with `left`, which a processor made of `given` with the ops from `first_op` on: the form,
// the sizes, a tensor that is not there or that nothing writes, an input that was written to.
std::string candidates_problem(const ProgramRecording& rec, size_t first_op, const tenon_candidates& given,
                               const tenon_candidates& left);

// Returns "" or what is wrong with a selector's ops from `first_op` on: none of them writes the chosen tokens.
std::string selection_problem(const ProgramRecording& rec, size_t first_op, tenon_tid next);

}  // namespace tenon
