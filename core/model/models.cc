// The architectures that there are, and which of them weights are of.
#include <array>

#include "llama/llama.h"
#include "tenon/core/error.h"
#include "tenon/core/module.h"
#include "weights/layout.h"

namespace tenon {

std::span<const ModelKind> builtin_models() {
  static const std::array kModels = {llama::kind()};
  return kModels;
}

namespace {

const char* architecture_key(const Weights& weights) {
  return weights.convention() == "gguf" ? "general.architecture" : "model_type";
}

}  // namespace

std::string architecture_of(const Weights& weights) {
  return metadata_text(weights, architecture_key(weights)).value_or("");
}

const ModelKind& model_kind_for(const Weights& weights) {
  std::string known;
  for (const ModelKind& kind : builtin_models()) {
    if (kind.claims(weights)) return kind;
    known += (known.empty() ? "" : "; ") + std::string(kind.name) + ": " + std::string(kind.doc);
  }
  const std::string found = architecture_of(weights);
  throw Error(
      ErrorCode::kModel, {weights::description_file(weights)},
      "key \"" + std::string(architecture_key(weights)) + "\": " +
          (found.empty() ? "the weights name no architecture" : "architecture \"" + found + "\" is not supported") +
          "; supported: " + known);
}

}  // namespace tenon
