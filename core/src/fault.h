// This keeps account of who is in which component; see tenon/core/fault.h for who reads it.
#pragma once

#include <atomic>
#include <filesystem>
#include <span>

#include "tenon/core/fault.h"

namespace tenon::fault {

// A place belongs to one thread. That thread alone writes it; handlers and watching threads read it.
struct alignas(64) Place {
  std::atomic<const char*> component{nullptr}, function{nullptr}, module{nullptr};
};

// This is the place of the thread that creates it, as long as it lives; it allocates nothing. A thread of core's has
// one on its stack. It is not given back where exit() is called from within a component, which ends the thread too:
// what exit() calls afterwards is to know where it came from.
class PlaceLease {
 public:
  PlaceLease() noexcept;
  ~PlaceLease();
  PlaceLease(const PlaceLease&) = delete;
  PlaceLease& operator=(const PlaceLease&) = delete;

 private:
  std::atomic<bool>* taken_ = nullptr;
  Place own_;  // it is used when all places are taken; only the thread itself finds it
};

// Returns the calling thread's place. The first call of a thread without a lease gives it one until it ends.
Place& find_place() noexcept;
[[gnu::tls_model("initial-exec")]] extern thread_local Place* place_of_thread;

inline Place& my_place() noexcept {
  return place_of_thread != nullptr ? *place_of_thread : find_place();
}

// The calling thread is in a function of a component for as long as this lives; nests. The texts outlive it. Costs a
// few stores to a line of the thread's own.
class InComponent {
 public:
  InComponent(const char* component, const char* function, const char* module = "") noexcept
      : place_(my_place()),
        component_(place_.component.load(std::memory_order_relaxed)),
        function_(place_.function.load(std::memory_order_relaxed)),
        module_(place_.module.load(std::memory_order_relaxed)) {
    put(component, function, module);
  }
  ~InComponent() { put(component_, function_, module_); }
  InComponent(const InComponent&) = delete;
  InComponent& operator=(const InComponent&) = delete;

 private:
  // The component goes last, for handlers on this thread: what it is there with is there.
  void put(const char* component, const char* function, const char* module) noexcept {
    place_.function.store(function, std::memory_order_relaxed);
    place_.module.store(module, std::memory_order_relaxed);
    place_.component.store(component, std::memory_order_release);
  }

  Place& place_;
  const char *component_, *function_, *module_;  // the thread was there before
};

// Remembers a mapping that mapped_file_at() finds. The descriptor stays open until it is forgotten. If there are more
// than it has room for, the last are not found. Thread: any.
void remember_mapping(std::span<const std::byte> bytes, const std::filesystem::path& path, int descriptor);
void forget_mapping(std::span<const std::byte> bytes) noexcept;

}  // namespace tenon::fault
