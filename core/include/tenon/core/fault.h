// What a process can say of itself when a signal ends it: which function of which component each thread is in, and
// which file is mapped at an address.
//
// Core keeps the account and handles no signal: that is the application's (apps/tenon/fault_report.h). All functions
// here may be called in a signal handler. They take no lock, allocate nothing and give texts that were there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenon {

// Where a thread is. All texts are nullptr where it is in no component.
struct Whereabouts {
  const char* component = nullptr;  // "sampler.greedy"
  const char* function = nullptr;   // the op that runs, or what the component was asked for: "plan"
  const char* module = nullptr;     // "layers.3.attention"; may be ""
};

// Of the calling thread.
Whereabouts whereabouts() noexcept;

// Of all threads that are in a component, as many as there is room for. Returns how many. A thread that goes on
// meanwhile may be listed for what it did a moment ago.
size_t threads_in_components(std::span<Whereabouts> out) noexcept;

// A file whose pages the process reads in place.
struct MappedPlace {
  const char* path = nullptr;  // nullptr: no file that core has mapped is there
  int descriptor = -1;
  uint64_t size = 0;  // when it was mapped
};
MappedPlace mapped_file_at(const void* address) noexcept;

// Gives the signals of the thread that creates it a stack of their own for as long as it lives, so that a handler runs
// where the thread's stack is used up. Does nothing where the thread has one already, or memory is short.
class SignalStack {
 public:
  SignalStack() noexcept;
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* stack_ = nullptr;
};

}  // namespace tenon
