// These are the tables of tenon/core/fault.h. They are fixed in size and belong to the process, since a signal handler
// can neither allocate nor be given an object; an entry is taken by one compare-and-swap and read without any.
#include "fault.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tenon {
namespace fault {
namespace {

constexpr size_t kPlaces = 512, kMappings = 1024;

struct Taken {
  std::atomic<bool> taken{false};
  Place place;
};
Taken places[kPlaces];

struct Mapping {
  std::atomic<bool> taken{false};
  std::atomic<const std::byte*> begin{nullptr}, end{nullptr};  // begin is written last
  std::atomic<char*> path{nullptr};
  std::atomic<int> descriptor{-1};
};
Mapping mappings[kMappings];

template <class Entry, size_t n>
Entry* take(Entry (&entries)[n]) noexcept {
  for (Entry& entry : entries) {
    bool free = false;
    if (entry.taken.compare_exchange_strong(free, true, std::memory_order_acq_rel)) return &entry;
  }
  return nullptr;
}

}  // namespace

thread_local Place* place_of_thread = nullptr;

PlaceLease::PlaceLease() noexcept {
  Taken* const entry = take(places);
  if (entry != nullptr) taken_ = &entry->taken;
  place_of_thread = entry != nullptr ? &entry->place : &own_;
}

PlaceLease::~PlaceLease() {
  if (place_of_thread->component.load(std::memory_order_relaxed) != nullptr) return;
  place_of_thread = nullptr;
  if (taken_ != nullptr) taken_->store(false, std::memory_order_release);
}

namespace {

// This is a key of pthread's, not a thread_local with a destructor: glibc aborts where it has no memory to note one.
struct PlaceKey {
  pthread_key_t key{};
  bool made = pthread_key_create(&key, [](void* entry) {
                place_of_thread = nullptr;
                static_cast<Taken*>(entry)->taken.store(false, std::memory_order_release);
              }) == 0;
};
const PlaceKey place_key;

}  // namespace

Place& find_place() noexcept {
  static Place shared;  // threads without a place of their own use it; nobody finds it
  Taken* const entry = place_key.made ? take(places) : nullptr;
  if (entry == nullptr) return shared;
  if (pthread_setspecific(place_key.key, entry) != 0) {
    entry->taken.store(false, std::memory_order_release);
    return shared;
  }
  place_of_thread = &entry->place;
  return *place_of_thread;
}

void remember_mapping(std::span<const std::byte> bytes, const std::filesystem::path& path, int descriptor) {
  Mapping* const m = take(mappings);
  if (m == nullptr) return;
  m->path.store(strdup(path.c_str()), std::memory_order_relaxed);
  m->descriptor.store(descriptor, std::memory_order_relaxed);
  m->end.store(bytes.data() + bytes.size(), std::memory_order_relaxed);
  m->begin.store(bytes.data(), std::memory_order_release);
}

void forget_mapping(std::span<const std::byte> bytes) noexcept {
  for (Mapping& m : mappings) {
    if (bytes.empty() || m.begin.load(std::memory_order_relaxed) != bytes.data()) continue;
    m.begin.store(nullptr, std::memory_order_release);
    std::free(m.path.exchange(nullptr, std::memory_order_relaxed));
    m.taken.store(false, std::memory_order_release);
    return;
  }
}

}  // namespace fault

Whereabouts whereabouts() noexcept {
  const fault::Place* const place = fault::place_of_thread;
  if (place == nullptr) return {};
  const char* const component = place->component.load(std::memory_order_acquire);
  if (component == nullptr) return {};
  return {component, place->function.load(std::memory_order_relaxed), place->module.load(std::memory_order_relaxed)};
}

size_t threads_in_components(std::span<Whereabouts> out) noexcept {
  size_t count = 0;
  for (const fault::Taken& entry : fault::places) {
    const char* const component = entry.place.component.load(std::memory_order_acquire);
    if (component == nullptr || count == out.size()) continue;
    out[count++] = {component, entry.place.function.load(std::memory_order_relaxed),
                    entry.place.module.load(std::memory_order_relaxed)};
  }
  return count;
}

MappedPlace mapped_file_at(const void* address) noexcept {
  const auto* const byte = static_cast<const std::byte*>(address);
  for (const fault::Mapping& m : fault::mappings) {
    const std::byte* const begin = m.begin.load(std::memory_order_acquire);
    const std::byte* const end = m.end.load(std::memory_order_relaxed);
    if (begin == nullptr || byte < begin || byte >= end) continue;
    return {m.path.load(std::memory_order_relaxed), m.descriptor.load(std::memory_order_relaxed),
            static_cast<uint64_t>(end - begin)};
  }
  return {};
}

namespace {

// A handler's frame holds the vector registers, of which AVX-512 alone has 2 KB.
size_t signal_stack_bytes() {
  return std::max<size_t>(static_cast<size_t>(SIGSTKSZ), size_t{64} << 10U);
}

}  // namespace

SignalStack::SignalStack() noexcept {
  stack_t now{};
  if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
  void* const memory =
      mmap(nullptr, signal_stack_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t own{};
  own.ss_sp = memory;
  own.ss_size = signal_stack_bytes();
  if (sigaltstack(&own, nullptr) == 0) {
    stack_ = memory;
  } else {
    munmap(memory, signal_stack_bytes());
  }
}

SignalStack::~SignalStack() {
  if (stack_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
  munmap(stack_, signal_stack_bytes());
}

}  // namespace tenon
