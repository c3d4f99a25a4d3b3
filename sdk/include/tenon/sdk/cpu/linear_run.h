// How the ops of linear.h run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "tenon/sdk/cpu/activation.h"
#include "tenon/sdk/cpu/int8_activations.h"
#include "tenon/sdk/cpu/linear_site.h"
#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu::detail {

struct Addend {  // to element (r, c): operand[r * stride + c]
  uint32_t operand;
  int64_t stride;
};
struct LinearArgs {
  Isa isa;
  uint32_t n_mats, k, rows;
  uint32_t chunk_columns, group_columns;  // of a chunk; unpacked at once
  uint32_t before, after, silu, norm;     // norm: operand of RMSNorm's weight, 0 = none
  uint32_t int8;                          // activations in int8
  float eps;
  int64_t x_stride, y_stride;  // elements
  uint32_t code[TENON_MAX_STORES], mat_rows[TENON_MAX_STORES];
  uint64_t row_bytes[TENON_MAX_STORES];
  Addend addend[kMaxEpilogue];
};
enum : uint32_t { kY, kX, kLive, kStores };  // operands

inline constexpr uint32_t kBlockRows = 48;           // of x at a time: a multiple of every kernel's
inline constexpr size_t kUnpackedBytes = 512 << 10;  // of a group of columns: fits a second-level cache

