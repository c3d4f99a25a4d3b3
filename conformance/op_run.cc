// A stand-in host runs a program: op by op under watch, then as core plans it. Under watch each root has its own
// guarded memory. Unwritten memory is NaN, an op may read only what was written, and it may change no byte but those of
// the operands that it writes. On a device that walks, chunks come in random runs and orders.
#include "conformance/op_run.h"

#include <algorithm>
#include <set>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon::conformance {
namespace {

constexpr uint32_t kWrites = TENON_WRITE | TENON_WRITE_NEW;
constexpr uint32_t kMostThreads = 4;

struct Reason {
  char text[512] = "";
  tenon_reason raw{text, sizeof(text)};
};

void check_part(const ProgramOp& op, const tenon_launch& launch, tenon_part part) {
  Reason why;
  part.launch = &launch;
  part.why = &why.raw;
  if (op.part(op.self, op.args.data(), &part) != TENON_OK) throw Fault(std::string("failed: ") + why.text);
}

// The result is "", or what went wrong first in `work`.
template <class F>
std::string fault_of(const F& work) {
  try {
    work();
    return {};
  } catch (const Fault& e) {
    return e.what();
  } catch (const Error& e) {
    return e.diagnostics().front().message;
  }
}

}  // namespace

// Ops get this beside their operands while they are watched.
struct OpRunner::Workspace {
  Workspace(const Device& device, const Program& program) : scratch(device, program.scratch_bytes(), "scratch") {
    for (uint32_t i = 0; i < kMostThreads; ++i) {
      threads.push_back(std::make_unique<GuardedMemory>(device, program.thread_scratch_bytes(), "thread scratch"));
    }
    for (const ProgramOp& op : program.ops()) {
      zeroed.push_back(std::make_unique<GuardedMemory>(device, op.zeroed_bytes, "zeroed memory"));
    }
  }
  std::vector<GuardedMemory*> of(size_t op) {
    std::vector<GuardedMemory*> all = {&scratch, zeroed[op].get()};
    for (const auto& t : threads) all.push_back(t.get());
    return all;
  }

  GuardedMemory scratch;
  std::vector<std::unique_ptr<GuardedMemory>> threads, zeroed;  // zeroed: by op
  std::set<const GuardedMemory*> written;                       // these temporaries have been
};

std::vector<GuardedMemory*> OpRunner::all_memory() const {
  std::vector<GuardedMemory*> all;
  for (const auto& [storage, it] : held_) all.push_back(it.memory.get());
  for (const auto& [root, memory] : temps_) all.push_back(memory.get());
  return all;
}

void OpRunner::hold_all() {
  for (size_t i = 0; i < storages_.size(); ++i) held(static_cast<uint32_t>(i));
}

void OpRunner::fill_outputs() {
  for (const auto& [storage, it] : held_) {
    if (it.use == Use::kOutput) it.memory->fill(kPoison);
  }
}

std::vector<std::vector<uint8_t>> OpRunner::contents() const {
  std::vector<std::vector<uint8_t>> all;
  for (const auto& [storage, it] : held_) all.push_back(it.memory->remember());
  return all;
}

void OpRunner::check_same(const std::vector<std::vector<uint8_t>>& wanted, const char* how) const {
  size_t i = 0;
  for (const auto& [storage, it] : held_) {
    const std::vector<uint8_t>& now = it.memory->remember();
    if (const std::string damage = it.memory->damage(); !damage.empty()) throw Fault(damage + ", " + how);
    const auto at = std::mismatch(now.begin(), now.end(), wanted[i++].begin()).first - now.begin();
    if (static_cast<size_t>(at) == now.size()) continue;
    throw Fault("byte " + std::to_string(at) + " of " + it.memory->name() + " is another one " + how +
                " than op by op");
  }
}

std::string OpRunner::run(uint64_t seed) {
  return fault_of([&] {
    std::mt19937_64 random(seed);
    planned_run_ = false;
    planned();
    hold_all();
    write_state();
    fill_outputs();
    const auto before = contents();
    run_watched(random);
    const auto after = contents();
    std::vector<std::pair<Launch, const char*>> ways = {{Launch::kPlain, "as core lays memory out"}};
    if (!device_.walks()) {
      if ((device_.table().flags & TENON_DEVICE_OVERLAPS) != 0) ways = {{Launch::kOverlap, "launched with overlap"}};
      ways.emplace_back(Launch::kGraph, "captured and replayed");
    }
    for (const auto& [way, how] : ways) {
      auto bytes = before.begin();
      for (const auto& [storage, it] : held_) {
        it.memory->write(bytes->data(), 0, bytes->size());
        ++bytes;
      }
      run_planned(way);
      check_same(after, how);
    }
    read_state();
  });
}

