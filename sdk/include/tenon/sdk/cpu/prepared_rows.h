// Rows of x are prepared for a product: sorted by expert, normed, and turned into the numbers that the kernels take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/sdk/cpu/linear_args.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu::detail {

// This has the rows of a routed product in the order of their experts: the i-th is row [i] of x and y, and
// rows that are skipped come first. Kernels then see the rows of one expert side by side. Rows of a
// product that is not routed stay as they are.
class RoutedRows {
 public:
  static size_t words(const LinearArgs& a) { return a.experts != 0 ? a.rows + size_t{a.experts} + 1 : 0; }
  RoutedRows() = default;
  // `memory` has words() words and is a thread's own: to sort takes each thread less time than to wait for one that
  // does it. Throws Failed for a row of an expert that does not exist.
  RoutedRows(const LinearArgs& a, const Part& p, uint32_t live, uint32_t* memory)
      : order_(memory), begin_(memory + a.rows), experts_(a.experts), live_(live) {
    const auto* expert = p.ptr<const int32_t>(a.expert);
    count(expert);
    // First the ends of the buckets. Each moves to its beginning as its rows are put down from the last on.
    for (uint32_t b = 1; b <= experts_; ++b) begin_[b] += begin_[b - 1];
    for (uint32_t r = live; r-- > 0;) order_[--begin_[bucket(expert[r])]] = r;
  }

  uint32_t operator[](uint32_t i) const { return order_ == nullptr ? i : order_[i]; }
  // Calls f(expert, first, count) for each expert that has rows, with -1 for the rows that are skipped.
  template <class F>
  void each(F&& f) const {
    for (uint32_t b = 0; b <= experts_; ++b) {
      const uint32_t first = begin_[b], end = b == experts_ ? live_ : begin_[b + 1];
      if (first < end) f(static_cast<int32_t>(b) - 1, first, end - first);
    }
  }

 private:
  // Bucket 0 has the skipped rows, e + 1 those of expert e.
  static uint32_t bucket(int32_t expert) { return expert < 0 ? 0 : static_cast<uint32_t>(expert) + 1; }
  void count(const int32_t* expert) {
    std::fill_n(begin_, experts_ + 1, 0);
    for (uint32_t r = 0; r < live_; ++r) {
      if (expert[r] >= static_cast<int32_t>(experts_)) {
        throw Failed("row " + std::to_string(r) + " wants expert " + std::to_string(expert[r]) + " of " +
                     std::to_string(experts_));
      }
      ++begin_[bucket(expert[r])];
    }
  }

  uint32_t* order_ = nullptr;  // (live)
  uint32_t* begin_ = nullptr;  // (experts + 1)
  uint32_t experts_ = 0, live_ = 0;
};

// Rows of x lie so for a product, in scratch of the op or, if there is a single row, of the thread:
//
//   kF32   (rows, k) f32, if rows are normed or sorted; else x stays where it is
//   kBf16  (rows, padded(k)) bf16
//   kInt8  (rows, k) int8, then (rows, k / 32) f32 scales and as many sums, then (rows, k / 32) and (rows, k / 16) i32:
//          less the sums of q
//   kInt16 (rows, blocks, 2, 32) int8, then (rows, blocks) f32 scales and as many sums, then (rows, blocks, 2) i32: less
//          the sums of the high and the low bytes; then (rows, blocks, 32) i16
//
// An example: 16 rows of 4096 k in int8 take 16 * 4096 bytes of q and 16 * 128 * 20 bytes beside them: 104 KiB.
class PreparedRows {
 public:
  PreparedRows(const LinearArgs& a, void* base) : a_(a), base_(static_cast<uint8_t*>(base)) {}

