// These threads compile grammars, for which neither the stepping thread nor the connections have time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tenon::serve {

// Thread: any. Functions do not throw. Those that were handed in run before it ends.
class CompileThreads {
 public:
  // The threads start when there is something to do.
  explicit CompileThreads(uint32_t threads) : most_(threads) {}
  ~CompileThreads();
  CompileThreads(const CompileThreads&) = delete;
  CompileThreads& operator=(const CompileThreads&) = delete;

  void run(std::function<void()> function);

 private:
  void work();

  const uint32_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  uint32_t idle_ = 0;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tenon::serve
