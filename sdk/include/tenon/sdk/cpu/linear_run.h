// How the ops of linear.h run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tenon/sdk/cpu/linear_site.h"
#include "tenon/sdk/cpu/packed_rows.h"
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
  Activations activations;
  float eps;
  int64_t x_stride, y_stride;  // elements
  uint32_t code[TENON_MAX_STORES], mat_rows[TENON_MAX_STORES];
  uint64_t row_bytes[TENON_MAX_STORES];
  Addend addend[kMaxEpilogue];
};
enum : uint32_t { kY, kX, kLive, kStores };  // operands

inline constexpr uint32_t kBlockRows = 48;           // of x at a time: a multiple of every kernel's
inline constexpr size_t kUnpackedBytes = 512 << 10;  // of a group of columns: fits a second-level cache

inline uint32_t tile_rows(const LinearArgs& a) {
  return std::min(kBlockRows, a.rows);
}

// Rows of x as a product takes them, in scratch of the op or, of a single row, of the thread.
class PreparedRows {
 public:
  PreparedRows(const LinearArgs& a, void* base) : a_(a), base_(static_cast<uint8_t*>(base)) {}
  static size_t bytes(const LinearArgs& a) {
    switch (a.activations) {
      case Activations::kInt8:
        return a.rows * (a.k + a.k / kInt8Block * kInt8BlockWords * sizeof(float));
      case Activations::kBf16:
        return a.rows * padded(a.k) * sizeof(uint16_t);
      default:
        return a.norm != 0 ? a.rows * size_t{a.k} * sizeof(float) : 0;
    }
  }
  const float* floats() const { return reinterpret_cast<const float*>(base_); }
  uint16_t* bf16(uint32_t r) const { return reinterpret_cast<uint16_t*>(base_) + r * padded(a_.k); }
  Int8Rows int8(uint32_t r) const {
    const Int8Row first = int8_row(r);
    return {a_.k, first.q, first.scale, first.sum, first.negative32, first.negative16};
  }
  // normed: a.k floats of the thread's own, unless x stays in f32.
  void prepare(const Kernels& kernels, const Part& p, uint32_t r, float* normed) const {
    const float* x = p.ptr<const float>(kX) + r * a_.x_stride;
    if (a_.norm != 0) {
      float* y = a_.activations == Activations::kF32 ? reinterpret_cast<float*>(base_) + size_t{r} * a_.k : normed;
      kernels.f32->ops.rms_norm(x, p.ptr<const float>(a_.norm), a_.k, a_.eps, y);
      x = y;
    }
    if (a_.activations == Activations::kInt8) kernels.f32->ops.quantize(x, a_.k, int8_row(r));
    if (a_.activations == Activations::kBf16) kernels.bf16->convert(x, a_.k, bf16(r));
  }

 private:
  static constexpr size_t kInt8BlockWords = 5;  // a scale, a sum, three sums of q

  Int8Row int8_row(uint32_t r) const {
    const size_t blocks = a_.k / kInt8Block, all = a_.rows * blocks;
    auto* words = reinterpret_cast<float*>(base_ + a_.rows * size_t{a_.k});
    auto* negative = reinterpret_cast<int32_t*>(words + 2 * all);
    return {reinterpret_cast<int8_t*>(base_) + r * size_t{a_.k}, words + r * blocks, words + all + r * blocks,
            negative + r * blocks, negative + all + 2 * r * blocks};
  }

  const LinearArgs& a_;
  uint8_t* base_;
};

// Where things are in a thread's scratch, in floats; tiles are at its beginning.
struct ThreadLayout {
  explicit ThreadLayout(const LinearArgs& a)
      : unpacked(size_t{tile_rows(a)} * 2 * a.chunk_columns),
        normed(unpacked + (a.activations == Activations::kF32 ? size_t{2} * a.group_columns * (padded(a.k) + 1) : 0)),
        row(normed + (a.activations != Activations::kF32 && a.norm != 0 ? a.k : 0)),
        end(row + (a.rows == 1 ? PreparedRows::bytes(a) / sizeof(float) : 0)) {}
  size_t unpacked, normed, row, end;
};