// Runs op by op; every launch is core's, with the addresses of guarded memory.
void OpRunner::run_watched(std::mt19937_64& random) {
  const Program& program = planned();
  for (const ProgramOp& op : program.ops()) {
    for (const tenon_operand& o : op.operands) memory_of(o.tensor);
  }
  bind_addresses(false);
  Workspace work(device_, program);
  for (const auto& [root, memory] : temps_) memory->fill(kPoison);
  for (GuardedMemory* memory : all_memory()) memory->remember();
  for (size_t i = 0; i < program.ops().size(); ++i) {
    try {
      watch_op(i, work, random);
    } catch (const Fault& e) {
      throw Fault(program.ops()[i].name + ": " + e.what());
    } catch (const Error& e) {
      throw Fault(program.ops()[i].name + ": " + e.diagnostics().front().message);
    }
  }
}

void OpRunner::watch_op(size_t index, Workspace& work, std::mt19937_64& random) {
  const Program& program = planned();
  const ProgramOp& op = program.ops()[index];
  std::vector<void*> pointers;
  for (const tenon_operand& o : op.operands) {
    const GuardedMemory& memory = memory_of(o.tensor);
    const bool temp = program.tensor(o.tensor).storage < 0;
    if (temp && (o.access & kWrites) == 0 && !work.written.contains(&memory)) {
      throw Fault("reads " + memory.name() + ", which nothing has written");
    }
    pointers.push_back(data(o.tensor));
  }
  for (const tenon_operand& o : op.operands) {
    if ((o.access & kWrites) != 0) work.written.insert(&memory_of(o.tensor));
  }
  work.scratch.lay(op.scratch_bytes, kPoison);
  tenon_launch launch = program.launch(index);
  launch.ptr = pointers.data();
  launch.scratch = op.scratch_bytes != 0 ? work.scratch.data() : nullptr;
  launch.zeroed = op.zeroed_bytes != 0 ? work.zeroed[index]->data() : nullptr;
  const auto guard = [&](auto what) {
    for (const GuardedMemory* memory : all_memory()) (memory->*what)();
    for (const GuardedMemory* memory : work.of(index)) (memory->*what)();
  };
  if (device_.walks()) {
    for (const auto& t : work.threads) t->lay(op.thread_scratch_bytes, kPoison);
    guard(&GuardedMemory::close);
    try {
      part_op(op, launch, work, random);
    } catch (...) {
      guard(&GuardedMemory::open);
      throw;
    }
    guard(&GuardedMemory::open);
  } else {
    launch_op(op, launch);
    device_.wait();
  }
  check_memory({&op, 1});
  for (GuardedMemory* memory : work.of(index)) {
    const uint8_t* now = memory->look();
    if (const std::string damage = memory->damage(); !damage.empty()) throw Fault(damage);
    if (memory != work.zeroed[index].get()) continue;
    if (std::any_of(now, now + memory->bytes(), [](uint8_t b) { return b != 0; })) {
      throw Fault("left its zeroed memory not zero");
    }
  }
}

void OpRunner::part_op(const ProgramOp& op, const tenon_launch& launch, Workspace& work,
                       std::mt19937_64& random) const {
  if (op.part == nullptr) throw Fault("has no part() for a device that walks");
  const uint32_t threads = 1 + static_cast<uint32_t>(random() % kMostThreads);
  for (uint32_t phase = 0; phase < op.phases; ++phase) {
    const uint32_t chunks = op.chunks[phase];
    const uint32_t longest = 1 + static_cast<uint32_t>(random() % chunks);
    std::vector<std::pair<uint32_t, uint32_t>> runs;
    for (uint32_t begin = 0; begin < chunks;) {
      const uint32_t end = begin + std::min<uint32_t>(1 + random() % longest, chunks - begin);
      runs.emplace_back(begin, end);
      begin = end;
    }
    std::shuffle(runs.begin(), runs.end(), random);
    for (const auto& [begin, end] : runs) {
      auto part = sdk::abi_struct<tenon_part>();
      part.phase = phase;
      part.begin = begin;
      part.end = end;
      uint8_t* scratch = work.threads[random() % threads]->data();
      std::fill_n(scratch, op.thread_scratch_bytes, kPoison);
      part.thread_scratch = op.thread_scratch_bytes != 0 ? scratch : nullptr;
      check_part(op, launch, part);
    }
  }
}

void OpRunner::launch_op(const ProgramOp& op, const tenon_launch& launch) const {
  if (op.launch == nullptr) throw Fault("has no launch() for a device with queues");
  Reason why;
  if (op.launch(op.self, op.args.data(), &launch, &why.raw) != TENON_OK) {
    throw Fault(std::string("failed: ") + why.text);
  }
}

