// The op of a product (linear.h) runs so.
//
// Phase 0, where the product has two: every thread prepares its rows of x (prepared_rows.h). Last phase: a chunk is
// some columns of y, for all live rows. It runs in these phases:
//
//   1. find_chunk      which rows of which matrix the columns are
//   2. columns()       groups of columns that fit the thread's scratch; of a routed site one expert after the other
//   3. one_row() ...   a tile (rows 48, columns) of products by one of four kernels, and with SILU_MUL a second one
//   4. finish()        the epilogue over the tile, and out to y
//
// An example: gate and up of a model of 4096 k, two matrices of 11008 rows with SILU_MUL, 200 rows of x, 8 threads. The
// weights are Q5_K rows, so a chunk is 64 columns, of which 16 of each matrix are unpacked at once: 2 * 16 * 4096
// floats are 512 KiB. A chunk multiplies 4 groups of columns with 48, 48, 48, 48 and 8 rows of x. Were the weights
// packed for int8, nothing would be unpacked, and a chunk would be 5 tiles of all its 64 columns.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tenon/sdk/cpu/linear_args.h"
#include "tenon/sdk/cpu/prepared_rows.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu::detail {

// A thread's scratch has these, at offsets in floats.
//   0         (spans 2, rows 48, chunk columns) tiles
//   unpacked  (spans 2, group columns, padded(k)) weights in f32, then (2, group columns) scales of their rows
//   normed    (k) a row of x on its way to int8 or bf16
//   row       the prepared row, if there is a single one
//   order     see RoutedRows
struct ThreadLayout {
  explicit ThreadLayout(const LinearArgs& a)
      : unpacked(size_t{tile_rows(a)} * 2 * a.chunk_columns),
        normed(unpacked + (a.activations == Activations::kF32 ? size_t{2} * a.group_columns * (padded(a.k) + 1) : 0)),
        row(normed + (a.activations != Activations::kF32 && a.norm != 0 ? a.k : 0)),
        order(row + (a.rows == 1 ? PreparedRows::bytes(a) / sizeof(float) : 0)),
        end(order + RoutedRows::words(a)) {}
  size_t unpacked, normed, row, order, end;
};

// These rows are multiplied together: all live ones, or those of one expert. They count as prepared rows do.
struct RowRange {
  uint32_t first, count;
  int32_t expert;  // -1: the rows are skipped, and their products are zeros
};

// This is one thread's work on the product's phase.
class ChunkRunner {
 public:
  ChunkRunner(const LinearArgs& args, const Kernels& kernels, const Part& part, const PreparedRows& prepared,
              const RoutedRows& routed)
      : a_(args), kernels_(kernels), part_(part), prepared_(prepared), routed_(routed) {
    const bool moved = PreparedRows::moves(a_);
    x_ = moved ? prepared.floats() : part.ptr<const float>(kX);
    x_stride_ = moved ? a_.k : static_cast<size_t>(a_.x_stride);
    tile_ = part.thread_scratch<float>();
    unpacked_ = tile_ + ThreadLayout(a_).unpacked;
    scale_ = unpacked_ + size_t{2} * a_.group_columns * padded(a_.k);
  }

  void run(uint32_t chunk, uint32_t live) const {
    const ChunkColumns found = find_chunk(a_, chunk);
    if (a_.experts == 0) return columns(found, {0, live, 0});
    routed_.each([&](int32_t expert, uint32_t first, uint32_t count) { columns(found, {first, count, expert}); });
  }

 private:
  // A column run is rows of a store that lie one after the other; each gives one column of y.
  struct ColumnRun {
    uint32_t code;
    const uint8_t* weights;
    size_t row_bytes;
  };
  // A group is the columns at hand: `count` columns of y from `first` on, and the rows of weights that give them.
  struct Group {
    ColumnRun run[2];
    uint32_t count, first;
    uint32_t partner;  // with SILU_MUL: the first column of up in a row that has those of gate and up
  };

  ColumnRun column_run(uint32_t mat, uint32_t row, int32_t expert) const {
    const auto* store = part_.ptr<const uint8_t>(kStores + mat);
    if (a_.experts != 0 && expert > 0) store += static_cast<uint32_t>(expert) * a_.expert_bytes[mat];
    return {a_.code[mat], store + row * a_.row_bytes[mat], a_.row_bytes[mat]};
  }
  Group group(const ChunkColumns& chunk, uint32_t column, uint32_t count, int32_t expert) const {
    Group g{};
    g.count = count;
    g.first = chunk.y_first + column;
    g.partner = chunk.gate_columns + g.first;
    g.run[0] = column_run(chunk.mat, column, expert);
    if (has_half_matrix(a_)) {
      g.run[1] = column_run(chunk.mat, chunk.gate_columns + column, expert);
    } else if (a_.silu != 0) {
      g.run[1] = column_run(chunk.mat + 1, column, expert);
    }
    return g;
  }