// One thread's work on the product's phase.
class ChunkRunner {
 public:
  ChunkRunner(const LinearArgs& args, const Kernels& kernels, const Part& part, uint32_t rows,
              const PreparedRows& prepared)
      : a_(args), kernels_(kernels), part_(part), rows_(rows), prepared_(prepared) {
    x_ = a_.norm != 0 ? prepared.floats() : part.ptr<const float>(kX);
    x_stride_ = a_.norm != 0 ? a_.k : static_cast<size_t>(a_.x_stride);
    tile_ = part.thread_scratch<float>(), unpacked_ = tile_ + ThreadLayout(a_).unpacked;
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
    const uint32_t step = rows_ == 1 || a_.activations != Activations::kF32 ? a_.chunk_columns : a_.group_columns;
    for (uint32_t c = chunk * a_.chunk_columns; c < end; c += step) {
      half_ = n;
      columns_ = std::min(step, end - c);
      column_ = first_column + c;
      span_[0] = span(mat, c);
      if (a_.silu != 0) span_[1] = a_.n_mats == 1 ? span(mat, n + c) : span(mat + 1, c);
      if (a_.activations != Activations::kF32) {
        converted_rows();
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
  float* tile(uint32_t s) const { return tile_ + size_t{s} * tile_rows(a_) * a_.chunk_columns; }

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

  void converted_rows() {
    for (uint32_t row = 0; row < rows_; row += kBlockRows) {
      const uint32_t n = std::min(kBlockRows, rows_ - row);
      for (uint32_t s = 0; s < spans(); ++s) {
        const Span& from = span_[s];
        if (a_.activations == Activations::kInt8) {
          kernels_.packed->find(from.code)->product(
              {from.weights, kGroupRows * from.row_bytes, columns_, n, prepared_.int8(row), tile(s), a_.chunk_columns});
        } else {
          kernels_.bf16->product({from.weights, from.row_bytes, columns_, n, a_.k, prepared_.bf16(row), padded(a_.k),
                                  tile(s), a_.chunk_columns});
        }
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
        kernels_.f32->ops.silu_mul(left, right, columns_);
      }
      for (uint32_t i = 0; i < a_.after; ++i) add(a_.addend[a_.before + i], row + r, column_, left);
      std::copy(left, left + columns_, part_.ptr<float>(kY) + (row + r) * a_.y_stride + column_);
    }
  }

  const LinearArgs& a_;
  Kernels kernels_;
  const Part& part_;
  uint32_t rows_;
  const PreparedRows& prepared_;
  const float* x_;
  size_t x_stride_;
  float *tile_, *unpacked_, *scale_;
  Span span_[2] = {};
  uint32_t columns_ = 0, column_ = 0, half_ = 0;  // of this group: how many, first of y, y's in all if silu
};

template <KernelsOf Of>
void run_linear(const LinearArgs& a, const Part& p) {
  const uint32_t live = std::min(p.ptr<const uint32_t>(kLive)[0], a.rows);
  const Kernels kernels = Of(a.isa);
  const ThreadLayout at(a);
  auto* own = p.thread_scratch<float>();
  const bool prepares = PreparedRows::bytes(a) != 0, alone = a.rows == 1;
  const PreparedRows prepared(a, alone ? own + at.row : p.scratch<void>());
  if (prepares && !alone && p.phase() == 0) {
    for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) prepared.prepare(kernels, p, r, own + at.normed);
    return;
  }
  if (live == 0) return;
  if (prepares && alone) prepared.prepare(kernels, p, 0, own + at.normed);
  ChunkRunner runner(a, kernels, p, live, prepared);
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
  const Packing* packing = packing_by_code(a.code);
  const uint32_t live = std::min(p.ptr<const uint32_t>(2)[0], a.rows);
  const auto* store = p.ptr<const uint8_t>(3);
  auto* w = p.thread_scratch<float>();
  for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) {
    const int32_t row = p.ptr<const int32_t>(1)[r];
    if (row < 0 || static_cast<uint32_t>(row) >= a.mat_rows) {
      throw Failed("row " + std::to_string(row) + " of an embedding of " + std::to_string(a.mat_rows) + " rows");
    }
    float* y = p.ptr<float>(0) + r * a.y_stride;
    if (packing != nullptr) {
      unpack_packed_row(*packing, store, a.k, static_cast<uint32_t>(row), y);
      continue;
    }
    const float scale = Of(a.isa).f32->find(a.code)->unpack(store + static_cast<size_t>(row) * a.row_bytes, a.k, w);
    for (uint32_t i = 0; i < a.k; ++i) y[i] = w[i] * scale;
  }
}

}  // namespace tenon::sdk::cpu::detail
