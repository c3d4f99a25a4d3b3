// These are the decisions of a negotiation, as `tenon plan` prints them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tenon/core/pipeline.h"

namespace tenon {

// Returns the path without its layer's number: "layers.12.mlp" -> "layers.*.mlp".
std::string without_layer(const std::string& path);

// Gathers decisions that are alike: those of all layers under "layers.*.mlp.down", and where layers differ
// those of some under "layers.0-3,7.mlp.down".
class DecisionLog {
 public:
  // `name` is the model instance's; all paths begin with it.
  explicit DecisionLog(std::string name) : name_(std::move(name)) {}

  void note(const std::string& path, const std::string& text);
  std::vector<Decision> decisions() const;

 private:
  struct Noted {
    Decision decision;
    std::vector<int> layers;
  };
  bool has_rival(const Noted& noted) const;  // Other layers decided otherwise under the same path.

  std::string name_;
  std::vector<Noted> noted_;
};

}  // namespace tenon
