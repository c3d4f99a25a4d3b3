// This tests the threads that compile grammars where the system starts none.
#include "compile_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <system_error>

namespace tenon::serve {
namespace {

// While it lives, no thread can be started: no address space has room for the stack that each would get. (A limit of
// processes would not do, since it does not hold for root.)
class NoMoreThreads {
 public:
  NoMoreThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&attributes_), 0);
    EXPECT_EQ(pthread_attr_getstacksize(&attributes_, &bytes_), 0);
    set(size_t{1} << 60U);
  }
  ~NoMoreThreads() {
    set(bytes_);
    pthread_attr_destroy(&attributes_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  void set(size_t bytes) {
    EXPECT_EQ(pthread_attr_setstacksize(&attributes_, bytes), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes_), 0);
  }

  pthread_attr_t attributes_{};
  size_t bytes_ = 0;
};

TEST(CompileThreads, AFunctionWhoseThreadCannotBeStartedIsRefusedAndNeverRuns) {
  int refused = 0, taken = 0;
  {
    CompileThreads threads(1);
    {
      const NoMoreThreads none;
      EXPECT_THROW(threads.run([&] { ++refused; }), std::system_error);
    }
    threads.run([&] { ++taken; });
  }  // what was taken has run by then
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(taken, 1);
}

}  // namespace
}  // namespace tenon::serve
