// A stand-in host for components on any device: records with core's recorder, runs what was emitted, and watches every
// byte.
//
// run() first goes op by op. Every tensor, scratch and zeroed buffer lies between red zones (under AddressSanitizer
// they are poisoned too); temporaries, outputs and scratch are full of NaN bytes before they are first used; an op may
// change only the bytes of its operands with WRITE access, and leaves its zeroed memory zero. On a device that walks,
// chunks are split into random runs, in random order, on random threads; on a device with queues each op is launched
// plainly and waited for.
//
// Then everything runs again from the same bytes, with temporaries, scratch and launches as core plans them: whole
// phases on one thread; or launched with overlap, and captured and replayed. Every output and store must end with the
// same bytes.
//
//   OpRunner host(OpRunner::bounds({.rows = 4}), component.device());
//   const tenon_tid x = host.input(TENON_F32, {4, 8}, values), y = host.output(TENON_F32, {4, 8});
//   host.set_live(3);
//   component.table<...>().record(component.self(), ..., host.recorder(), &why);
//   if (const std::string fault = host.run(seed); !fault.empty()) ...
//   host.f32(y)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/device.h"
#include "conformance/guarded_memory.h"
#include "tenon/core/program.h"

namespace tenon {
class StepState;
}

namespace tenon::conformance {

class OpRunner {
 public:
  // Bounds of one sequence in one slot unless said otherwise; out_rows and rows_per_seq follow rows if they are 0.
  struct Shape {
    uint32_t rows = 1, seqs = 1, out_rows = 0, kv_len = 64, slots = 1, rows_per_seq = 0, trees = 0;
  };
  static tenon_bounds bounds(const Shape& shape);

  // In the step state all rows are live, LIVE = {rows, seqs, out_rows, 0}, OUT_ROW and SURVIVOR count up, PARENT is -1,
  // the rest is 0. The device outlives the runner. Components are told that another program has most_out_rows, if that
  // is more.
  explicit OpRunner(const tenon_bounds& bounds, const Device& device = Device::cpu(), uint32_t most_out_rows = 0);
  ~OpRunner();
  OpRunner(const OpRunner&) = delete;
  OpRunner& operator=(const OpRunner&) = delete;

  const Device& device() const { return device_; }
  // Ask for it again after a run.
  const tenon_recorder* recorder() const;
  // Returns what was refused first while recording, or "".
  const std::string& error() const { return recording_->error(); }

  // These tensors are dense. An input keeps its bytes; data may be nullptr (zeros). An output is filled with 0xff
  // before each run.
  tenon_tid input(tenon_format format, std::initializer_list<int64_t> dims, const void* data);
  template <class T>
  tenon_tid input(tenon_format format, std::initializer_list<int64_t> dims, const std::vector<T>& values) {
    return input(format, dims, static_cast<const void*>(values.data()));
  }
  tenon_tid output(tenon_format format, std::initializer_list<int64_t> dims);
  // A component's store begins as zero, and keeps what it holds from run to run.
  tenon_tid store(uint64_t bytes);
  // These may have any strides. `data` goes from the tensor's first byte to its last.
  tenon_tid strided_input(const tenon_tensor& t, const void* data);
  tenon_tid strided_output(const tenon_tensor& t);
  tenon_tid slice(tenon_tid of, const tenon_tensor& t, uint64_t offset);

