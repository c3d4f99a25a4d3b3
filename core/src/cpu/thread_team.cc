#include "thread_team.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>

#include "tenon/core/fault.h"

namespace tenon {
namespace {

// Long enough to bridge the host's work between two steps, short enough to leave the core to others soon.
constexpr uint32_t kTurnsBeforeYield = 2000;
constexpr uint32_t kTurnsBeforeSleep = 20000;

}  // namespace

uint32_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

void ThreadTeam::pause(uint32_t turn) const {
  if (turn < turns_before_yield_) {
    _mm_pause();
  } else {
    std::this_thread::yield();
  }
}

ThreadTeam::ThreadTeam(uint32_t threads, std::function<void(uint32_t)> started)
    : started_(std::move(started)), turns_before_yield_(threads > usable_cores() ? 0 : kTurnsBeforeYield) {
  for (uint32_t t = 1; t < threads; ++t) threads_.emplace_back([this, t] { work(t); });
}

ThreadTeam::~ThreadTeam() {
  stop_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_acq_rel);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::start(Job job, void* context) {
  job_ = job;
  context_ = context;
  if (!threads_.empty()) {
    open_.store(true);
    generation_.fetch_add(1, std::memory_order_acq_rel);
    generation_.notify_all();
  }
  job(context, 0);
  open_.store(false);
  for (uint32_t turn = 0; inside_.load() != 0; ++turn) pause(turn);
}

void ThreadTeam::work(uint32_t thread) {
  const SignalStack stack;
  started_(thread);
  uint32_t seen = 0;
  while (true) {
    for (uint32_t turn = 0; generation_.load(std::memory_order_acquire) == seen && turn < kTurnsBeforeSleep; ++turn) {
      pause(turn);
    }
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    inside_.fetch_add(1);
    if (open_.load()) job_(context_, thread);
    inside_.fetch_sub(1);
  }
}

}  // namespace tenon
