// This measures what the viewer takes at most while it reads a trace and works out its steps: the allocator's bytes, so
// that the figure is the same on every machine.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "made_trace.h"
#include "model/analysis.h"

namespace {

std::atomic<size_t> live{0}, most{0};

void* take(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = live += malloc_usable_size(memory);
  if (now > most) most = now;  // one thread allocates at a time here
  return memory;
}

void give_back(void* memory) {
  live -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// All of them are replaced: a sanitizer brings its own for those that are left out.
void* operator new(size_t size) {
  return take(size);
}
void* operator new[](size_t size) {
  return take(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return take(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return take(size);
}
void operator delete(void* memory) noexcept {
  give_back(memory);
}
void operator delete[](void* memory) noexcept {
  give_back(memory);
}
void operator delete(void* memory, size_t) noexcept {
  give_back(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  give_back(memory);
}

namespace tenon::view {
namespace {

constexpr int kEvents = 300'000;

std::string joined(const std::function<std::string(int)>& make) {
  std::string text = "[";
  for (int i = 0; i < kEvents; ++i) text += make(i);
  text.resize(text.find_last_of('}') + 1);
  return text + ']';
}

// Returns the most bytes an event at any time while the trace is read and analysed.
double peak(const std::string& text) {
  const size_t before = live;
  most = before;
  const TraceFile file = profiler::read_trace_bytes(text, "made.json");
  EXPECT_EQ(file.n_events, static_cast<uint64_t>(kEvents));
  EXPECT_TRUE(file.notices.empty()) << file.notices.front();
  const double reading = static_cast<double>(most - before) / kEvents;
  const Analysis analysis = analyse(file);
  const double all = static_cast<double>(most - before) / kEvents;
  std::printf("  reading %.1f, with the steps %.1f, kept %.1f bytes an event\n", reading, all,
              static_cast<double>(live - before) / kEvents);
  return all;
}

std::string id_event(char phase, int id, int at) {
  return R"({"ph":")" + std::string(1, phase) + R"(","pid":1,"tid":1,"ts":)" + std::to_string(at) +
         R"(,"cat":"request","name":"decode","id":")" + std::to_string(id) + "\"},\n";
}

// Returns CUPTI's kernels with their arguments, as Tenon writes them.
std::string kernel(int i) {
  const std::string n = std::to_string(i);
  return event({"layers." + std::to_string(i % 32) + ".mlp.down/product", "kernel", 1007, 10 * i, 9,
                R"("kernel":"void tenon::cuda::gemv_kernel","device":0,"stream":7,"correlation":)" + n +
                    R"(,"grid":"132,1,1",)" +
                    R"("block":"512,1,1","registers per thread":64,"shared memory":16384,"graph":2,"graph_node":")" +
                    std::to_string(i % 161) + R"(","run":)" + std::to_string(i / 161) +
                    R"(,"component":"quantization.int4wo","op":"product","layer":3,"bytes_read":33554432,)" +
                    R"("bytes_written":8192,"flops":67108864,"gbps":)" + std::to_string(2000 + i % 977) +
                    ".8725863807" + std::to_string(i % 89) + R"(,"peak_pct":)" + std::to_string(i % 101) +
                    ".37562425189" + std::to_string(i % 97)});
}

struct Made {
  const char* name;
  std::string (*make)(int);
};

class TraceMemory : public testing::TestWithParam<Made> {};

TEST_P(TraceMemory, StaysBelow120BytesAnEvent) {
  EXPECT_LT(peak(joined(GetParam().make)), 120);
}

INSTANTIATE_TEST_SUITE_P(
    Sorts, TraceMemory,
    testing::Values(Made{"Kernels", kernel},
                    Made{"Operations",
                         [](int i) {
                           return event({"layers." + std::to_string(i % 30) + ".mlp", "cpu_op", 7 + i % 2, i / 2 * 10,
                                         9,
                                         op_args("quantization.gguf", "gemv", i % 30, 1000 + i % 50) + R"(,"gbps":)" +
                                             std::to_string(i % 4001) + ".125"});
                         }},
                    Made{"NestedThreeDeep",
                         [](int i) {
                           return event({"s", "c", 1, i / 3 * 100 + i % 3, 90 - 2 * (i % 3)});
                         }},
                    Made{"OutOfOrder",
                         [](int i) {
                           return event({"s", "c", 1, (kEvents - i) * 10, 9});
                         }},
                    Made{"BeginsAndEnds",
                         [](int i) {
                           return std::string(R"({"ph":")") + (i % 2 == 0 ? 'B' : 'E') +
                                  R"(","pid":1,"tid":1,"name":"x","ts":)" + std::to_string(i) + "},\n";
                         }},
                    Made{"NamesOfTheirOwn",
                         [](int i) {
                           return event({"request " + std::to_string(i), "c", 1, 10 * i, 9});
                         }},
                    Made{"Requests", [](int i) { return id_event(i % 2 == 0 ? 'b' : 'e', i / 2, i); }},
                    Made{"Moments", [](int i) { return id_event('n', i, i); }},
                    Made{"Instants",
                         [](int i) {
                           return R"({"ph":"i","pid":1,"tid":1,"s":"t","name":"x","ts":)" + std::to_string(i) + "},\n";
                         }},
                    Made{"Counters",
                         [](int i) {
                           return R"({"ph":"C","pid":1,"name":"n","ts":)" + std::to_string(i) + R"(,"args":{"value":)" +
                                  std::to_string(i % 1000) + "}},\n";
                         }},
                    Made{"LaunchesAndFlows",
                         [](int i) {
                           const int n = i / 4;
                           const std::string id = std::to_string(n), at = std::to_string(10 * n);
                           if (i % 4 == 0)
                             return event({"launch", "cuda_runtime", 7, 10 * n, 5, R"("correlation":)" + id});
                           if (i % 4 == 1)
                             return event({"gemv", "kernel", 1007, 10 * n + 5, 9, R"("correlation":)" + id});
                           return R"({"ph":")" + std::string(i % 4 == 2 ? "s" : "f") + R"(","pid":1,"tid":)" +
                                  (i % 4 == 2 ? "7" : "1007") + R"(,"ts":)" +
                                  std::to_string(10 * n + (i % 4 == 2 ? 0 : 5)) +
                                  R"(,"cat":"ac2g","name":"ac2g","bp":"e","id":)" + id + "},\n";
                         }}),
    [](const auto& made) { return std::string(made.param.name); });

}  // namespace
}  // namespace tenon::view
