// The matrices of a plan go through their schemes here: they are read, turned into f32, encoded and handed on.
#pragma once

#include <functional>
#include <span>

#include "matrix_plan.h"

namespace tenon {

// One thread at a time calls it with the next bytes of tensor `index` of those that matrix p is written as.
using PutEncoded = std::function<void(const PlannedTensor& p, size_t index, std::span<const std::byte> bytes)>;

// A matrix's rows and columns are multiplied by these before it is encoded; empty: by 1.
struct MatrixFactors {
  std::vector<float> rows, columns;
};
// Encoding a matrix takes this beside its weights.
struct MatrixInput {
  std::span<const std::byte> observed = {};  // the site was observed so; empty if it was not
  const MatrixFactors* factors = nullptr;
};
using InputOf = std::function<MatrixInput(const PlannedTensor& p)>;

// Reads rows of a tensor as f32: `out` has that many. Throws Error(kModel) for a weight that is NaN or infinite.
void read_weights(const Weights& model, const WeightTensor& tensor, uint64_t row, uint64_t rows, std::span<float> out);

// Encodes several matrices at a time, one a thread. Throws Error(kModel) for a weight that is NaN or infinite and for
// what a scheme refuses, and what `put` throws; nothing is under way any more then.
void encode_matrices(const Weights& model, std::span<const PlannedTensor* const> matrices, const InputOf& input,
                     const PutEncoded& put);

}  // namespace tenon
