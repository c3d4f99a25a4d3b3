// A step program is shown as a table and as JSON.
#pragma once

#include "tenon/core/pipeline.h"

namespace tenon::app {

// A step's costs are worked out for this. 0 rows: the program of one token a sequence; 0 context: one token a row.
struct StepSize {
  uint32_t rows = 0, context = 0;
};

// Prints the program that takes so many rows. Throws Error(kUsage) if none does.
void print_program(const Pipeline& pipeline, const StepSize& size, bool json);

}  // namespace tenon::app
