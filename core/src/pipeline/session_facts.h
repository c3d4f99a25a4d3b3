// The cells of a sequence depend on these facts: a saved sequence that has others is refused.
#pragma once

#include <vector>

#include "model_instance.h"
#include "tenon/core/saved_sequence.h"

namespace tenon {

// Returns the facts of models that were negotiated, whose weights are looked at here and there. draft_model may be
// nullptr. The caches themselves refuse cells of another format or of other dimensions. Throws Error(kIo).
std::vector<SessionFact> session_facts(const ModelInstance& target, const ModelInstance* draft_model);

}  // namespace tenon
