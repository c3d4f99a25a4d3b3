// This gives a planned pipeline its memory and its weights. Its phases: the blocks of weights and tables are allocated;
// the weights are converted into theirs, through scratch that is released after it; the cache, the step's state and
// pinned memory follow; at last every program gets the addresses of its tensors. Invariants: the storages of one kind
// lie in one block, in their order, unless memory is guarded: then each lies right before a page that nobody may touch.
// The peak is never above what the plan says, so it is compared with the device's memory before anything is allocated.
// A pipeline that failed to load is not loaded again.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "../cpu/walker.h"
#include "../queue/queue_runner.h"
#include "pages_ahead.h"
#include "pipeline_impl.h"
#include "tenon/core/error.h"

namespace tenon {

std::byte* Pipeline::Impl::alloc_guarded(uint32_t space, uint64_t bytes, const std::string& purpose) {
  if (context.queues()) throw Error(ErrorCode::kUsage, "only the host's memory can be guarded");
  constexpr uint64_t kVector = 64;  // kernels may expect that a storage is aligned to it
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t whole = (bytes + page - 1) / page * page;
  auto* const base = static_cast<std::byte*>(context.memory().alloc_zeroed(space, whole + page, purpose));
  if (::mprotect(base + whole, page, PROT_NONE) != 0) {
    throw Error(ErrorCode::kInternal, std::string("a page cannot be guarded: ") + std::strerror(errno));
  }
  return base + whole - (bytes + kVector - 1) / kVector * kVector;
}

// Allocates one block for all storages of a kind, and returns where it begins.
std::byte* Pipeline::Impl::place(MemoryKind kind) {
  const uint64_t bytes = plan.of(kind);
  const uint32_t space = kind == MemoryKind::kPinned ? TENON_SPACE_HOST : TENON_SPACE_DEVICE;
  if (options.guarded) {
    for (size_t i = 0; i < storages.size(); ++i) {
      Storage& s = storages[static_cast<uint32_t>(i)];
      if (s.kind == kind) s.address = alloc_guarded(space, s.bytes, s.name);
    }
    return nullptr;
  }
  auto* const base = static_cast<std::byte*>(context.memory().alloc_zeroed(space, bytes, to_string(kind)));
  // All of a weight's memory will be read, over and over; of a cache only what is in use should be resident.
  if (kind == MemoryKind::kWeights && !context.queues() && base != nullptr) ::madvise(base, bytes, MADV_HUGEPAGE);
  std::byte* next = base;
  for (size_t i = 0; i < storages.size(); ++i) {
    Storage& s = storages[static_cast<uint32_t>(i)];
    if (s.kind != kind) continue;
    s.address = next;
    next += align(s.bytes);
  }
  return base;
}

// Locks those in the host's memory, allocated or mapped.
void Pipeline::Impl::lock_weights() const {
  if (context.queues()) return;
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[static_cast<uint32_t>(i)];
    if ((s.kind != MemoryKind::kWeights && s.kind != MemoryKind::kMapped) || s.address == nullptr) continue;
    if (::mlock(s.address, s.bytes) == 0) continue;
    throw Error(ErrorCode::kUsage, "weights.lock: the system does not lock " + format_bytes(s.bytes) + " of " + s.name +
                                       " (" + std::strerror(errno) + "); the limit (`ulimit -l`) has to be above " +
                                       format_bytes(plan.of(MemoryKind::kWeights) + plan.of(MemoryKind::kMapped)));
  }
}

void Pipeline::Impl::load(const LoadProgress& progress) {
  if (const std::string problem = plan.problem(context.device().kind); !problem.empty()) {
    throw Error(ErrorCode::kMemory, problem + "; a smaller kv_cache.capacity (now " + std::to_string(capacity) +
                                        " tokens) or a smaller format of weights or cache needs less\n" +
                                        to_string(plan));
  }
  if (load_failed) throw Error(ErrorCode::kUsage, "loading this pipeline has failed before: build it anew");
  load_failed = true;
  try {
    fill(progress);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kMemory) throw;
    throw Error(ErrorCode::kMemory, e.diagnostics().front().message + "; the plan needs " + format_bytes(plan.peak()) +
                                        ", and " + format_bytes(plan.device_memory) +
                                        " were there when it was made; another program may have taken of it since");
  }
  load_failed = false;
}

void Pipeline::Impl::fill(const LoadProgress& progress) {
  context.enter();
  target.map_weights();
  if (draft_model) draft_model->map_weights();
  std::byte* const to = place(MemoryKind::kWeights);
  place(MemoryKind::kTables);
  void* scratch = options.guarded ? alloc_guarded(TENON_SPACE_DEVICE, plan.load_scratch, "converting weights")
                                  : context.memory().alloc(TENON_SPACE_DEVICE, plan.load_scratch, "converting weights");
  {
    std::optional<PagesAhead> pages;
    if (!context.queues() && context.device().units > 1 && to != nullptr)
      pages.emplace(to, plan.of(MemoryKind::kWeights));
    const uint64_t first = target.load_total(), total = first + (draft_model ? draft_model->load_total() : 0);
    const auto report = [&](uint64_t before) {
      return [&progress, before, total](uint64_t done, uint64_t) {
        if (progress) progress(before + done, total);
      };
    };
    target.load(static_cast<std::byte*>(scratch), report(0));
    if (draft_model) draft_model->load(static_cast<std::byte*>(scratch), report(first));
  }
  context.memory().release(scratch);
  if (config.lock_weights) lock_weights();
  for (const MemoryKind kind : {MemoryKind::kKvCache, MemoryKind::kState, MemoryKind::kPinned}) place(kind);
  state.attach(storages, context);
  masks.attach(storages, context);
  target.attach();
  if (draft_model) draft_model->attach();
  link_programs();
}

void Pipeline::Impl::link_programs() {
  const auto alloc = [&](MemoryKind kind) {
    if (options.guarded) return alloc_guarded(TENON_SPACE_DEVICE, plan.of(kind), to_string(kind));
    return static_cast<std::byte*>(context.memory().alloc_zeroed(TENON_SPACE_DEVICE, plan.of(kind), to_string(kind)));
  };
  const tenon_device& device = context.device();
  memory.activations = alloc(MemoryKind::kActivations);
  memory.thread_scratch = alloc(MemoryKind::kWorkspace);
  memory.scratch = memory.thread_scratch + memory.thread_scratch_stride * (context.queues() ? 0 : device.units);
  uint64_t scratch_bytes = 0;
  for (const Program* p : all_programs()) scratch_bytes = std::max(scratch_bytes, p->scratch_bytes());
  memory.zeroed = memory.scratch + scratch_bytes;
  if (context.queues()) {
    runner = std::make_unique<QueueRunner>(device, context.queue(), config.execution, options.recorder);
  } else {
    runner = std::make_unique<Walker>(device.units, options.recorder);
  }
  const bool overlap = (device.flags & TENON_DEVICE_OVERLAPS) != 0 && config.execution != Execution::kPerOp;
  for (Program* p : all_programs()) {
    p->bind_addresses(storages, memory, context.queue(), overlap);
    if (p != remembering.get()) runner->prepare(*p);
  }
  if (options.recorder != nullptr) origins.emplace(*options.recorder, draft ? draft.id() : "");
  Status done = runner->finish();
  if (!done.ok()) throw Error(done.code(), done.message());
}

}  // namespace tenon
