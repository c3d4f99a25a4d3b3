// This finds the tensors of the weights by the house's names, and notes what a model declares of them.
#pragma once

#include <string>
#include <vector>

#include "family.h"
#include "tenon/core/module.h"

namespace tenon::family {

class SourceTensors {
 public:
  // All three outlive it.
  SourceTensors(const Family& family, const Weights& weights, Declarations& declare)
      : family_(family), weights_(weights), declare_(declare) {}

  const WeightTensor* find(const std::string& path, const char* suffix = "weight") const;
  // Uses the tensors of a layer that is not wanted.
  void leave_out(uint32_t layer) const;
  // Uses those of a matrix outside of layers that is not wanted.
  void leave_out(const std::string& path) const;
  // A tensor of all experts has one for each of them, and is used if they are. path: "layers.3.experts.*.up".
  void use_stacked(const std::string& path, uint32_t experts) const;
  // A head of its own beside one that is tied must be the embedding once more.
  void check_tied_head() const;
  // Returns everything that the file has of a matrix.
  Matrix matrix(const std::string& path, int64_t rows) const;
  // Declares a vector of a norm, or a bias.
  VectorId vector(const std::string& path, const char* suffix, int64_t length) const;
  // Declares the biases at these paths side by side, each of so many elements.
  VectorId biases(const std::string& name, const std::vector<std::string>& paths, int64_t each) const;

 private:
  std::string matrix_name(const std::string& path) const;
  const WeightTensor* stacked_of(const std::string& path, const char* suffix) const;
  std::vector<const WeightTensor*> everything_of(const std::string& path) const;
  bool same_bytes(const WeightTensor& a, const WeightTensor& b) const;
  void refuse_missing(const std::string& path, const char* suffix) const;

  const Family& family_;
  const Weights& weights_;
  Declarations& declare_;
};

}  // namespace tenon::family