  void columns(const ChunkColumns& chunk, const RowRange& rows) const {
    const bool as_stored = rows.count == 1 || a_.activations != Activations::kF32;
    const uint32_t step = as_stored ? a_.chunk_columns : a_.group_columns;
    for (uint32_t column = chunk.begin; column < chunk.end; column += step) {
      const Group g = group(chunk, column, std::min(step, chunk.end - column), rows.expert);
      if (rows.expert < 0) {
        no_product(g, rows);
      } else if (a_.activations != Activations::kF32) {
        converted_rows(g, rows);
      } else if (rows.count == 1) {
        one_row(g, rows);
      } else {
        many_rows(g, rows);
      }
    }
  }

  const RowFormat& format(const ColumnRun& run) const { return *kernels_.f32->find(run.code); }
  float* tile(uint32_t s) const { return tile_ + size_t{s} * tile_rows(a_) * a_.chunk_columns; }

  // Multiplies one row of x in f32 with weights as they are stored.
  void one_row(const Group& g, const RowRange& rows) const {
    for (uint32_t s = 0; s < column_runs_of(a_); ++s) {
      format(g.run[s]).vector_product({.weights = g.run[s].weights,
                                       .row_bytes = g.run[s].row_bytes,
                                       .columns = g.count,
                                       .k = a_.k,
                                       .x = x_ + rows.first * x_stride_,
                                       .y = tile(s)});
    }
    finish(g, rows.first, 1);
  }

  void no_product(const Group& g, const RowRange& rows) const {
    for (uint32_t row = 0; row < rows.count; ++row) {
      for (uint32_t s = 0; s < column_runs_of(a_); ++s) std::fill_n(tile(s), g.count, 0.0F);
      finish(g, rows.first + row, 1);
    }
  }

  // Multiplies several rows of x in f32 with weights that are unpacked once for all of them.
  void many_rows(const Group& g, const RowRange& rows) const {
    TileProduct product[2];
    for (uint32_t s = 0; s < column_runs_of(a_); ++s) product[s] = unpack(g, s);
    each_block(rows, [&](uint32_t first, uint32_t count) {
      for (uint32_t s = 0; s < column_runs_of(a_); ++s) {
        product[s].rows = count;
        product[s].x = x_ + first * x_stride_;
        kernels_.f32->tile_product(product[s]);
      }
      finish(g, first, count);
    });
  }

  // Multiplies rows of x in int8, in 16 bits or in bf16.
  void converted_rows(const Group& g, const RowRange& rows) const {
    each_block(rows, [&](uint32_t first, uint32_t count) {
      for (uint32_t s = 0; s < column_runs_of(a_); ++s) {
        if (a_.activations == Activations::kInt8)
          multiply_groups(&PackedFormat::product, prepared_.int8(first), g, s, count);
        if (a_.activations == Activations::kInt16) {
          multiply_groups(&PackedFormat::wide_product, prepared_.int16(first), g, s, count);
        }
        if (a_.activations == Activations::kBf16) multiply_bf16(g, s, first, count);
      }
      finish(g, first, count);
    });
  }
  template <class Rows>
  void multiply_groups(void (*PackedFormat::*product)(const ProductOfGroups<Rows>&), const Rows& x, const Group& g,
                       uint32_t s, uint32_t count) const {
    const ColumnRun& from = g.run[s];
    (kernels_.packed->find(from.code)->*product)({.weights = from.weights,
                                                  .group_bytes = kGroupRows * from.row_bytes,
                                                  .columns = g.count,
                                                  .rows = count,
                                                  .x = x,
                                                  .y = tile(s),
                                                  .y_stride = a_.chunk_columns});
  }
  void multiply_bf16(const Group& g, uint32_t s, uint32_t first, uint32_t count) const {
    kernels_.bf16->product({.weights = g.run[s].weights,
                            .row_bytes = g.run[s].row_bytes,
                            .columns = g.count,
                            .rows = count,
                            .k = a_.k,
                            .x = prepared_.bf16(first),
                            .x_stride = padded(a_.k),
                            .y = tile(s),
                            .y_stride = a_.chunk_columns});
  }

