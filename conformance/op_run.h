// The running of a stand-in host and its tensors share this.
#pragma once

#include <array>
#include <stdexcept>

#include "conformance/op_runner.h"

namespace tenon::conformance {

// An op did something wrong.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// This is the memory of a program as core lays it out.
struct OpRunner::Arena {
  Arena(const Device& device, const Program& program)
      : activations(device, program.activation_bytes(), "the temporaries"),
        scratch(device, program.scratch_bytes(), "scratch"),
        zeroed(device, program.zeroed_bytes(), "zeroed memory"),
        thread(device, program.thread_scratch_bytes(), "thread scratch") {}
  GuardedMemory activations, scratch, zeroed, thread;
};

// Calls f(offset) for each block of a view, innermost dimension fastest.
template <class F>
void for_each_block(const tenon_tensor& t, F&& f) {
  const uint32_t per_block = tenon_format_block(t.format).elements;
  std::array<int64_t, 6> at{};
  const auto count = [&](uint32_t d) { return d + 1 == t.rank ? (t.dim[d] + per_block - 1) / per_block : t.dim[d]; };
  while (true) {
    uint64_t offset = 0;
    for (uint32_t d = 0; d < t.rank; ++d) offset += static_cast<uint64_t>(at[d] * t.stride[d]);
    f(offset);
    uint32_t d = t.rank;
    while (d > 0 && ++at[d - 1] == count(d - 1)) at[--d] = 0;
    if (d == 0) return;
  }
}

// Calls f(offset, bytes) for each run of bytes of a view without gaps.
template <class F>
void for_each_run(const tenon_tensor& t, F&& f) {
  const tenon_block block = tenon_format_block(t.format);
  const auto count = [&](uint32_t d) {
    return d + 1 == t.rank ? (t.dim[d] + block.elements - 1) / block.elements : t.dim[d];
  };
  uint32_t outer = t.rank;
  int64_t bytes = block.bytes;
  while (outer > 0 && (t.stride[outer - 1] == bytes || count(outer - 1) == 1)) bytes *= count(--outer);
  std::array<int64_t, 6> at{};
  while (true) {
    int64_t offset = 0;
    for (uint32_t d = 0; d < outer; ++d) offset += at[d] * t.stride[d];
    f(static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes));
    uint32_t d = outer;
    while (d > 0 && ++at[d - 1] == count(d - 1)) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace tenon::conformance
