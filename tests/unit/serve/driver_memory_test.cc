// This tests that answers are counted once wherever memory runs out while a request is submitted: each allocation of
// Driver::submit() fails once, and the server still ends when it is asked to.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <vector>

#include "driver.h"
#include "support/pipelines.h"

namespace {

// This thread's allocations until the one that fails; 0: none does.
thread_local int until_failure = 0;

void* take(size_t bytes) {
  if (until_failure > 0 && --until_failure == 0) return nullptr;
  return std::malloc(bytes);
}
void* take_or_throw(size_t bytes) {
  void* memory = take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All of them are replaced: a sanitizer brings its own for those that are left out.
void* operator new(size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new[](size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace tenon::serve {
namespace {

constexpr uint32_t kChoices = 3;

CompletionRequest three_choices() {
  CompletionRequest r;
  r.n = kChoices;
  r.seed = 1;
  r.prompts.push_back(test::request(1));
  return r;
}

// Steps until the driver says that nobody is left. It throws where that does not come: every answer here takes a few
// steps.
void drain(Driver& driver) {
  driver.close();
  driver.run([beats = 0]() mutable {
    if (++beats > 50) throw std::runtime_error("the driver waits for answers that never come");
  });
}

// Submits a request, of whose allocations one fails. Returns whether there were so many.
bool submit_with_failure(Engine& engine, int allocation) {
  Metrics metrics("tiny");
  Driver driver(engine, metrics, {.max_waiting = 16, .post = [](const std::function<void()>& wake) { wake(); }});
  const CompletionRequest request = three_choices();
  std::shared_ptr<Generation> generation;
  until_failure = allocation;
  try {
    generation = driver.submit(request, [] {});
  } catch (const std::bad_alloc&) {  // it was not admitted
  }
  const bool failed = until_failure == 0;
  until_failure = 0;
  EXPECT_NO_THROW(drain(driver));
  if (!generation) return failed;
  std::vector<int> ends(kChoices);
  for (const Event& event : generation->take()) ends[event.choice] += event.last ? 1 : 0;
  EXPECT_EQ(ends, std::vector<int>(kChoices, 1));
  return failed;
}

TEST(DriverMemory, WhereverItRunsOutEachAnswerEndsOnce) {
  const auto engine = test::open(test::kTiny, "cpu", test::kExact);
  engine->load();
  int allocation = 1;
  while (submit_with_failure(*engine, allocation)) {
    ASSERT_FALSE(HasFailure()) << "allocation " << allocation << " failed";
    ++allocation;
  }
  EXPECT_GT(allocation, 10) << "hardly any allocation failed: the test tests nothing";
}

}  // namespace
}  // namespace tenon::serve
