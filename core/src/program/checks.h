// A checked build (TENON_CHECKED, in the preset dev) looks at things that others take for granted.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tenon/core/program.h"

namespace tenon {

// Returns "" or what is wrong with a plan, in words that name the tensor: a slice that leaves its root, a tensor that
// leaves its storage or the arena, activations that are alive together and share bytes, and a written tensor whose own
// elements share bytes. The first of `tensors` stands for none.
std::string plan_problem(std::span<const ProgramTensor> tensors, std::span<const ProgramOp> ops,
                         uint64_t activation_bytes, const StorageTable& storages);

// Fills the activations that no op after this one touches with bytes of 0xff: as floats they are NaN, as integers -1.
// The program has addresses in memory that the host can write, and the op has ended.
void fill_dead(const Program& program, size_t op);

}  // namespace tenon
