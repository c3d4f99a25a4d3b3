// This translates a model between GGUF and Hugging Face.
#pragma once

#include "family.h"
#include "tenon/core/module.h"

namespace tenon::family {

// See ModelKind::translate.
Translation translate(const Family& family, const Weights& weights, std::span<const std::string> ignored);

}  // namespace tenon::family
