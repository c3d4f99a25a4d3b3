// Ops are recorded into a program, and finish() plans it: lifetimes of tensors, their places in the arena, which
// operands are stable, and which ops have large blocks.
//
// The arena is packed first fit, the largest tensor first. After a failure recording goes on with ids of 0, and the
// first reason is the error.
#include <algorithm>
#include <cstring>
#include <new>

#include "checks.h"
#include "tenon/core/error.h"
#include "tenon/core/program.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon {
uint64_t tensor_extent(const tenon_tensor& t) {
  const tenon_block block = tenon_format_block(t.format);
  if (block.elements == 0 || t.rank == 0 || t.rank > 6) return 0;
  uint64_t extent = 0;
  for (uint32_t d = 0; d < t.rank; ++d) {
    int64_t n = t.dim[d];
    if (d + 1 == t.rank) n = (n + block.elements - 1) / block.elements;
    uint64_t span = 0;
    if (n <= 0 || t.stride[d] < 0) return 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(n - 1), static_cast<uint64_t>(t.stride[d]), &span)) return 0;
    if (__builtin_add_overflow(extent, span, &extent)) return 0;
  }
  return __builtin_add_overflow(extent, uint64_t{block.bytes}, &extent) ? 0 : extent;
}

// tenon_recorder points to these functions; ctx is the recording.
struct ProgramRecording::Callbacks {
  static ProgramRecording& of(void* ctx) { return *static_cast<ProgramRecording*>(ctx); }

  template <class F>
  static auto guarded(void* ctx, F&& f) noexcept -> decltype(f()) {
    try {
      return f();
    } catch (const std::bad_alloc&) {
      of(ctx).fail_without_memory();
    } catch (const std::exception& e) {
      try {
        of(ctx).fail(e.what());
      } catch (const std::bad_alloc&) {
        of(ctx).fail_without_memory();
      }
    }
    return decltype(f()){};
  }
  static tenon_tid temp(void* ctx, const tenon_tensor* t) {
    return guarded(ctx, [&] { return of(ctx).temp(sdk::read_abi(t)); });
  }
  static tenon_tid keep(void* ctx, const tenon_tensor* t, const char* key) {
    return guarded(ctx, [&] { return of(ctx).keep(sdk::read_abi(t), key); });
  }
  static tenon_tid slice(void* ctx, tenon_tid tensor, const tenon_tensor* t, uint64_t offset) {
    return guarded(ctx, [&] { return of(ctx).slice(tensor, sdk::read_abi(t), offset); });
  }
  static tenon_tid step(void* ctx, uint32_t role) {
    return guarded(ctx, [&] { return of(ctx).step(role); });
  }
  static void describe(void* ctx, tenon_tid id, tenon_tensor* out) {
    const auto& tensors = of(ctx).program_.tensors_;
    sdk::write_abi(out, id < tensors.size() ? tensors[id].view : sdk::abi_struct<tenon_tensor>());
  }
  static tenon_status emit(void* ctx, const tenon_op* op) {
    tenon_status status = TENON_ERROR;
    guarded(ctx, [&] { return status = of(ctx).emit(sdk::read_abi(op)); });
    return status;
  }
};

ProgramRecording::ProgramRecording(const tenon_bounds& bounds, StorageTable& storages, std::span<const uint32_t> state,
                                   const tenon_bounds* largest)
    : storages_(storages),
      state_(state),
      recorder_(sdk::abi_struct<tenon_recorder>()),
      largest_(largest != nullptr ? *largest : bounds) {
  program_.bounds_ = bounds;
  recorder_.ctx = this;
  recorder_.bounds = &program_.bounds_;
  recorder_.largest = &largest_;
  recorder_.temp = &Callbacks::temp;
  recorder_.keep = &Callbacks::keep;
  recorder_.slice = &Callbacks::slice;
  recorder_.step = &Callbacks::step;
  recorder_.describe = &Callbacks::describe;
  recorder_.emit = &Callbacks::emit;
}

ProgramRecording::~ProgramRecording() = default;

void ProgramRecording::enter(const tenon_bounds& bounds, std::span<const uint32_t> state) {
  state_ = state;
  recorder_.bounds = &entered_.emplace_back(bounds);
}

void ProgramRecording::fail(std::string message) {
  if (error_.empty()) error_ = path_ + " (" + component_ + "): " + std::move(message);
}

void ProgramRecording::fail_without_memory() noexcept {
  out_of_memory_ = true;
  if (error_.empty()) error_ = "out of memory";  // the text is so short that it takes no memory
}

void ProgramRecording::check() const {
  if (out_of_memory_) throw std::bad_alloc();
  if (!error_.empty()) throw Error(ErrorCode::kPlugin, error_);
}

