// A budget bounds the time and the memory that a call into XGrammar may take, whatever a stranger's grammar asks of it.
//
// XGrammar has no way to be stopped, but whatever it does for long it allocates for. So this library has an operator
// new of its own, which looks at the budget of the calling thread, and throws where that is used up. Memory that the
// C++ library allocates in its own code (long strings) is not counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <new>
#include <string>

namespace tenon::grammar_xgrammar {

// The innermost one of a thread holds, from its construction to its end.
class Budget {
 public:
  Budget(double seconds, int64_t bytes);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // It says what was used up, and "" while nothing is.
  const std::string& problem() const { return problem_; }

  // These count what the calling thread allocates and gives back. charge()
  // throws std::bad_alloc where that is too much.
  static void charge(int64_t bytes);
  static void give_back(int64_t bytes) noexcept;

 private:
  void check();

  double seconds_;
  int64_t bytes_, used_ = 0;
  uint32_t calls_ = 0;
  std::chrono::steady_clock::time_point end_;
  std::string problem_;
  Budget* outer_;
};

}  // namespace tenon::grammar_xgrammar
