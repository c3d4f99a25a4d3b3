#include "thread_team.h"

#include <immintrin.h>

namespace tenon {
namespace {

// Long enough to bridge the host's work between two steps, short enough to leave the core to others soon.
constexpr uint32_t kSpinsBeforeYield = 2000;
constexpr uint32_t kSpinsBeforeSleep = 20000;

}  // namespace

void Barrier::pause(uint32_t spins) {
  if (spins < kSpinsBeforeYield) {
    _mm_pause();
  } else {
    std::this_thread::yield();
  }
}

ThreadTeam::ThreadTeam(uint32_t threads, std::function<void(uint32_t)> started) : started_(std::move(started)) {
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
  running_.store(static_cast<uint32_t>(threads_.size()), std::memory_order_relaxed);
  if (!threads_.empty()) {
    generation_.fetch_add(1, std::memory_order_acq_rel);
    generation_.notify_all();
  }
  job(context, 0);
  for (uint32_t spins = 0; running_.load(std::memory_order_acquire) != 0; ++spins) Barrier::pause(spins);
}

void ThreadTeam::work(uint32_t thread) {
  started_(thread);
  uint32_t seen = 0;
  while (true) {
    for (uint32_t spins = 0; generation_.load(std::memory_order_acquire) == seen && spins < kSpinsBeforeSleep;
         ++spins) {
      Barrier::pause(spins);
    }
    generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    job_(context_, thread);
    running_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

}  // namespace tenon
