// A step program is a flat list of operations over tensors whose memory the host plans. The components record it once
// for each batch shape; steps then only walk it. docs/glossary.md has the words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tenon/abi/program.h"

namespace tenon {

// Every tensor and buffer begins at a multiple of so many bytes, which is enough for any vector unit and for CUDA.
inline constexpr uint64_t kAlignment = 256;
constexpr uint64_t align(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// This says what a piece of memory is for. The plan and the reports go by it.
enum class MemoryKind {
  kWeights,      // stores of the quantization sites, norms, biases
  kMapped,       // weights are used where the file's mapping has them: nothing is allocated
  kKvCache,      // stores of the cache
  kTables,       // constants that the host makes, such as rope's
  kState,        // step state, sampler parameters and state, what components keep
  kActivations,  // the arena of the largest program; tensors share it by their lifetimes
  kWorkspace,    // scratch of ops
  kPinned,       // host memory that the device reaches: what it posts to the host
};
inline constexpr size_t kMemoryKinds = 8;
const char* to_string(MemoryKind kind);

// A storage is memory that outlives a step. All programs share it.
struct Storage {
  std::string name;
  MemoryKind kind = MemoryKind::kState;
  uint64_t bytes = 0;
  void* address = nullptr;  // the pipeline sets it before programs bind addresses
};

// The table has all storages by their numbers, which never change. It is not thread-safe.
class StorageTable {
 public:
  // While a Prefix lives, the names of storages that are added begin with its text, such as "draft/".
  class Prefix {
   public:
    Prefix(StorageTable& table, const std::string& prefix) : table_(table), before_(table.prefix_) {
      table.prefix_ = before_ + prefix;
    }
    ~Prefix() { table_.prefix_ = before_; }
    Prefix(const Prefix&) = delete;
    Prefix& operator=(const Prefix&) = delete;

   private:
    StorageTable& table_;
    std::string before_;
  };

  // Returns the storage of that name, and makes it if it is new. Throws Error(kInternal) if it has another size.
  uint32_t add(const std::string& name, MemoryKind kind, uint64_t bytes);
  Storage& operator[](uint32_t id) { return storages_[id]; }
  const Storage& operator[](uint32_t id) const { return storages_[id]; }
  size_t size() const { return storages_.size(); }

 private:
  std::vector<Storage> storages_;
  std::map<std::string, uint32_t> by_name_;
  std::string prefix_;
};

// This is a tensor of a program. Its number, a tenon_tid, is its index among them.
struct ProgramTensor {
  tenon_tensor view{};
  std::string name;
  uint64_t offset = 0;                          // in bytes, within the storage or the arena of activations
  uint64_t extent = 0;                          // the bytes that it spans, from its first element to its last
  int64_t storage = -1;                         // the storage that it lies in; -1: it lies in the arena
  tenon_tid root = 0;                           // a slice has the tensor that it was cut from, others themselves
  uint32_t first_op = UINT32_MAX, last_op = 0;  // a root in the arena lives from one to the other
  int32_t live = -1;  // a root that holds rows of a model has the word of TENON_STEP_LIVE that counts them
};

// This is an op of a program, with all that its run needs but addresses.
struct ProgramOp {
  std::string path;       // module path: "layers.3.attention.qkv"
  std::string component;  // "quantization.gguf"
  std::string name;       // "product"
  int32_t layer = -1;
  uint32_t flags = 0;
  uint32_t block_classes = 0;  // every one of TENON_BLOCKS_* that it can run as
  uint32_t blocks = 0;         // the one of them that it runs as
  bool plain = false;          // it never overlaps: it is foreign, or large after one that cannot be small
  std::vector<tenon_operand> operands;
  std::vector<uint64_t> args;  // the op's arguments, padded to whole words
  uint32_t args_bytes = 0;
  uint32_t phases = 1;
  std::array<uint32_t, TENON_MAX_PHASES> chunks{};
  uint64_t scratch_bytes = 0, zeroed_bytes = 0, thread_scratch_bytes = 0;
  tenon_cost cost{};
  bool picked = false;         // its rows are those whose logits are wanted
  uint64_t stable = 0;         // see tenon_launch
  uint64_t zeroed_offset = 0;  // its zeroed memory begins so many bytes into the program's
  decltype(tenon_op::launch) launch = nullptr;
  decltype(tenon_op::part) part = nullptr;
  void* self = nullptr;
};

// This is a recorded program. After ProgramRecording::finish() nothing of it changes but what bind_addresses() sets.
class Program {
 public:
  const tenon_bounds& bounds() const { return bounds_; }
  const std::vector<ProgramOp>& ops() const { return ops_; }
  const ProgramTensor& tensor(tenon_tid id) const { return tensors_[id]; }
  size_t tensor_count() const { return tensors_.size(); }  // ids are 1 to count - 1

  // The program needs this much memory beside the storages. Any two programs may share it.
  uint64_t activation_bytes() const { return activation_bytes_; }
  uint64_t scratch_bytes() const { return scratch_bytes_; }
  uint64_t zeroed_bytes() const { return zeroed_bytes_; }
  uint64_t thread_scratch_bytes() const { return thread_scratch_bytes_; }  // for each thread

  // This is memory for all of the above. The program borrows it, and `zeroed` holds zeros.
  struct Memory {
    std::byte* activations = nullptr;
    std::byte* scratch = nullptr;
    std::byte* zeroed = nullptr;
    std::byte* thread_scratch = nullptr;
    uint64_t thread_scratch_stride = 0;
  };
  // Turns ids into addresses; the storages have theirs by then. `queue` is the device's, if it has queues. overlap: ops
  // that keep the overlap contract are launched before the op before them has ended.
  void bind_addresses(const StorageTable& storages, const Memory& memory, void* queue = nullptr, bool overlap = false);

  const tenon_launch& launch(size_t op) const { return launches_[op]; }
  const Memory& memory() const { return memory_; }
  void* address(tenon_tid id) const { return addresses_[id]; }

 private:
  friend class ProgramRecording;
  tenon_bounds bounds_{};
  std::vector<ProgramOp> ops_;
  std::vector<ProgramTensor> tensors_{1};
  uint64_t activation_bytes_ = 0, scratch_bytes_ = 0, zeroed_bytes_ = 0, thread_scratch_bytes_ = 0;
  Memory memory_;
  std::vector<tenon_launch> launches_;
  std::vector<void*> pointers_, addresses_;
};

// An op's cost is per row and per token; this makes it a number for one step. `rows` are the step's live rows,
// out_rows those whose logits are wanted, and `context` sums up how many tokens each row attends to.
struct StepLoad {
  double rows = 0, out_rows = 0, context = 0;
  uint64_t step = 0;       // the step's number in a trace
  const char* phase = "";  // "prefill", "decode" or "verify"; the text has static storage

  // `cost` is one of the op's.
  double of(const ProgramOp& op, const double (&cost)[3]) const {
    return cost[0] + cost[1] * (op.picked ? out_rows : rows) + cost[2] * context;
  }
};

// These are told what a step runs, by the thread that runs it. Either both are there or neither is. They do not throw.
struct OpWatch {
  // It is called before a program runs, and returns true if the ops are to be launched one by one where otherwise a
  // captured graph is replayed. The next run that may replay captures anew, for a tool that has to see it being made.
  std::function<bool(const Program& program, const StepLoad& load)> begin = {};
  // It is called before an op is launched or computed, and with ops().size() after the last one; not within a graph.
  std::function<void(const Program& program, size_t op)> op = {};
};

// Records one program: it hands a tenon_recorder to components, and plans the memory of the result.
class ProgramRecording {
 public:
  // The step state and everything that components keep are storages. state[role] is the number of the
  // storage for that role, TENON_STEP_*. largest has the bounds of all programs that share the
  // storages; nullptr: there is no other program.
  ProgramRecording(const tenon_bounds& bounds, StorageTable& storages, std::span<const uint32_t> state,
                   const tenon_bounds* largest = nullptr);
  ~ProgramRecording();
  ProgramRecording(const ProgramRecording&) = delete;
  ProgramRecording& operator=(const ProgramRecording&) = delete;

  // From now on ops are recorded with these bounds, and with this step state instead of the program's own: that of one
  // pass of a model, of which a program may have several. `state` is as above, and outlives the recording.
  void enter(const tenon_bounds& bounds, std::span<const uint32_t> state);
  // Ops emitted from now on carry these names.
  void scope(std::string path, std::string component, int32_t layer);
  // Ops emitted from now on have so many rows for each row of the step: what they cost a row counts as often.
  void repeat_rows(uint32_t times) { repeated_ = times; }
  // Ops emitted from now on have as many rows as have logits that are wanted or, if they are not `picked`, as the step.
  void pick_rows(bool picked) { picked_ = picked; }
  const tenon_recorder* recorder() const { return &recorder_; }
  const tenon_bounds& bounds() const { return *recorder_.bounds; }

  // Adds an activation; for live see ProgramTensor.
  tenon_tid temp(const tenon_tensor& t, std::string name = {}, int32_t live = -1);
  // Adds a slice of a tensor, which begins `offset` bytes into it.
  tenon_tid slice(tenon_tid of, const tenon_tensor& t, uint64_t offset);
  // Returns the step state of a role, TENON_STEP_*.
  tenon_tid step(uint32_t role);
  // Makes a storage a tensor of the program, which has the same id each time.
  tenon_tid storage(uint32_t number, const tenon_tensor& t);
  const tenon_tensor& view(tenon_tid id) const { return program_.tensors_[id].view; }
  bool has(tenon_tid id) const { return id != 0 && id < program_.tensors_.size(); }
  size_t op_count() const { return program_.ops_.size(); }
  // Says whether an op from `first_op` on writes to the tensor, or to the one that it was cut from.
  bool written_since(size_t first_op, tenon_tid id) const;

  // Names the first thing that went wrong while recording, or is "". Components need not report it themselves.
  const std::string& error() const { return error_; }
  // Throws what went wrong first: Error(kPlugin), or std::bad_alloc if a callback had no memory.
  void check() const;

  // Plans activations by lifetime. `outputs` stay readable after the step. The recording may go on; a later finish()
  // returns all of it. Throws Error(kPlugin, error()).
  std::unique_ptr<Program> finish(std::span<const tenon_tid> outputs);

 private:
  struct Callbacks;
  tenon_tid add(ProgramTensor tensor);
  tenon_tid keep(const tenon_tensor& t, const std::string& key);
  tenon_status emit(const tenon_op& op);
  void fail(std::string message);
  void fail_without_memory() noexcept;
  void find_lifetimes(std::span<const tenon_tid> outputs);
  void place_activations();
  void find_stable();
  void choose_blocks();
  void wait_for_state();

  StorageTable& storages_;
  std::span<const uint32_t> state_;
  std::set<uint32_t> states_;        // the storages of all step state that was entered
  std::list<tenon_bounds> entered_;  // components may look at these while they record
  tenon_recorder recorder_{};
  tenon_bounds largest_;
  Program program_;
  std::map<uint32_t, tenon_tid> by_storage_;
  std::string path_, component_, error_;
  bool out_of_memory_ = false;  // a callback had no memory; no exception may leave it
  int32_t layer_ = -1;
  uint32_t repeated_ = 1;  // see repeat_rows()
  bool picked_ = false;    // see pick_rows()
};

// Returns the bytes from the first element to the end of the last; 0 if rank, sizes, strides or format make no sense.
uint64_t tensor_extent(const tenon_tensor& t);

}  // namespace tenon
