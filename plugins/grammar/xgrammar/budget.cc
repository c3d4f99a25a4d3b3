// operator new charges the budget of the calling thread before it asks for memory, and looks at the clock at every 64th
// call. What a block of memory costs is what malloc_usable_size() says of it, so operator delete can give it back
// without a header of its own.
#include "budget.h"

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>

namespace tenon::grammar_xgrammar {
namespace {

thread_local Budget* current = nullptr;

}  // namespace

Budget::Budget(double seconds, int64_t bytes)
    : seconds_(seconds),
      bytes_(bytes),
      end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))),
      outer_(current) {
  constexpr size_t kRoom = 128;  // this is enough to say the problem without an allocation
  problem_.reserve(kRoom);
  current = this;
}

Budget::~Budget() {
  current = outer_;
}

void Budget::check() {
  constexpr uint32_t kCallsAClock = 64;
  if (used_ > bytes_) {
    problem_ = "it takes more than " + std::to_string(bytes_ >> 20U) + " MiB of memory";
  } else if (++calls_ % kCallsAClock == 0 && std::chrono::steady_clock::now() > end_) {
    problem_ = "it takes more than " + std::to_string(seconds_).substr(0, 5) + " s of time";
  }
  if (!problem_.empty()) throw std::bad_alloc();
}

void Budget::charge(int64_t bytes) {
  if (current == nullptr) return;
  Budget& budget = *current;
  current = nullptr;  // check()'s own allocations are not counted
  budget.used_ += bytes;
  try {
    budget.check();
  } catch (...) {
    budget.used_ -= bytes;
    current = &budget;
    throw;
  }
  current = &budget;
}

void Budget::give_back(int64_t bytes) noexcept {
  if (current != nullptr) current->used_ -= bytes;
}

namespace {

// Returns the program's own function: objects may be made here and destroyed in another library.
template <class Function>
Function of_the_program(const char* symbol) {
  void* const found = ::dlsym(RTLD_DEFAULT, symbol);
  if (found == nullptr) std::abort();  // there is no C++ library in the process
  return reinterpret_cast<Function>(found);
}

void* allocate(size_t bytes) {
  static const auto kNew = of_the_program<void* (*)(size_t)>("_Znwm");
  Budget::charge(static_cast<int64_t>(bytes));
  try {
    void* const p = kNew(bytes);
    Budget::give_back(static_cast<int64_t>(bytes) - static_cast<int64_t>(::malloc_usable_size(p)));
    return p;
  } catch (...) {
    Budget::give_back(static_cast<int64_t>(bytes));
    throw;
  }
}

void release(void* p) noexcept {
  static const auto kDelete = of_the_program<void (*)(void*)>("_ZdlPv");
  if (p == nullptr) return;
  Budget::give_back(static_cast<int64_t>(::malloc_usable_size(p)));
  kDelete(p);
}

}  // namespace
}  // namespace tenon::grammar_xgrammar

// The version script of plugins hides these, so that they are this library's alone.
void* operator new(size_t bytes) {
  return tenon::grammar_xgrammar::allocate(bytes);
}
void* operator new[](size_t bytes) {
  return tenon::grammar_xgrammar::allocate(bytes);
}
void operator delete(void* p) noexcept {
  tenon::grammar_xgrammar::release(p);
}
void operator delete[](void* p) noexcept {
  tenon::grammar_xgrammar::release(p);
}
void operator delete(void* p, size_t) noexcept {
  tenon::grammar_xgrammar::release(p);
}
void operator delete[](void* p, size_t) noexcept {
  tenon::grammar_xgrammar::release(p);
}
