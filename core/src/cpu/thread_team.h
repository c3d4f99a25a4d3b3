// The threads of the CPU device. They walk a program together: between steps they sleep, within one they spin, since a
// step has hundreds of phases of a few microseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace tenon {

// Holds back `size` threads until all have come. Yields after some spinning, so that more threads than cores get on.
class Barrier {
 public:
  explicit Barrier(uint32_t size) : size_(size) {}
  // `last` is run by the last one to arrive, before the others go on.
  template <class F>
  void arrive(F&& last) {
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      last();
      generation_.store(generation + 1, std::memory_order_release);
      return;
    }
    for (uint32_t spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins) pause(spins);
  }
  static void pause(uint32_t spins);

 private:
  const uint32_t size_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

// The caller is thread 0. Thread: run() by one caller at a time.
class ThreadTeam {
 public:
  // started(thread) runs once on each new thread before its first job.
  ThreadTeam(uint32_t threads, std::function<void(uint32_t)> started);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(threads_.size()) + 1; }
  // job(thread) on every thread at once; returns when all have ended. No allocation.
  template <class F>
  void run(F& job) {
    start([](void* context, uint32_t thread) { (*static_cast<F*>(context))(thread); }, &job);
  }

 private:
  using Job = void (*)(void* context, uint32_t thread);
  void start(Job job, void* context);
  void work(uint32_t thread);

  std::function<void(uint32_t)> started_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tenon