void ProgramRecording::scope(std::string path, std::string component, int32_t layer) {
  path_ = std::move(path);
  component_ = std::move(component);
  layer_ = layer;
}

tenon_tid ProgramRecording::add(ProgramTensor tensor) {
  tensor.extent = tensor_extent(tensor.view);
  if (tensor.extent == 0) {
    fail("asks for a malformed tensor (rank " + std::to_string(tensor.view.rank) + ", format " +
         tenon_format_name(tensor.view.format) + ")");
    return 0;
  }
  const auto id = static_cast<tenon_tid>(program_.tensors_.size());
  if (tensor.root == 0) tensor.root = id;
  program_.tensors_.push_back(std::move(tensor));
  return id;
}

tenon_tid ProgramRecording::temp(const tenon_tensor& t, std::string name, int32_t live) {
  ProgramTensor tensor;
  tensor.view = t;
  tensor.live = live;
  tensor.name = name.empty() ? path_ : std::move(name);
  return add(std::move(tensor));
}

tenon_tid ProgramRecording::slice(tenon_tid of, const tenon_tensor& t, uint64_t offset) {
  if (of == 0 || of >= program_.tensors_.size()) {
    fail("slices a tensor that is not there");
    return 0;
  }
  const ProgramTensor& parent = program_.tensors_[of];
  const uint64_t extent = tensor_extent(t);
  if (extent == 0 || offset > parent.extent || extent > parent.extent - offset) {
    fail("slices beyond the end of \"" + parent.name + "\"");
    return 0;
  }
  ProgramTensor tensor;
  tensor.view = t;
  tensor.name = parent.name;
  tensor.offset = parent.offset + offset;
  tensor.storage = parent.storage;
  tensor.root = parent.root;
  return add(std::move(tensor));
}

tenon_tid ProgramRecording::storage(uint32_t number, const tenon_tensor& t) {
  const auto found = by_storage_.find(number);
  if (found != by_storage_.end()) return found->second;
  ProgramTensor tensor;
  tensor.view = t;
  tensor.name = storages_[number].name;
  tensor.storage = number;
  const tenon_tid id = add(std::move(tensor));
  by_storage_[number] = id;
  return id;
}

tenon_tid ProgramRecording::keep(const tenon_tensor& t, const std::string& key) {
  return storage(storages_.add(component_ + "/" + key, MemoryKind::kState, tensor_extent(t)), t);
}

tenon_tid ProgramRecording::step(uint32_t role) {
  if (role == 0 || role >= state_.size()) {
    fail("asks for step state " + std::to_string(role) + ", which this host does not have");
    return 0;
  }
  tenon_tensor t = sdk::abi_struct<tenon_tensor>();
  t.format = role == TENON_STEP_LIVE || role == TENON_STEP_RNG ? TENON_U32 : TENON_I32;
  t.rank = 1;
  t.dim[0] = static_cast<int64_t>(storages_[state_[role]].bytes / 4);
  t.stride[0] = 4;
  // Tensors that the sampling ops write are read after the wait, like any other.
  if (role != TENON_STEP_ACCEPTED && role != TENON_STEP_NEXT) states_.insert(state_[role]);
  return storage(state_[role], t);
}

tenon_status ProgramRecording::emit(const tenon_op& op) {
  const auto reject = [&](const std::string& what) {
    fail("emits a malformed op \"" + std::string(op.name == nullptr ? "" : op.name) + "\": " + what);
    return TENON_ERROR;
  };
  if (op.name == nullptr || op.name[0] == '\0') return reject("no name");
  if (op.n_operands > TENON_MAX_OPERANDS) return reject("more than 64 operands");
  if (op.part == nullptr && op.launch == nullptr) return reject("nothing to run");
  if (op.blocks > TENON_BLOCKS_WHOLE) return reject("unknown classes of blocks");
  if (op.phases > TENON_MAX_PHASES || (op.part != nullptr && op.phases == 0)) return reject("phases out of range");
  for (uint32_t p = 0; p < op.phases; ++p) {
    if (op.chunks[p] == 0) return reject("a phase without chunks");
  }
  for (uint32_t i = 0; i < op.n_operands; ++i) {
    const tenon_operand& o = op.operand[i];
    if (o.tensor == 0 || o.tensor >= program_.tensors_.size()) return reject("an operand that is no tensor");
    if (o.access == 0) return reject("an operand without access");
  }
  ProgramOp& out = program_.ops_.emplace_back();
  out.path = path_;
  out.component = component_;
  out.name = op.name;
  out.layer = layer_;
  out.flags = op.flags;
  out.block_classes = op.blocks == 0 ? static_cast<uint32_t>(TENON_BLOCKS_SMALL) : op.blocks;
  out.operands.assign(op.operand, op.operand + op.n_operands);
  out.args.resize((op.args_bytes + 7) / 8);
  out.args_bytes = op.args_bytes;
  if (op.args_bytes > 0) std::memcpy(out.args.data(), op.args, op.args_bytes);
  out.phases = op.phases;
  std::copy(std::begin(op.chunks), std::end(op.chunks), out.chunks.begin());
  out.scratch_bytes = op.scratch_bytes;
  out.zeroed_bytes = op.zeroed_bytes;
  out.thread_scratch_bytes = op.thread_scratch_bytes;
  out.cost = op.cost;
  out.picked = picked_;
  for (double* cost : {out.cost.read, out.cost.written, out.cost.flops}) cost[sdk::kCostPerRow] *= repeated_;
  out.launch = op.launch;
  out.part = op.part;
  out.self = op.self;
  return TENON_OK;
}

