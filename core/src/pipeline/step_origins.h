// A step looks like this in the trace.
#pragma once

#include <array>

#include "tenon/core/pipeline.h"
#include "tenon/core/trace.h"

namespace tenon {

struct StepOrigins {
  static constexpr const char* kPhases[] = {"decode", "verify", "prefill"};
  // `draft` is the id of the component that proposes, "" if there is none.
  StepOrigins(trace::Recorder& recorder, const std::string& draft) {
    if (!draft.empty()) propose = recorder.add_origin(trace::draft_origin(draft));
    for (size_t i = 0; i < 3; ++i) {
      steps[i] = recorder.add_origin(trace::step_origin(kPhases[i]));
      phases[i] = recorder.add_origin(trace::section_origin(kPhases[i]));
    }
  }
  static size_t phase_of(const StepBatch& batch) { return batch.prompts > 0 ? 2 : batch.drafted > 0 ? 1 : 0; }

  std::array<trace::OriginId, 3> steps{}, phases{};
  trace::OriginId propose{};
};

}  // namespace tenon
