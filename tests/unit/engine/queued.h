// This is the queue of the device in queued.cc, as tests that run on it see it.
#pragma once

#include <functional>

namespace tenon::test {

class Queue {
 public:
  virtual ~Queue() = default;
  // What is enqueued from now on runs on a thread of its own, in order, while the caller goes on. Before, it runs at
  // once, since components of the CPU load without a queue.
  virtual void begin() = 0;
  virtual void enqueue(std::function<void()> work) = 0;
};

}  // namespace tenon::test