// Eight sums in double, so that the compiler may use vectors; always in the same order.
inline void rms_norm(const float* x, const float* weight, uint32_t n, float eps, float* y) {
  double lane[8] = {};
  uint32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (uint32_t l = 0; l < 8; ++l) lane[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
  }
  for (uint32_t l = 0; i < n; ++i, ++l) lane[l] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double sum = ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
  const auto scale = static_cast<float>(1 / std::sqrt(sum / n + static_cast<double>(eps)));
  for (i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

// The rows of x in int8, in scratch: codes, then scales, then sums.
class QuantizedRows {
 public:
  QuantizedRows(const LinearArgs& a, const Part& p) : k_(a.k), rows_(a.rows), base_(p.scratch<uint8_t>()) {}
  static size_t bytes(const LinearArgs& a) { return a.rows * (a.k + size_t{2} * sizeof(float) * (a.k / kInt8Block)); }

  int8_t* q(uint32_t row) const { return reinterpret_cast<int8_t*>(base_) + row * k_; }
  float* scale(uint32_t row) const { return reinterpret_cast<float*>(base_ + rows_ * k_) + row * (k_ / kInt8Block); }
  float* sum(uint32_t row) const { return scale(rows_) + row * (k_ / kInt8Block); }

 private:
  size_t k_;
  uint32_t rows_;
  uint8_t* base_;
};

// Phase 0 of two: rows normalized, in int8, or both, into scratch.
inline void prepare_row(const LinearArgs& a, const Part& p, uint32_t row) {
  const float* x = p.ptr<const float>(kX) + row * a.x_stride;
  if (a.norm != 0) {
    float* y = a.int8 != 0 ? p.thread_scratch<float>() : p.scratch<float>() + size_t{row} * a.k;
    rms_norm(x, p.ptr<const float>(a.norm), a.k, a.eps, y);
    x = y;
  }
  if (a.int8 == 0) return;
  const QuantizedRows out(a, p);
  quantize_activations(x, a.k, out.q(row), out.scale(row), out.sum(row));
}

// One thread's work on the product's phase.
class ChunkRunner {
 public:
  ChunkRunner(const LinearArgs& args, const Kernels& kernels, const Part& part, uint32_t rows)
      : a_(args), kernels_(kernels), part_(part), rows_(rows) {
    x_ = a_.norm != 0 ? part.scratch<const float>() : part.ptr<const float>(kX);
    x_stride_ = a_.norm != 0 ? a_.k : static_cast<size_t>(a_.x_stride);
    tile_ = part.thread_scratch<float>();
    unpacked_ = tile_ + size_t{kBlockRows} * 2 * a_.chunk_columns;
    scale_ = unpacked_ + size_t{2} * a_.group_columns * padded(a_.k);
  }

  void run(uint32_t chunk) {
    uint32_t mat = 0, first_column = 0;
    uint32_t n = 0, chunks = 0;
    for (;; ++mat) {
      n = a_.silu != 0 && a_.n_mats == 1 ? a_.mat_rows[mat] / 2 : a_.mat_rows[mat];
      chunks = (n + a_.chunk_columns - 1) / a_.chunk_columns;
      if (chunk < chunks) break;
      chunk -= chunks, first_column += n;
    }
    const uint32_t end = std::min((chunk + 1) * a_.chunk_columns, n);
    const uint32_t step = rows_ == 1 || a_.int8 != 0 ? a_.chunk_columns : a_.group_columns;
    for (uint32_t c = chunk * a_.chunk_columns; c < end; c += step) {
      half_ = n;
      columns_ = std::min(step, end - c);
      column_ = first_column + c;
      span_[0] = span(mat, c);
      if (a_.silu != 0) span_[1] = a_.n_mats == 1 ? span(mat, n + c) : span(mat + 1, c);
      if (a_.int8 != 0) {
        int8_rows();
      } else if (rows_ == 1) {
        one_row();
      } else {
        many_rows();
      }
    }
  }

 private:
  struct Span {  // columns_ rows of a store
    uint32_t code;
    const uint8_t* weights;
    size_t row_bytes;
  };
  Span span(uint32_t mat, uint32_t row) const {
    const size_t bytes = a_.row_bytes[mat];
    return {a_.code[mat], part_.ptr<const uint8_t>(kStores + mat) + row * bytes, bytes};
  }
  const RowFormat& format(uint32_t s) const { return *kernels_.f32->find(span_[s].code); }
  uint32_t spans() const { return a_.silu != 0 ? 2 : 1; }
  float* tile(uint32_t s) const { return tile_ + size_t{s} * kBlockRows * a_.chunk_columns; }

  void one_row() {
    for (uint32_t s = 0; s < spans(); ++s) {
      format(s).vector_product({span_[s].weights, span_[s].row_bytes, columns_, a_.k, x_, tile(s)});
    }
    finish(0, 1);
  }

  void many_rows() {
    TileProduct product[2];
    for (uint32_t s = 0; s < spans(); ++s) product[s] = unpack(s);
    for (uint32_t row = 0; row < rows_; row += kBlockRows) {
      const uint32_t n = std::min(kBlockRows, rows_ - row);
      for (uint32_t s = 0; s < spans(); ++s) {
        product[s].rows = n;
        product[s].x = x_ + row * x_stride_;
        kernels_.f32->tile_product(product[s]);
      }
      finish(row, n);
    }
  }

  void int8_rows() {
    const QuantizedRows x(a_, part_);
    for (uint32_t row = 0; row < rows_; row += kBlockRows) {
      const uint32_t n = std::min(kBlockRows, rows_ - row);
      for (uint32_t s = 0; s < spans(); ++s) {
        kernels_.int8->find(span_[s].code)
            ->product({span_[s].weights, span_[s].row_bytes, columns_, n, a_.k, x.q(row), x.scale(row), x.sum(row),
                       tile(s), a_.chunk_columns});
      }
      finish(row, n);
    }
  }

  // f32 weights stay where they are; a file may have put them where no float can stand.
  TileProduct unpack(uint32_t s) const {
    const Span& from = span_[s];
    TileProduct t{};
    t.columns = columns_, t.k = a_.k, t.x_stride = x_stride_;
    t.y = tile(s), t.y_stride = a_.chunk_columns;
    if (from.code == TENON_F32 && reinterpret_cast<uintptr_t>(from.weights) % alignof(float) == 0) {
      t.weights = reinterpret_cast<const float*>(from.weights), t.w_stride = from.row_bytes / sizeof(float);
      return t;
    }
    const size_t stride = padded(a_.k);
    float* out = unpacked_ + size_t{s} * a_.group_columns * stride;
    float* scale = scale_ + size_t{s} * a_.group_columns;
    for (uint32_t c = 0; c < columns_; ++c) {
      scale[c] = format(s).unpack(from.weights + c * from.row_bytes, a_.k, out + c * stride);
    }
    t.weights = out, t.w_stride = stride, t.scale = scale;
    return t;
  }

  void add(const Addend& addend, uint32_t row, uint32_t column, float* to) const {
    const float* from = part_.ptr<const float>(addend.operand) + row * addend.stride + column;
    for (uint32_t c = 0; c < columns_; ++c) to[c] += from[c];
  }

  // The epilogue on rows [row, row + n) of the tiles, and out.
  void finish(uint32_t row, uint32_t n) const {
    for (uint32_t r = 0; r < n; ++r) {
      float *left = tile(0) + size_t{r} * a_.chunk_columns, *right = tile(1) + size_t{r} * a_.chunk_columns;
      for (uint32_t i = 0; i < a_.before; ++i) {
        add(a_.addend[i], row + r, column_, left);
        if (a_.silu != 0) add(a_.addend[i], row + r, half_ + column_, right);
      }
      if (a_.silu != 0) {
        for (uint32_t c = 0; c < columns_; ++c) left[c] = silu(left[c]) * right[c];
      }
      for (uint32_t i = 0; i < a_.after; ++i) add(a_.addend[a_.before + i], row + r, column_, left);
      std::copy(left, left + columns_, part_.ptr<float>(kY) + (row + r) * a_.y_stride + column_);
    }
  }

  const LinearArgs& a_;
  Kernels kernels_;
  const Part& part_;
  uint32_t rows_;
  const float* x_;
  size_t x_stride_;
  float *tile_, *unpacked_, *scale_;
  Span span_[2] = {};
  uint32_t columns_ = 0, column_ = 0, half_ = 0;  // of this group: how many, first of y, y's in all if silu
};

template <KernelsOf Of>
void run_linear(const LinearArgs& a, const Part& p) {
  const uint32_t live = std::min(p.ptr<const uint32_t>(kLive)[0], a.rows);
  if ((a.norm != 0 || a.int8 != 0) && p.phase() == 0) {
    for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) prepare_row(a, p, r);
    return;
  }
  if (live == 0) return;
  ChunkRunner runner(a, Of(a.isa), p, live);
  for (uint32_t chunk = p.begin(); chunk < p.end(); ++chunk) runner.run(chunk);
}

struct RowsArgs {
  Isa isa;
  uint32_t code, k, rows, mat_rows;
  uint64_t row_bytes;
  int64_t y_stride;
};
template <KernelsOf Of>
void run_rows(const RowsArgs& a, const Part& p) {  // 0 y, 1 index, 2 live, 3 store
  const RowFormat* format = Of(a.isa).f32->find(a.code);
  const uint32_t live = std::min(p.ptr<const uint32_t>(2)[0], a.rows);
  auto* w = p.thread_scratch<float>();
  for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) {
    const int32_t row = p.ptr<const int32_t>(1)[r];
    if (row < 0 || static_cast<uint32_t>(row) >= a.mat_rows) {
      throw Failed("row " + std::to_string(row) + " of an embedding of " + std::to_string(a.mat_rows) + " rows");
    }
    const float scale = format->unpack(p.ptr<const uint8_t>(3) + static_cast<size_t>(row) * a.row_bytes, a.k, w);
    float* y = p.ptr<float>(0) + r * a.y_stride;
    for (uint32_t i = 0; i < a.k; ++i) y[i] = w[i] * scale;
  }
}

// Wide chunks while there are enough of them for many threads.
}  // namespace tenon::sdk::cpu::detail
