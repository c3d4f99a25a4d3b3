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
  uint64_t expert_bytes[TENON_MAX_STORES];  // from an expert's matrix to the next one's
  uint32_t experts, expert;                 // 0: not routed; operand i32[rows]
  Addend addend[kMaxEpilogue];
};
enum : uint32_t { kY, kX, kLive, kStores };  // operands

// The rows of a routed product in the order of their experts: the i-th is row [i] of x and y, and those that are
// skipped come first. Kernels then see the rows of one expert side by side.
class RoutedRows {
 public:
  static size_t words(const LinearArgs& a) { return a.experts != 0 ? a.rows + size_t{a.experts} + 1 : 0; }
  RoutedRows() = default;
  // memory: words(), a thread's own. Sorting takes each thread less time than waiting for one that does it.
  RoutedRows(const LinearArgs& a, const Part& p, uint32_t live, uint32_t* memory)
      : order_(memory), begin_(memory + a.rows), experts_(a.experts), live_(live) {
    const auto* expert = p.ptr<const int32_t>(a.expert);
    // Bucket 0 has the skipped rows, e + 1 those of expert e.
    std::fill_n(begin_, experts_ + 1, 0);
    for (uint32_t r = 0; r < live; ++r) {
      if (expert[r] >= static_cast<int32_t>(experts_)) {
        throw Failed("row " + std::to_string(r) + " wants expert " + std::to_string(expert[r]) + " of " +
                     std::to_string(experts_));
      }
      ++begin_[bucket(expert[r])];
    }
    // First the ends of the buckets; each moves to its beginning as its rows are put down from behind.
    for (uint32_t b = 1; b <= experts_; ++b) begin_[b] += begin_[b - 1];
    for (uint32_t r = live; r-- > 0;) order_[--begin_[bucket(expert[r])]] = r;
  }
  uint32_t operator[](uint32_t i) const { return order_ == nullptr ? i : order_[i]; }
  // f(expert, first, count) for each expert that has rows; expert -1: the skipped ones.
  template <class F>
  void each(F&& f) const {
    for (uint32_t b = 0; b <= experts_; ++b) {
      const uint32_t first = begin_[b], end = b == experts_ ? live_ : begin_[b + 1];
      if (first < end) f(static_cast<int32_t>(b) - 1, first, end - first);
    }
  }

 private:
  static uint32_t bucket(int32_t expert) { return expert < 0 ? 0 : static_cast<uint32_t>(expert) + 1; }

  uint32_t *order_ = nullptr, *begin_ = nullptr;
  uint32_t experts_ = 0, live_ = 0;
};

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
        return moves(a) ? a.rows * size_t{a.k} * sizeof(float) : 0;
    }
  }
  // Whether rows in f32 are multiplied from here: those that are normed, and those that are sorted by expert.
  static bool moves(const LinearArgs& a) { return a.norm != 0 || (a.experts != 0 && a.rows > 1); }
  const float* floats() const { return reinterpret_cast<const float*>(base_); }
  uint16_t* bf16(uint32_t r) const { return reinterpret_cast<uint16_t*>(base_) + r * padded(a_.k); }
  Int8Rows int8(uint32_t r) const {
    const Int8Row first = int8_row(r);
    return {a_.k, first.q, first.scale, first.sum, first.negative32, first.negative16};
  }
  // Row `from` of x becomes prepared row r. normed: a.k floats of the thread's own, unless x stays in f32.
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
        order(row + (a.rows == 1 ? PreparedRows::bytes(a) / sizeof(float) : 0)),
        end(order + RoutedRows::words(a)) {}
  size_t unpacked, normed, row, order, end;
};

// One thread's work on the product's phase.
class ChunkRunner {
 public:
  ChunkRunner(const LinearArgs& args, const Kernels& kernels, const Part& part, uint32_t rows,
              const PreparedRows& prepared, const RoutedRows& routed)
      : a_(args), kernels_(kernels), part_(part), rows_(rows), prepared_(prepared), routed_(routed) {
    const bool moved = PreparedRows::moves(a_);
    x_ = moved ? prepared.floats() : part.ptr<const float>(kX);
    x_stride_ = moved ? a_.k : static_cast<size_t>(a_.x_stride);
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
    half_ = n;
    const uint32_t c = chunk * a_.chunk_columns;
    if (a_.experts == 0) return columns(mat, first_column, c, end);
    routed_.each([&](int32_t expert, uint32_t first, uint32_t count) {
      first_ = first, rows_ = count, expert_ = expert;
      columns(mat, first_column, c, end);
    });
  }