  // Calls f(first, count) for every kBlockRows of the rows.
  template <class F>
  static void each_block(const RowRange& rows, F&& f) {
    for (uint32_t row = 0; row < rows.count; row += kBlockRows) {
      f(rows.first + row, std::min(kBlockRows, rows.count - row));
    }
  }

  // Weights in f32 stay where they are, unless a file has put them where no float can stand.
  TileProduct unpack(const Group& g, uint32_t s) const {
    const ColumnRun& from = g.run[s];
    TileProduct t{};
    t.columns = g.count;
    t.k = a_.k;
    t.x_stride = x_stride_;
    t.y = tile(s);
    t.y_stride = a_.chunk_columns;
    if (from.code == TENON_F32 && reinterpret_cast<uintptr_t>(from.weights) % alignof(float) == 0) {
      t.weights = reinterpret_cast<const float*>(from.weights);
      t.w_stride = from.row_bytes / sizeof(float);
      return t;
    }
    const size_t stride = padded(a_.k);
    float* out = unpacked_ + size_t{s} * a_.group_columns * stride;
    float* scale = scale_ + size_t{s} * a_.group_columns;
    for (uint32_t c = 0; c < g.count; ++c) {
      scale[c] = format(from).unpack(from.weights + c * from.row_bytes, a_.k, out + c * stride);
    }
    t.weights = out;
    t.w_stride = stride;
    t.scale = scale;
    return t;
  }

  // Adds the addend of (row, column + c) to to[c], for the group's columns.
  void add(const Addend& addend, uint32_t row, uint32_t column, const Group& g, float* to) const {
    const float* from = part_.ptr<const float>(addend.operand) + row * addend.stride + column;
    for (uint32_t c = 0; c < g.count; ++c) to[c] += from[c];
  }

  // Does the epilogue over the first n rows of the tiles, which are the prepared
  // rows from `first` on, and writes them to y.
  void finish(const Group& g, uint32_t first, uint32_t n) const {
    for (uint32_t r = 0; r < n; ++r) {
      const uint32_t row = routed_[first + r];
      float *left = tile(0) + size_t{r} * a_.chunk_columns, *right = tile(1) + size_t{r} * a_.chunk_columns;
      for (uint32_t i = 0; i < a_.before; ++i) {
        add(a_.addend[i], row, g.first, g, left);
        if (a_.silu != 0) add(a_.addend[i], row, g.partner, g, right);
      }
      if (a_.silu != 0) kernels_.f32->ops.silu_mul(left, right, g.count);
      for (uint32_t i = 0; i < a_.after; ++i) add(a_.addend[a_.before + i], row, g.first, g, left);
      std::copy(left, left + g.count, part_.ptr<float>(kY) + row * a_.y_stride + g.first);
    }
  }

  const LinearArgs& a_;
  Kernels kernels_;
  const Part& part_;
  const PreparedRows& prepared_;
  const RoutedRows& routed_;
  const float* x_;  // (rows, x_stride) for products in f32
  size_t x_stride_;
  float *tile_, *unpacked_, *scale_;  // see ThreadLayout
};

// Says whether rows of x are prepared in a phase of their own. A single row is prepared by every thread for itself.
inline bool prepares_first(const LinearArgs& a) {
  return a.rows > 1 && PreparedRows::bytes(a) != 0;
}

template <KernelsOf kKernelsOf>
void run_linear(const LinearArgs& a, const Part& p) {
  const uint32_t live = std::min(p.ptr<const uint32_t>(kLive)[kLiveRows], a.rows);
  if (live == 0) return;
  Kernels kernels = kKernelsOf(a.isa);
  if (a.vbmi != 0 && kernels.vbmi != nullptr) kernels.f32 = kernels.vbmi;
  const ThreadLayout at(a);
  auto* own = p.thread_scratch<float>();
  const PreparedRows prepared(a, a.rows == 1 ? own + at.row : p.scratch<void>());
  RoutedRows routed;
  if (a.experts != 0) routed = RoutedRows(a, p, live, reinterpret_cast<uint32_t*>(own + at.order));
  if (prepares_first(a) && p.phase() == 0) {
    for (uint32_t r = p.begin(); r < std::min(p.end(), live); ++r) {
      prepared.prepare(kernels, p, routed[r], r, own + at.normed);
    }
    return;
  }
  if (a.rows == 1 && PreparedRows::bytes(a) != 0) prepared.prepare(kernels, p, 0, 0, own + at.normed);
  const ChunkRunner runner(a, kernels, p, prepared, routed);
  for (uint32_t chunk = p.begin(); chunk < p.end(); ++chunk) runner.run(chunk, live);
}

}  // namespace tenon::sdk::cpu::detail