bool ProgramRecording::written_since(size_t first_op, tenon_tid id) const {
  const tenon_tid root = program_.tensors_[id].root;
  for (size_t i = first_op; i < program_.ops_.size(); ++i) {
    for (const tenon_operand& o : program_.ops_[i].operands) {
      const bool writes = (o.access & (TENON_WRITE | TENON_WRITE_NEW)) != 0;
      if (writes && program_.tensors_[o.tensor].root == root) return true;
    }
  }
  return false;
}

void ProgramRecording::find_lifetimes(std::span<const tenon_tid> outputs) {
  for (uint32_t i = 0; i < program_.ops_.size(); ++i) {
    for (const tenon_operand& o : program_.ops_[i].operands) {
      ProgramTensor& root = program_.tensors_[program_.tensors_[o.tensor].root];
      root.first_op = std::min(root.first_op, i);
      root.last_op = std::max(root.last_op, i);
    }
  }
  for (const tenon_tid id : outputs) {
    program_.tensors_[program_.tensors_[id].root].last_op = static_cast<uint32_t>(program_.ops_.size());
  }
}

// This is first fit, largest first: each tensor goes to the lowest offset that no tensor alive at the same time uses.
void ProgramRecording::place_activations() {
  std::vector<ProgramTensor*> roots;
  for (tenon_tid id = 1; id < program_.tensors_.size(); ++id) {
    ProgramTensor& t = program_.tensors_[id];
    if (t.storage < 0 && t.root == id && t.first_op != UINT32_MAX) roots.push_back(&t);
  }
  std::stable_sort(roots.begin(), roots.end(), [](auto* a, auto* b) { return a->extent > b->extent; });
  std::vector<const ProgramTensor*> placed;  // they are sorted by offset
  for (ProgramTensor* t : roots) {
    uint64_t offset = 0;
    for (const ProgramTensor* other : placed) {
      if (other->first_op > t->last_op || t->first_op > other->last_op) continue;
      if (offset + align(t->extent) <= other->offset) break;
      offset = std::max(offset, other->offset + align(other->extent));
    }
    t->offset = offset;
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), t, [](auto* a, auto* b) { return a->offset < b->offset; }), t);
    program_.activation_bytes_ = std::max(program_.activation_bytes_, offset + align(t->extent));
  }
  for (tenon_tid id = 1; id < program_.tensors_.size(); ++id) {
    ProgramTensor& t = program_.tensors_[id];
    if (t.storage < 0 && t.root != id) t.offset += program_.tensors_[t.root].offset;
  }
}

void ProgramRecording::find_stable() {
  struct Written {
    uint64_t begin, end;
    bool only_new;
  };
  std::map<int64_t, std::vector<Written>> written;  // the key is the storage; -1 is the arena
  for (ProgramOp& op : program_.ops_) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ProgramTensor& t = program_.tensors_[op.operands[i].tensor];
      const bool old = (op.operands[i].access & TENON_READ_OLD) != 0;
      const auto& writes = written[t.storage];
      const bool clean = std::none_of(writes.begin(), writes.end(), [&](const Written& w) {
        return w.begin < t.offset + t.extent && t.offset < w.end && !(old && w.only_new);
      });
      if (clean) op.stable |= uint64_t{1} << i;
    }
    for (const tenon_operand& o : op.operands) {
      if ((o.access & (TENON_WRITE | TENON_WRITE_NEW)) == 0) continue;
      const ProgramTensor& t = program_.tensors_[o.tensor];
      const Written w{t.offset, t.offset + t.extent, (o.access & TENON_WRITE) == 0};
      auto& writes = written[t.storage];
      const bool known = std::any_of(writes.begin(), writes.end(), [&](const Written& v) {
        return v.begin <= w.begin && w.end <= v.end && (!v.only_new || w.only_new);
      });
      if (!known) writes.push_back(w);
    }
  }
}

