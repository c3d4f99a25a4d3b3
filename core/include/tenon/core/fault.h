// A process can say these things of itself when a signal ends it: which function of which component each thread is in,
// and which file is mapped at an address.
//
// Core keeps the account and handles no signal; the application does (apps/tenon/fault_report.h). A signal handler may
// call every function here: they take no lock, allocate nothing, and give texts that were there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tenon {

// This says where a thread is. All texts are nullptr if it is in no component.
struct Whereabouts {
  const char* component = nullptr;  // "sampler.greedy"
  const char* function = nullptr;   // the op that runs, or what the component was asked for: "plan"
  const char* module = nullptr;     // "layers.3.attention"; may be ""
};

// Says where the calling thread is.
Whereabouts whereabouts() noexcept;

// Says where the threads are that are in a component, as many as there is room for, and returns how many. A thread that
// goes on meanwhile may be listed for what it did a moment ago.
size_t threads_in_components(std::span<Whereabouts> out) noexcept;

// This is a file whose pages the process reads in place.
struct MappedPlace {
  const char* path = nullptr;  // nullptr: no file that core has mapped is there
  int descriptor = -1;
  uint64_t size = 0;  // it had so many bytes when it was mapped
};
// Says which mapped file is at an address.
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
