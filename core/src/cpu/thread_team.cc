// A team of threads walks programs together. Between steps they sleep; within one they spin, and yield after a while,
// or at once where they are more than the cores. The caller works as thread 0 and returns when all are done.
#include "thread_team.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "../fault.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

// They are enough to bridge the host's work between two steps, and few enough to leave the core to others soon.
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
  try {
    for (uint32_t t = 1; t < threads; ++t) threads_.emplace_back([this, t] { work(t); });
    for (uint32_t ready = 0; (ready = ready_.load(std::memory_order_acquire)) + 1 < threads;) ready_.wait(ready);
    if (failure_) std::rethrow_exception(failure_);
  } catch (const std::system_error& e) {
    const size_t running = threads_.size() + 1;  // the caller counts too
    end();
    throw Error(ErrorCode::kInternal, "device.threads is " + std::to_string(threads) + ", and after " +
                                          std::to_string(running) +
                                          " the system starts no more: " + e.code().message());
  } catch (...) {
    end();
    throw;
  }
}

ThreadTeam::~ThreadTeam() {
  end();
}

void ThreadTeam::end() {
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
  const fault::PlaceLease place;
  const SignalStack stack;
  try {
    started_(thread);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  ready_.fetch_add(1, std::memory_order_acq_rel);
  ready_.notify_all();
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
