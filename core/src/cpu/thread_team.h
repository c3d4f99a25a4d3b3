// A team has the threads of the CPU device. They walk a program together: between steps they sleep, within one they
// spin, since a step has hundreds of phases of a few microseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tenon {

// Returns how many cores this process may use.
uint32_t usable_cores();

// The caller is thread 0. Thread: run() by one caller at a time.
class ThreadTeam {
 public:
  // started(thread) runs once on each new thread before its first job, and has ended on all when this returns. Throws
  // what it throws, and Error(kInternal) where the system does not start a thread.
  ThreadTeam(uint32_t threads, std::function<void(uint32_t)> started);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // This is one turn of a loop that waits for other threads; soon it leaves the core to others, at once if there are
  // more threads than cores.
  void pause(uint32_t turn) const;
  uint32_t size() const { return static_cast<uint32_t>(threads_.size()) + 1; }
  // Runs job(thread) on the caller and on every thread that comes before the caller has ended, perhaps more than once;
  // returns when all that came have ended. So the job must be whole with the caller alone, and nobody waits for a
  // thread that gets no core. It allocates nothing.
  template <class F>
  void run(F& job) {
    start([](void* context, uint32_t thread) { (*static_cast<F*>(context))(thread); }, &job);
  }

 private:
  using Job = void (*)(void* context, uint32_t thread);
  void start(Job job, void* context);
  void work(uint32_t thread);
  void end();

  std::function<void(uint32_t)> started_;
  std::atomic<uint32_t> ready_{0};  // on so many threads started_ has ended
  std::mutex mutex_;
  std::exception_ptr failure_;  // started_ threw it first; mutex_ guards it
  uint32_t turns_before_yield_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  // A thread first says that it is inside and then looks whether the job is open; the caller first closes it and then
  // looks who is inside.
  alignas(64) std::atomic<uint32_t> inside_{0};
  std::atomic<bool> open_{false}, stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace tenon
