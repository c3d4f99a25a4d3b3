// These are the checks of each kind; a kind's are in <kind>_suite.cc.
#pragma once

#include "conformance/suite.h"

namespace tenon::conformance {

std::vector<Check> attention_checks();
std::vector<Check> draft_checks();
std::vector<Check> grammar_checks();
std::vector<Check> kv_cache_checks();
std::vector<Check> op_checks();
std::vector<Check> quantization_checks();
std::vector<Check> sampler_checks();
std::vector<Check> scheduler_checks();

}  // namespace tenon::conformance