// Large and small blocks alternate: an op is large if it can be and the op before has small ones. Alternation begins
// with small, so that every layer of a model comes out alike. An op that can only be large makes the one before it
// small; if that cannot be, it is not overlapped with it. Beside whole blocks nothing stands, so they crowd nobody.
void ProgramRecording::choose_blocks() {
  bool begun = false;
  ProgramOp* before = nullptr;
  for (ProgramOp& op : program_.ops_) {
    const bool small = (op.block_classes & TENON_BLOCKS_SMALL) != 0,
               large = (op.block_classes & TENON_BLOCKS_LARGE) != 0;
    op.plain = (op.flags & TENON_OP_FOREIGN) != 0;
    const bool overlaps = before != nullptr && !op.plain,
               after_small = !overlaps || before->blocks == TENON_BLOCKS_SMALL;
    if (op.block_classes == TENON_BLOCKS_WHOLE) {
      op.blocks = TENON_BLOCKS_WHOLE;
    } else {
      op.blocks = large && (!small || (begun && after_small)) ? TENON_BLOCKS_LARGE : TENON_BLOCKS_SMALL;
    }
    if (overlaps && before->blocks == TENON_BLOCKS_LARGE && op.blocks == TENON_BLOCKS_LARGE) {
      if ((before->block_classes & TENON_BLOCKS_SMALL) != 0) {
        before->blocks = TENON_BLOCKS_SMALL;
      } else {
        op.plain = true;
      }
    }
    begun |= op.block_classes != TENON_BLOCKS_SMALL;
    before = &op;
  }
}

// Step state may be read before the wait, since nothing in a program writes it but its last op. An op that does so in
// the middle is waited for by the op after it as a whole, and with it by all that follow.
void ProgramRecording::wait_for_state() {
  for (size_t i = 0; i + 1 < program_.ops_.size(); ++i) {
    const ProgramOp& op = program_.ops_[i];
    program_.ops_[i + 1].plain |= std::any_of(op.operands.begin(), op.operands.end(), [&](const tenon_operand& o) {
      const int64_t storage = program_.tensors_[o.tensor].storage;
      return (o.access & TENON_WRITE) != 0 && storage >= 0 && states_.contains(static_cast<uint32_t>(storage));
    });
  }
}

std::unique_ptr<Program> ProgramRecording::finish(std::span<const tenon_tid> outputs) {
  check();
  Program recorded = program_;  // it has no plan: the recording may go on
  find_lifetimes(outputs);
  place_activations();
  find_stable();
  choose_blocks();
  wait_for_state();
  for (ProgramOp& op : program_.ops_) {
    program_.scratch_bytes_ = std::max(program_.scratch_bytes_, align(op.scratch_bytes));
    program_.thread_scratch_bytes_ = std::max(program_.thread_scratch_bytes_, align(op.thread_scratch_bytes));
    op.zeroed_offset = program_.zeroed_bytes_;
    program_.zeroed_bytes_ += align(op.zeroed_bytes);
  }
  if constexpr (TENON_CHECKED) {
    const std::string problem = plan_problem(program_.tensors_, program_.ops_, program_.activation_bytes_, storages_);
    if (!problem.empty()) throw Error(ErrorCode::kInternal, "a program's plan is wrong: " + problem);
  }
  auto planned = std::make_unique<Program>(std::move(program_));
  program_ = std::move(recorded);
  return planned;
}

void Program::bind_addresses(const StorageTable& storages, const Memory& memory, void* queue, bool overlap) {
  memory_ = memory;
  addresses_.assign(tensors_.size(), nullptr);
  for (size_t id = 1; id < tensors_.size(); ++id) {
    const ProgramTensor& t = tensors_[id];
    auto* base = t.storage < 0 ? memory.activations : static_cast<std::byte*>(storages[t.storage].address);
    addresses_[id] = base + t.offset;
  }
  size_t n = 0;
  for (const ProgramOp& op : ops_) n += op.operands.size();
  pointers_.clear();
  pointers_.reserve(n);
  launches_.clear();
  launches_.reserve(ops_.size());
  for (const ProgramOp& op : ops_) {
    auto launch = sdk::abi_struct<tenon_launch>();
    launch.ptr = pointers_.data() + pointers_.size();
    for (const tenon_operand& o : op.operands) pointers_.push_back(addresses_[o.tensor]);
    launch.scratch = memory.scratch;
    launch.zeroed = memory.zeroed == nullptr ? nullptr : memory.zeroed + op.zeroed_offset;
    launch.stable = op.stable;
    launch.blocks = op.blocks;
    launch.queue = queue;
    // The first op begins when the step before has ended: it reads the state that the step's last op wrote.
    const bool first = launches_.empty();
    if (overlap && !first && !op.plain) launch.flags |= TENON_LAUNCH_OVERLAP;
    launches_.push_back(launch);
  }
}

}  // namespace tenon