// Nothing has changed but bytes of the operands that the ops write.
void OpRunner::check_memory(std::span<const ProgramOp> ops) const {
  std::map<const GuardedMemory*, std::vector<bool>> writable;
  const auto allow = [&](tenon_tid id) {
    const tenon_tensor& view = planned().tensor(id).view;
    auto& mask = writable[&memory_of(id)];
    mask.resize(memory_of(id).bytes());
    for_each_run(view, [&, first = offset_of(id)](uint64_t offset, uint64_t bytes) {
      const auto at = mask.begin() + static_cast<int64_t>(first + offset);
      std::fill(at, at + static_cast<int64_t>(bytes), true);
    });
  };
  for (const ProgramOp& op : ops) {
    for (const tenon_operand& o : op.operands) {
      if ((o.access & kWrites) != 0) allow(o.tensor);
    }
  }
  for (GuardedMemory* memory : all_memory()) {
    if (memory->seen().size() != memory->bytes()) continue;  // this temporary took no part: the program has its own
    const uint8_t* now = memory->look();
    if (const std::string damage = memory->damage(); !damage.empty()) throw Fault(damage);
    if (std::equal(now, now + memory->bytes(), memory->seen().begin())) continue;
    const auto found = writable.find(memory);
    for (uint64_t i = 0; i < memory->bytes(); ++i) {
      if (now[i] == memory->seen()[i] || (found != writable.end() && found->second[i])) continue;
      throw Fault("wrote byte " + std::to_string(i) + " of " + memory->name() + ", which it did not declare");
    }
    memory->remember();
  }
}

void OpRunner::bind_addresses(bool overlap) {
  planned();
  if (arena_ == nullptr) arena_ = std::make_unique<Arena>(device_, *program_);
  const auto bytes = [](const GuardedMemory& memory) { return reinterpret_cast<std::byte*>(memory.data()); };
  program_->bind_addresses(storages_,
                           {.activations = bytes(arena_->activations),
                            .scratch = bytes(arena_->scratch),
                            .zeroed = bytes(arena_->zeroed),
                            .thread_scratch = bytes(arena_->thread),
                            .thread_scratch_stride = 0},
                           device_.queue(), overlap);
}

void OpRunner::run_planned(Launch how) {
  bind_addresses(how != Launch::kPlain && (device_.table().flags & TENON_DEVICE_OVERLAPS) != 0);
  arena_->activations.fill(kPoison);
  arena_->scratch.fill(kPoison);
  if (device_.walks()) {
    walk_all();
  } else if (how == Launch::kGraph) {
    replay_all();
  } else {
    launch_all();
  }
  device_.wait();
  for (GuardedMemory* memory : {&arena_->activations, &arena_->scratch, &arena_->zeroed, &arena_->thread}) {
    const uint8_t* now = memory->look();
    if (const std::string damage = memory->damage(); !damage.empty()) throw Fault(damage);
    if (memory != &arena_->zeroed) continue;
    if (std::any_of(now, now + memory->bytes(), [](uint8_t b) { return b != 0; }))
      throw Fault("left zeroed memory not zero");
  }
}

void OpRunner::walk_all() const {
  for (size_t i = 0; i < program_->ops().size(); ++i) {
    const ProgramOp& op = program_->ops()[i];
    if (op.part == nullptr) throw Fault(op.name + " has no part() for a device that walks");
    auto part = sdk::abi_struct<tenon_part>();
    part.thread_scratch = arena_->thread.data();
    for (part.phase = 0; part.phase < op.phases; ++part.phase) {
      part.begin = 0;
      part.end = op.chunks[part.phase];
      check_part(op, program_->launch(i), part);
    }
  }
}

void OpRunner::launch_all() const {
  for (size_t i = 0; i < program_->ops().size(); ++i) launch_op(program_->ops()[i], program_->launch(i));
}

void OpRunner::replay_all() const {
  const tenon_device& device = device_.table();
  Reason why;
  const auto check = [&](tenon_status status) {
    if (status != TENON_OK) throw Fault(why.text);
  };
  void* graph = nullptr;
  check(device.capture_begin(device.self, device_.queue(), &why.raw));
  try {
    launch_all();
  } catch (...) {
    if (device.capture_end(device.self, device_.queue(), &graph, nullptr) == TENON_OK) {
      device.graph_release(device.self, graph);
    }
    throw;
  }
  check(device.capture_end(device.self, device_.queue(), &graph, &why.raw));
  const tenon_status status = device.replay(device.self, graph, device_.queue(), &why.raw);
  if (status == TENON_OK) device_.wait();
  device.graph_release(device.self, graph);
  check(status);
}

const Program& OpRunner::prepare(bool overlap) {
  planned();
  hold_all();
  write_state();
  bind_addresses(overlap);
  return *program_;
}

std::string OpRunner::run_once(Launch how) {
  return fault_of([&] {
    planned_run_ = true;
    prepare(false);
    fill_outputs();
    contents();
    run_planned(how);
    check_memory(program_->ops());
    read_state();
  });
}

std::string OpRunner::run_unwatched() {
  return fault_of([&] {
    planned_run_ = true;
    planned();
    if (arena_ == nullptr) prepare(true);
    write_state();
    if (device_.walks()) {
      walk_all();
    } else {
      launch_all();
      device_.wait();
    }
    read_state();
  });
}

}  // namespace tenon::conformance
