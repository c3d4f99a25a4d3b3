// This measures how fast memory can be read. Each thread reads its own part, which it has written itself; all begin
// together, and the best of some passes counts.
#include "bandwidth.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <fstream>
#include <latch>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace tenon::app {
namespace {

constexpr uint32_t kPasses = 5;
constexpr size_t kAlignment = 64;

using Block = uint64_t __attribute__((vector_size(64)));
constexpr size_t kUnroll = 8;    // enough loads in flight for one core
constexpr size_t kAhead = 8192;  // these bytes are asked for early; without, some cores read a tenth less

// This is inlined into one function for each instruction set, which decides what a block is made of.
__attribute__((always_inline)) inline uint64_t sum_blocks(const Block* blocks, size_t count) {
  Block sums[kUnroll] = {};
  for (size_t i = 0; i < count; i += kUnroll) {
    for (size_t u = 0; u < kUnroll; ++u) {
      __builtin_prefetch(reinterpret_cast<const char*>(&blocks[i + u]) + kAhead);
      sums[u] += blocks[i + u];
    }
  }
  uint64_t total = 0;
  for (const Block& sum : sums) {
    for (size_t lane = 0; lane < 8; ++lane) total += sum[lane];
  }
  return total;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t sum_avx512(const Block* blocks, size_t count) {
  return sum_blocks(blocks, count);
}
__attribute__((target("avx2"))) uint64_t sum_avx2(const Block* blocks, size_t count) {
  return sum_blocks(blocks, count);
}
#endif
uint64_t sum_plain(const Block* blocks, size_t count) {
  return sum_blocks(blocks, count);
}

using Sum = uint64_t (*)(const Block*, size_t);
Sum widest_sum() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &sum_avx512;
  if (__builtin_cpu_supports("avx2")) return &sum_avx2;
#endif
  return &sum_plain;
}

// Returns the bytes of the last caches that so many threads can have their parts in; 0: the system does not say.
uint64_t last_cache_bytes(uint32_t threads) {
  std::vector<std::pair<std::string, uint64_t>> caches;  // the processors that share it, and its bytes
  for (uint32_t cpu = 0;; ++cpu) {
    const std::string cache = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
    std::ifstream size(cache + "size"), shared(cache + "shared_cpu_list");
    uint64_t kib = 0;
    std::string processors;
    if (!(size >> kib) || !(shared >> processors)) break;
    const bool known =
        std::any_of(caches.begin(), caches.end(), [&](const auto& other) { return other.first == processors; });
    if (!known) caches.emplace_back(processors, kib << 10);
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < caches.size() && i < threads; ++i) bytes += caches[i].second;
  return bytes;
}

// Returns far more bytes than caches hold, as long as that is little of what the machine has left.
uint64_t buffer_bytes(uint64_t available, uint32_t threads) {
  constexpr uint64_t kMost = uint64_t{1} << 30, kFew = uint64_t{256} << 20, kLeast = uint64_t{16} << 20;
  const uint64_t caches = last_cache_bytes(threads);
  const uint64_t wanted = caches == 0 ? kMost : std::clamp(8 * caches, kFew, kMost);
  return available == 0 ? kFew : std::clamp(available / 16, kLeast, wanted);
}

uint64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  }
  return 0;
}

struct FreeBlocks {
  void operator()(void* p) const { ::operator delete(p, std::align_val_t(kAlignment)); }
};

}  // namespace

Bandwidth read_bandwidth(uint32_t threads) {
  const uint64_t wanted = buffer_bytes(available_memory(), threads);
  const size_t share = wanted / sizeof(Block) / threads / kUnroll * kUnroll;  // a thread has so many blocks
  Bandwidth result{.bytes_per_second = 0,
                   .buffer = share * threads * sizeof(Block),
                   .threads = threads,
                   .passes = kPasses,
                   .device = {}};
  const std::unique_ptr<void, FreeBlocks> memory(::operator new(result.buffer, std::align_val_t(kAlignment)));
  auto* blocks = static_cast<Block*>(memory.get());
  const Sum sum = widest_sum();
  std::atomic<uint64_t> total = 0;  // keeps the reading from being left out
  std::barrier line(static_cast<std::ptrdiff_t>(threads) + 1);
  // Nobody comes to the line before all can: a thread that is not started would be waited for without end.
  std::latch started(1);
  bool complete = false;
  const auto work = [&](Block* mine) {
    started.wait();
    if (!complete) return;
    std::fill_n(mine, share, Block{1});
    for (uint32_t pass = 0; pass < kPasses; ++pass) {
      line.arrive_and_wait();
      total += sum(mine, share);
      line.arrive_and_wait();
    }
  };
  std::vector<std::jthread> workers;
  try {
    for (uint32_t t = 0; t < threads; ++t) workers.emplace_back(work, blocks + t * share);
  } catch (const std::system_error& e) {
    started.count_down();
    throw Error(ErrorCode::kInternal, "a thread that reads cannot be started: " + e.code().message());
  } catch (...) {
    started.count_down();
    throw;
  }
  complete = true;
  started.count_down();
  for (uint32_t pass = 0; pass < kPasses; ++pass) {
    // The clock is read before the line and not after it: with all cores reading, this
    // thread may be woken when they have long begun.
    const auto start = std::chrono::steady_clock::now();
    line.arrive_and_wait();
    line.arrive_and_wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    result.bytes_per_second = std::max(result.bytes_per_second, static_cast<double>(result.buffer) / took.count());
  }
  return result;
}

Bandwidth read_bandwidth(const Pipeline& pipeline) {
  const auto rate = pipeline.read_rate();
  if (!rate) return read_bandwidth(pipeline.threads());
  return {.bytes_per_second = rate->bytes_per_second, .buffer = rate->bytes, .device = pipeline.device().name};
}

}  // namespace tenon::app
