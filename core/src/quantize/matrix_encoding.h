// The matrices of a plan through their schemes: read, turned into f32, encoded, handed on.
#pragma once

#include <functional>
#include <span>

#include "matrix_plan.h"

namespace tenon {

// One thread at a time calls it with the next bytes of tensor `index` of those that matrix p is written as.
using PutEncoded = std::function<void(const PlannedTensor& p, size_t index, std::span<const std::byte> bytes)>;
// It gives what was observed of a matrix's site; empty if nothing was.
using ObservedOf = std::function<std::span<const std::byte>(const PlannedTensor& p)>;

// Encodes several matrices at a time, one a thread. Throws Error(kModel) for a weight that is NaN or infinite and for what a
// scheme refuses, and what `put` throws; nothing is under way any more then.
void encode_matrices(const Weights& model, std::span<const PlannedTensor* const> matrices, const ObservedOf& observed,
                     const PutEncoded& put);

}  // namespace tenon
