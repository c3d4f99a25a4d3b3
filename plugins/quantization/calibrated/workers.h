// These threads share a task of numbered pieces, for the time of a call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "products.h"

namespace tenon::calibrated {

class Workers {
 public:
  explicit Workers(uint32_t threads) : scratch_(threads > 0 ? threads : 1) {
    for (std::vector<std::byte>& s : scratch_) s.resize(kProductScratch);
  }

  // Calls work(piece, scratch) for every piece, by any of the threads; scratch is the thread's own, as products want
  // it. What work throws ends the task, and is thrown when nothing is under way any more.
  template <class Work>
  void each(uint32_t pieces, const Work& work) {
    std::atomic<uint32_t> next = 0;
    std::mutex mutex;
    std::exception_ptr error;
    const auto run = [&](size_t thread) {
      try {
        for (uint32_t piece = next++; piece < pieces; piece = next++) work(piece, scratch_[thread].data());
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = pieces;
      }
    };
    {
      std::vector<std::jthread> others;
      others.reserve(scratch_.size());
      try {
        for (size_t i = 1; i < scratch_.size() && i < pieces; ++i) others.emplace_back(run, i);
      } catch (const std::system_error&) {
        // The system starts no more threads: those that run share the pieces.
      }
      run(0);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  std::vector<std::vector<std::byte>> scratch_;  // by thread
};

// A calibration multiplies with these products, on these threads.
struct Compute {
  const Products& products;
  Workers& workers;
};

}  // namespace tenon::calibrated
