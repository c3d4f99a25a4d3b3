// Allocates what the plan says and fills it.
#include <sys/mman.h>

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

// One block for all storages of a kind; where it begins.
std::byte* Pipeline::Impl::place(MemoryKind kind) {
  const uint64_t bytes = plan.of(kind);
  const uint32_t space = kind == MemoryKind::kPinned ? TENON_SPACE_HOST : TENON_SPACE_DEVICE;
  auto* const base = static_cast<std::byte*>(parts.memory->alloc_zeroed(space, bytes, to_string(kind)));
  // All of it will be read, over and over; of a cache only what is in use should be resident.
  if (kind == MemoryKind::kWeights && !parts.queues() && base != nullptr) ::madvise(base, bytes, MADV_HUGEPAGE);
  std::byte* next = base;
  for (size_t i = 0; i < storages.size(); ++i) {
    Storage& s = storages[static_cast<uint32_t>(i)];
    if (s.kind != kind) continue;
    s.address = next;
    next += align(s.bytes);
  }
  return base;
}

// The stores that are used where the file's mapping has them.
void Pipeline::Impl::map_weights() {
  for (const Site& site : declared->sites) {
    for (const SiteGroup& group : site.groups) {
      for (size_t i = 0; i < group.stores.size(); ++i) {
        Storage& s = storages[group.stores[i]];
        if (s.kind != MemoryKind::kMapped) continue;
        const std::byte* bytes = weights.mapped(*site.decl.mats[group.mats[i]].source);
        s.address = const_cast<std::byte*>(bytes);  // recorded for reading only
      }
    }
  }
}

// Those in the host's memory, allocated or mapped.
void Pipeline::Impl::lock_weights() const {
  if (parts.queues()) return;
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
  if (plan.peak() > plan.device_memory) {
    throw Error(ErrorCode::kMemory, "the pipeline needs " + format_bytes(plan.peak()) + " and device " +
                                        parts.device().kind + " has " + format_bytes(plan.device_memory) +
                                        "; a smaller kv_cache.capacity (now " + std::to_string(capacity) +
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
  parts.enter();
  map_weights();
  std::byte* const to = place(MemoryKind::kWeights);
  place(MemoryKind::kTables);
  void* scratch = parts.memory->alloc(TENON_SPACE_DEVICE, plan.load_scratch, "converting weights");
  {
    std::optional<PagesAhead> pages;
    if (!parts.queues() && parts.device().units > 1) pages.emplace(to, plan.of(MemoryKind::kWeights));
    loader->load(static_cast<std::byte*>(scratch), progress);
  }
  parts.memory->release(scratch);
  if (config.lock_weights) lock_weights();
  for (const MemoryKind kind : {MemoryKind::kKvCache, MemoryKind::kState, MemoryKind::kPinned}) place(kind);
  state.attach(storages, parts);
  std::vector<void*> stores;
  for (const uint32_t s : kv_stores) stores.push_back(storages[s].address);
  Call attach(parts.kv_cache, "attach");
  attach.check(
      parts.kv_cache.table<tenon_kv_cache>().attach(parts.kv_cache.self(), stores.data(), parts.queue(), attach.why()));
  link_programs();
}

void Pipeline::Impl::link_programs() {
  const auto alloc = [&](MemoryKind kind) {
    return static_cast<std::byte*>(parts.memory->alloc_zeroed(TENON_SPACE_DEVICE, plan.of(kind), to_string(kind)));
  };
  const tenon_device& device = parts.device();
  memory.activations = alloc(MemoryKind::kActivations);
  memory.thread_scratch = alloc(MemoryKind::kWorkspace);
  memory.scratch = memory.thread_scratch + memory.thread_scratch_stride * (parts.queues() ? 0 : device.units);
  uint64_t scratch_bytes = 0;
  for (const StepProgram& p : programs) scratch_bytes = std::max(scratch_bytes, p.program->scratch_bytes());
  memory.zeroed = memory.scratch + scratch_bytes;
  if (parts.queues()) {
    runner = std::make_unique<QueueRunner>(device, parts.queue(), config.execution, options.recorder);
  } else {
    runner = std::make_unique<Walker>(device.units, options.recorder);
  }
  const bool overlap = (device.flags & TENON_DEVICE_OVERLAPS) != 0 && config.execution != Execution::kPerOp;
  for (StepProgram& p : programs) {
    p.program->link(storages, memory, parts.queue(), overlap);
    runner->prepare(*p.program);
  }
  if (options.recorder != nullptr) sites.emplace(*options.recorder);
  Status done = runner->finish();
  if (!done.ok()) throw Error(done.code(), done.message());
}

}  // namespace tenon