  static size_t bytes(const LinearArgs& a) {
    switch (a.activations) {
      case Activations::kInt8:
        return a.rows * (a.k + a.k / kInt8Block * kInt8BlockWords * sizeof(float));
      case Activations::kInt16:
        return a.rows * size_t{int16_blocks(a.k)} * (4 * kInt8Block + kInt16BlockWords * sizeof(float));
      case Activations::kBf16:
        return a.rows * padded(a.k) * sizeof(uint16_t);
      default:
        return moves(a) ? a.rows * size_t{a.k} * sizeof(float) : 0;
    }
  }
  // Says whether rows in f32 are multiplied from here: those that are normed, and those that are sorted by expert.
  static bool moves(const LinearArgs& a) { return a.norm != 0 || (a.experts != 0 && a.rows > 1); }

  const float* floats() const { return reinterpret_cast<const float*>(base_); }
  uint16_t* bf16(uint32_t r) const { return reinterpret_cast<uint16_t*>(base_) + r * padded(a_.k); }
  Int8Rows int8(uint32_t r) const {
    const Int8Row first = int8_row(r);
    return {a_.k, first.q, first.scale, first.sum, first.negative32, first.negative16};
  }
  Int16Rows int16(uint32_t r) const {
    const Int16Row first = int16_row(r);
    return {a_.k, first.q, first.scale, first.sum, first.negative, first.words};
  }

  // Row `from` of x becomes prepared row r. `normed` are k floats of the thread's own, unless x stays in f32.
  void prepare(const Kernels& kernels, const Part& p, uint32_t from, uint32_t r, float* normed) const {
    const float* x = p.ptr<const float>(kX) + from * a_.x_stride;
    const bool stays = a_.activations == Activations::kF32;
    float* y = stays ? reinterpret_cast<float*>(base_) + size_t{r} * a_.k : normed;
    if (a_.norm != 0) {
      kernels.f32->ops.rms_norm(x, p.ptr<const float>(a_.norm), a_.k, a_.eps, y);
      x = y;
    } else if (stays) {
      std::copy_n(x, a_.k, y);
    }
    if (a_.activations == Activations::kInt8) kernels.f32->ops.quantize(x, a_.k, int8_row(r));
    if (a_.activations == Activations::kInt16) kernels.f32->ops.split(x, a_.k, int16_row(r));
    if (a_.activations == Activations::kBf16) kernels.bf16->convert(x, a_.k, bf16(r));
  }

 private:
  static constexpr size_t kInt8BlockWords = 5;   // a scale, a sum, three sums of q
  static constexpr size_t kInt16BlockWords = 4;  // a scale, a sum, two sums of bytes

  Int8Row int8_row(uint32_t r) const {
    const size_t blocks = a_.k / kInt8Block, all = a_.rows * blocks;
    auto* scale = reinterpret_cast<float*>(base_ + a_.rows * size_t{a_.k});  // (rows, blocks)
    float* sum = scale + all;                                                // (rows, blocks)
    auto* negative32 = reinterpret_cast<int32_t*>(sum + all);                // (rows, blocks)
    int32_t* negative16 = negative32 + all;                                  // (rows, 2 blocks)
    return {reinterpret_cast<int8_t*>(base_) + r * size_t{a_.k}, scale + r * blocks, sum + r * blocks,
            negative32 + r * blocks, negative16 + 2 * r * blocks};
  }
  Int16Row int16_row(uint32_t r) const {
    const size_t blocks = int16_blocks(a_.k), all = a_.rows * blocks;
    auto* scale = reinterpret_cast<float*>(base_ + all * 2 * kInt8Block);  // (rows, blocks)
    float* sum = scale + all;                                              // (rows, blocks)
    auto* negative = reinterpret_cast<int32_t*>(sum + all);                // (rows, blocks, 2)
    auto* words = reinterpret_cast<int16_t*>(negative + 2 * all);          // (rows, blocks, 32)
    return {reinterpret_cast<int8_t*>(base_) + r * blocks * 2 * kInt8Block, scale + r * blocks, sum + r * blocks,
            negative + 2 * r * blocks, words + r * blocks * kInt8Block};
  }

  const LinearArgs& a_;
  uint8_t* base_;
};

}  // namespace tenon::sdk::cpu::detail