  // data() returns where a tensor lies in the device's memory; fixed for the runner's life. extent(): from its
  // first to past its last byte. read() and values() throw std::logic_error for a temporary whose last run was as
  // core plans it, where it has other memory.
  void* data(tenon_tid id) const;
  uint64_t extent(tenon_tid id) const;
  template <class T>
  std::vector<T> read(tenon_tid id) const {
    check_current(id);
    std::vector<T> values(extent(id) / sizeof(T));
    device_.copy(values.data(), data(id), values.size() * sizeof(T));
    return values;
  }
  void write(tenon_tid id, const void* bytes) { device_.copy(data(id), bytes, extent(id)); }
  // Returns a tensor's elements. The device has to be one that walks: its memory is the host's.
  template <class T>
  std::span<T> values(tenon_tid id) const {
    if (!device_.walks()) throw std::logic_error("values() of a device's own memory");
    check_current(id);
    return {static_cast<T*>(data(id)), extent(id) / sizeof(T)};
  }
  // Returns the elements of a f32, f16, bf16 or i32 tensor in order, strides removed.
  std::vector<float> f32(tenon_tid id) const;

  // This is step state by role: what the next run starts from, and what the last one left; TENON_STEP_LIVE and _RNG
  // have their bits.
  std::span<int32_t> step_i32(uint32_t role);
  std::span<const int32_t> step_i32(uint32_t role) const { return step_.at(role); }
  void set_live(uint32_t rows, uint32_t seqs = 1, uint32_t out_rows = 0);

  // Runs the recorded ops in order. Returns "" or what went wrong first, beginning with the op's name.
  std::string run(uint64_t seed);
  // Runs all ops once, as core plans them; memory may change only where one of them
  // writes. kOverlap is for a device that has that.
  enum class Launch { kPlain, kOverlap, kGraph };
  std::string run_once(Launch how);

  // Runs once for a measurement, as core plans it, without a look at the memory.
  std::string run_unwatched();
  // Prepares a measurement on a device with queues: binds addresses as core does and writes the step state; then enqueue()
  // launches an op and does not wait. Throws Error.
  const Program& prepare(bool overlap);
  void enqueue(size_t op) const { launch_op(program_->ops()[op], program_->launch(op)); }
  // Returns the program as core planned it; valid until the recording goes on.
  const Program& program() const { return planned(); }

 private:
  enum class Use { kInput, kOutput };
  struct Held {  // it is a storage
    std::unique_ptr<GuardedMemory> memory;
    Use use = Use::kInput;
  };
  struct Workspace;
  struct Arena;

  tenon_tid add(const tenon_tensor& t, Use use, const void* data);
  const Program& planned() const;
  Held& held(uint32_t storage) const;
  GuardedMemory& memory_of(tenon_tid id) const;
  uint64_t offset_of(tenon_tid id) const;
  void check_current(tenon_tid id) const;

  void write_state();
  void read_state();
  void hold_all();
  void fill_outputs();
  std::vector<GuardedMemory*> all_memory() const;

  void run_watched(std::mt19937_64& random);
  void watch_op(size_t index, Workspace& work, std::mt19937_64& random);
  void part_op(const ProgramOp& op, const tenon_launch& launch, Workspace& work, std::mt19937_64& random) const;
  void launch_op(const ProgramOp& op, const tenon_launch& launch) const;
  void check_memory(std::span<const ProgramOp> ops) const;
  void bind_addresses(bool overlap);
  void run_planned(Launch how);
  void walk_all() const;
  void launch_all() const;
  void replay_all() const;
  void check_same(const std::vector<std::vector<uint8_t>>& wanted, const char* how) const;
  std::vector<std::vector<uint8_t>> contents() const;

  const Device& device_;
  std::unique_ptr<StepState> state_;
  std::map<uint32_t, std::vector<int32_t>> step_;  // by role
  mutable StorageTable storages_;
  std::unique_ptr<ProgramRecording> recording_;
  bool planned_run_ = false;                                           // the last run was as core plans it
  mutable std::unique_ptr<Program> program_;                           // it is nullptr if more may have been recorded
  mutable std::map<uint32_t, Held> held_;                              // by storage
  mutable std::map<tenon_tid, std::unique_ptr<GuardedMemory>> temps_;  // by root
  mutable std::unique_ptr<Arena> arena_;  // the program's memory; nullptr: no addresses are bound yet
};

}  // namespace tenon::conformance
