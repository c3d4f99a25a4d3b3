// A stand-in host for tests of components: a recorder over ordinary memory that runs what was emitted, one op at a
// time, and watches every byte.
//   - Every tensor, scratch and zeroed buffer lies between red zones; under AddressSanitizer they are poisoned too.
//   - Temporaries, outputs and scratch are full of NaN bytes (0xff) before they are first used in a run.
//   - An op may change only the bytes of its operands with WRITE access, and leaves its zeroed memory zero.
//   - Chunks are split into random runs, executed in random order as random threads.
//
//   OpRunner host(OpRunner::bounds({.rows = 4}));
//   const tenon_tid x = host.input(TENON_F32, {4, 8}, values), y = host.output(TENON_F32, {4, 8});
//   host.set_live(3);
//   component.record(..., host.recorder(), ...);
//   ASSERT_EQ(host.run(seed), "");
//   EXPECT_THAT(host.f32(y), ...);
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tenon/abi/program.h"

namespace tenon::test {

class OpRunner {
 public:
  // Bounds of one sequence in one slot unless said otherwise; out_rows and rows_per_seq follow rows if they are 0.
  struct Shape {
    uint32_t rows = 1, seqs = 1, out_rows = 0, kv_len = 64, slots = 1, rows_per_seq = 0;
  };
  static tenon_bounds bounds(const Shape& shape);

  // Step state: all rows live, LIVE = {rows, seqs, out_rows, 0}, OUT_ROW counts up, PARENT -1, the rest 0.
  explicit OpRunner(const tenon_bounds& bounds);
  ~OpRunner();
  OpRunner(const OpRunner&) = delete;
  OpRunner& operator=(const OpRunner&) = delete;

  const tenon_recorder* recorder() const { return &recorder_; }

  // Dense tensors. An input keeps its bytes; data may be nullptr (zeros). An output is filled with 0xff before each
  // run.
  tenon_tid input(tenon_format format, std::initializer_list<int64_t> dims, const void* data);
  template <class T>
  tenon_tid input(tenon_format format, std::initializer_list<int64_t> dims, const std::vector<T>& values) {
    return input(format, dims, static_cast<const void*>(values.data()));
  }
  tenon_tid output(tenon_format format, std::initializer_list<int64_t> dims);
  // A store of a component: zero, kept from run to run.
  tenon_tid store(uint64_t bytes);
  // Any strides.
  tenon_tid strided_input(const tenon_tensor& t, const void* data);
  tenon_tid strided_output(const tenon_tensor& t);
  tenon_tid slice(tenon_tid of, const tenon_tensor& t, uint64_t offset);

  // Where a tensor lies; fixed for the runner's life. extent(): from its first to past its last byte.
  void* data(tenon_tid id) const;
  uint64_t extent(tenon_tid id) const;
  template <class T>
  std::span<T> values(tenon_tid id) const {
    return {static_cast<T*>(data(id)), extent(id) / sizeof(T)};
  }
  // The elements of a f32, f16, bf16 or i32 tensor in order, strides removed.
  std::vector<float> f32(tenon_tid id) const;

  // Step state by role, to be filled before run(); TENON_STEP_LIVE and _RNG by their bits.
  std::span<int32_t> step_i32(uint32_t role);
  void set_live(uint32_t rows, uint32_t seqs = 1, uint32_t out_rows = 0);

  // Runs the recorded ops in order. "" or what went wrong first, beginning with the op's name.
  std::string run(uint64_t seed);
  // The same without watching, in one piece on one thread, for measurements.
  std::string run_unwatched();

  struct Op {
    std::string name;
    std::vector<tenon_operand> operands;
    std::vector<uint64_t> args;
    tenon_op table{};  // operand, args: point into this
  };
  const std::vector<std::unique_ptr<Op>>& ops() const { return ops_; }
  // Forgets the recorded ops; tensors stay.
  void clear_ops() { ops_.clear(); }
  // What the recorder refused first, or "".
  const std::string& error() const { return error_; }

 private:
  struct Callbacks;
  enum class Use { kInput, kOutput, kTemp, kStore };
  struct Buffer;
  struct Tensor {
    tenon_tensor view{};
    uint64_t offset = 0, extent = 0;  // in the buffer
    Buffer* buffer = nullptr;
  };
  struct Workspace;

  tenon_tid add(const tenon_tensor& t, Use use, const void* data);
  tenon_tid add_slice(tenon_tid of, const tenon_tensor& t, uint64_t offset);
  tenon_status emit(const tenon_op& op);
  tenon_tid fail(const std::string& message);
  std::string run_op(const Op& op, Workspace& work, std::mt19937_64& random);
  std::string run_chunks(const Op& op, const tenon_launch& launch, Workspace& work, std::mt19937_64& random);
  std::string check_memory(const Op& op, const Workspace& work);

  tenon_bounds bounds_{};
  tenon_recorder recorder_{};
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Tensor> tensors_{1};
  std::map<uint32_t, tenon_tid> state_;
  std::map<std::string, tenon_tid> kept_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::string error_;
};

}  // namespace tenon::test
