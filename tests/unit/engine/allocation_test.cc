// This test counts calls of the allocator while tokens are made.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "tenon/core/engine.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TENON_OWN_ALLOCATOR 0
#else
#define TENON_OWN_ALLOCATOR 1
namespace {
std::atomic<uint64_t> allocations{0};
}
// These are glibc's own names, so that everything in the process is counted, plugins too.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* p, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
__attribute__((visibility("default"))) void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
__attribute__((visibility("default"))) void* realloc(void* p, size_t bytes) {
  ++allocations;
  return __libc_realloc(p, bytes);
}
__attribute__((visibility("default"))) void* aligned_alloc(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
}
#endif

namespace tenon {
namespace {

class Allocations : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Allocations, NoneInADecodeStepAfterTheFirst) {
#if !TENON_OWN_ALLOCATOR
  GTEST_SKIP() << "a sanitizer has the allocator";
#else
  EngineOptions options{.config = "synthetic:stories15m", .set = {"kv_cache.capacity=128", "device.threads=2"}};
  options.set.insert(options.set.end(), GetParam().begin(), GetParam().end());
  const auto engine = Engine::open(options);
  std::vector<uint64_t> counts;
  counts.reserve(64);
  engine->generate(
      {.tokens = {3, 4, 5, 3, 4, 5, 3, 4}, .max_new_tokens = 40, .ignore_end = true, .on_token = [&](const Token&) {
         counts.push_back(allocations);
         return true;
       }});
  ASSERT_EQ(counts.size(), 40u);
  for (size_t i = 2; i < counts.size(); ++i) EXPECT_EQ(counts[i], counts[1]) << "token " << i;
#endif
}

INSTANTIATE_TEST_SUITE_P(Pipelines, Allocations,
                         testing::Values(std::vector<std::string>{},
                                         std::vector<std::string>{"quantization.use=int4wo"},
                                         std::vector<std::string>{"draft.use=ngram"}));

TEST(Allocations, AreCounted) {
#if TENON_OWN_ALLOCATOR
  const uint64_t before = allocations;
  const std::unique_ptr<int> p = std::make_unique<int>(1);
  EXPECT_EQ(allocations - before, 1u);
#endif
}

}  // namespace
}  // namespace tenon
