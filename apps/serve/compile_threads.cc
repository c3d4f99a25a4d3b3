#include "compile_threads.h"

#include <utility>

namespace tenon::serve {

CompileThreads::~CompileThreads() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CompileThreads::run(std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  // The thread comes first: if the system starts none, the function must not stay in the queue.
  if (idle_ <= waiting_.size() && threads_.size() < most_) threads_.emplace_back([this] { work(); });
  waiting_.push_back(std::move(function));
  changed_.notify_one();
}

void CompileThreads::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;
    const std::function<void()> function = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    function();
    lock.lock();
  }
}

}  // namespace tenon::serve
