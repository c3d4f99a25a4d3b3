// Llama and what shares its shape, as the list of models has it.
#pragma once

#include "tenon/core/module.h"

namespace tenon::llama {

const ModelKind& kind();

}  // namespace tenon::llama