 private:
  struct Span {  // columns_ rows of a store
    uint32_t code;
    const uint8_t* weights;
    size_t row_bytes;
  };
  Span span(uint32_t mat, uint32_t row) const {
    const size_t bytes = a_.row_bytes[mat];
    const auto* store = part_.ptr<const uint8_t>(kStores + mat);
    if (a_.experts != 0 && expert_ > 0) store += static_cast<uint32_t>(expert_) * a_.expert_bytes[mat];
    return {a_.code[mat], store + row * bytes, bytes};
  }
  // Columns [c, end) of a matrix and, behind SILU_MUL, of its partner, for the rows at hand.
  void columns(uint32_t mat, uint32_t first_column, uint32_t c, uint32_t end) {
    const uint32_t step = rows_ == 1 || a_.activations != Activations::kF32 ? a_.chunk_columns : a_.group_columns;
    for (; c < end; c += step) {
      columns_ = std::min(step, end - c);
      column_ = first_column + c;
      span_[0] = span(mat, c);
      if (a_.silu != 0) span_[1] = a_.n_mats == 1 ? span(mat, half_ + c) : span(mat + 1, c);
      if (expert_ < 0) {
        no_product();
      } else if (a_.activations != Activations::kF32) {
        converted_rows();
      } else if (rows_ == 1) {
        one_row();
      } else {
        many_rows();
      }
    }
  }
  const RowFormat& format(uint32_t s) const { return *kernels_.f32->find(span_[s].code); }
  uint32_t spans() const { return a_.silu != 0 ? 2 : 1; }
  float* tile(uint32_t s) const { return tile_ + size_t{s} * tile_rows(a_) * a_.chunk_columns; }

  void one_row() {
    const float* x = x_ + first_ * x_stride_;
    for (uint32_t s = 0; s < spans(); ++s) {
      format(s).vector_product({span_[s].weights, span_[s].row_bytes, columns_, a_.k, x, tile(s)});
    }
    finish(0, 1);
  }

  void no_product() {
    for (uint32_t row = 0; row < rows_; ++row) {
      for (uint32_t s = 0; s < spans(); ++s) std::fill_n(tile(s), columns_, 0.0F);
      finish(row, 1);
    }
  }

  void many_rows() {
    TileProduct product[2];
    for (uint32_t s = 0; s < spans(); ++s) product[s] = unpack(s);
    for (uint32_t row = 0; row < rows_; row += kBlockRows) {
      const uint32_t n = std::min(kBlockRows, rows_ - row);
      for (uint32_t s = 0; s < spans(); ++s) {
        product[s].rows = n;
        product[s].x = x_ + (first_ + row) * x_stride_;
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
          kernels_.packed->find(from.code)->product({from.weights, kGroupRows * from.row_bytes, columns_, n,
                                                     prepared_.int8(first_ + row), tile(s), a_.chunk_columns});
        } else {
          kernels_.bf16->product({from.weights, from.row_bytes, columns_, n, a_.k, prepared_.bf16(first_ + row),
                                  padded(a_.k), tile(s), a_.chunk_columns});
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

  // The epilogue on the n rows of the tiles, which are those at hand from `first` on, and out.
  void finish(uint32_t first, uint32_t n) const {
    for (uint32_t r = 0; r < n; ++r) {
      const uint32_t row = routed_[first_ + first + r];
      float *left = tile(0) + size_t{r} * a_.chunk_columns, *right = tile(1) + size_t{r} * a_.chunk_columns;
      for (uint32_t i = 0; i < a_.before; ++i) {
        add(a_.addend[i], row, column_, left);
        if (a_.silu != 0) add(a_.addend[i], row, half_ + column_, right);
      }
      if (a_.silu != 0) {
        kernels_.f32->ops.silu_mul(left, right, columns_);
      }
      for (uint32_t i = 0; i < a_.after; ++i) add(a_.addend[a_.before + i], row, column_, left);
      std::copy(left, left + columns_, part_.ptr<float>(kY) + row * a_.y_stride + column_);
    }
  }

  const LinearArgs& a_;
  Kernels kernels_;
  const Part& part_;
  uint32_t rows_, first_ = 0;  // at hand, of the prepared ones: all, or an expert's
  int32_t expert_ = 0;
  const PreparedRows& prepared_;
  const RoutedRows& routed_;
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
  if (live == 0) return;
  RoutedRows routed;
  if (a.experts != 0) routed = RoutedRows(a, p, live, reinterpret_cast<uint32_t*>(own + at.order));
  if (prepares && !alone && p.phase() == 0) {
    for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) {
      prepared.prepare(kernels, p, routed[r], r, own + at.normed);
    }
    return;
  }
  if (prepares && alone) prepared.prepare(kernels, p, 0, 0, own + at.normed);
  ChunkRunner runner(a, kernels, p, live, prepared, routed);
  for (uint32_t chunk = p.begin(); chunk < p.end(); ++chunk) runner.run(chunk);
}

struct RowsArgs {
  Isa isa;
  uint32_t packed, code, k, rows, mat_rows;
  uint64_t row_bytes;
  int64_t y_stride;
};
template <KernelsOf Of>
void run_rows(const RowsArgs& a, const Part& p) {  // 0 y, 1 index, 2 live, 3 store
  const Kernels kernels = Of(a.isa);
  const Packing* packing = a.packed != 0 ? kernels.packing(a.code) : nullptr;
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
    const float scale = kernels.f32->find(a.code)->unpack(store + static_cast<size_t>(row) * a.row_bytes, a.k, w);
    for (uint32_t i = 0; i < a.k; ++i) y[i] = w[i] * scale;
  }
}

}  // namespace tenon::sdk::cpu::detail
