// A quantization scheme on the CPU beyond its row formats: what is claimed, how a site is recorded, and how its ops
// run.
//
// A product op has one or two phases: RMSNorm of the rows, if claimed, into scratch; then chunks of columns, each over
// all live rows. One live row is multiplied as stored; several are multiplied by columns unpacked once into thread
// scratch. Claimed behind the product: BIAS and ADD before and after one SILU_MUL, whose chunks compute both halves of
// the columns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "tenon/abi/device.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/cpu/activation.h"
#include "tenon/sdk/cpu/gguf_blocks.h"
#include "tenon/sdk/cpu/int8_activations.h"
#include "tenon/sdk/cpu/row_kernels.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::sdk::cpu {

enum class Isa : uint32_t { kScalar, kAvx2, kAvx512, kAvx512Vnni };  // each has what those before it have
inline Isa isa_of(const tenon_device& device) {
  constexpr uint64_t kVnni = TENON_ISA_AVX512 | TENON_ISA_AVX512_VNNI;
  if ((device.isa & kVnni) == kVnni) return Isa::kAvx512Vnni;
  if ((device.isa & TENON_ISA_AVX512) != 0) return Isa::kAvx512;
  return (device.isa & TENON_ISA_AVX2) != 0 ? Isa::kAvx2 : Isa::kScalar;
}
// What a plugin has for each instruction set; the same formats in each, equal to the bit.
struct Kernels {
  const KernelTable* f32;
  const Int8Table* int8;  // nullptr: none
};
using KernelsOf = Kernels (*)(Isa);

struct StoredMatrix {
  uint32_t code = 0;  // of its row format
  uint32_t rows = 0;
  uint64_t row_bytes = 0;
};
struct LinearSite {
  std::vector<StoredMatrix> mats;  // store i holds matrix i, row by row
  uint32_t k = 0;
  bool in_place = false;
  bool int8_activations = false;  // every matrix's format has an Int8Format

  uint64_t columns() const;
  uint64_t bytes() const;
};

inline constexpr uint32_t kMaxEpilogue = 4;

namespace detail {

// The split of an epilogue around its SILU_MUL.
struct EpiloguePlan {
  uint32_t before = 0, after = 0;
  bool silu = false;
  uint32_t taken() const { return before + after + (silu ? 1 : 0); }
};
inline EpiloguePlan plan_epilogue(const std::vector<tenon_fop>& ops, bool halves) {
  EpiloguePlan plan;
  for (const tenon_fop& op : ops) {
    const bool room = plan.before + plan.after < kMaxEpilogue;
    if ((op.id == TENON_F_BIAS || op.id == TENON_F_ADD) && room) {
      ++(plan.silu ? plan.after : plan.before);
    } else if (op.id == TENON_F_SILU_MUL && !plan.silu && halves) {
      plan.silu = true;
    } else {
      break;
    }
  }
  return plan;
}

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

}  // namespace detail

inline uint64_t LinearSite::columns() const {
  uint64_t n = 0;
  for (const StoredMatrix& m : mats) n += m.rows;
  return n;
}
inline uint64_t LinearSite::bytes() const {
  uint64_t n = 0;
  for (const StoredMatrix& m : mats) n += m.rows * m.row_bytes;
  return n;
}

// Two matrices of one shape, or one of an even number of rows: what SILU_MUL needs.
inline bool has_halves(const tenon_linear& s) {
  return s.n_mats == 2 ? s.out_dim[0] == s.out_dim[1] : s.n_mats == 1 && s.out_dim[0] % 2 == 0;
}

namespace detail {
inline void check_sources(const tenon_linear& s) {
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    const std::string name = tenon_format_name(s.source[i]);
    if (!can_unpack(s.source[i])) {
      throw Refused("a matrix stored as " + name +
                    "; readable are f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0 and q2_k to q6_k");
    }
    const uint32_t block = tenon_format_block(s.source[i]).elements;
    if (s.in_dim % block != 0) {
      throw Refused("a width of " + std::to_string(s.in_dim) + " is not whole blocks of " + std::to_string(block) +
                    " (" + name + ")");
    }
  }
}
}  // namespace detail

// Throws Refused: what no scheme on the CPU does (experts, activations other than f32, shapes beyond 2^31, matrices
// that unpack_row does not read).
inline tenon_claim claim_linear(const tenon_linear& s) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (s.n_mats == 0 || s.n_mats > TENON_MAX_STORES) {
    throw Refused("a site of " + std::to_string(s.n_mats) + " matrices; 1 to " + std::to_string(TENON_MAX_STORES));
  }
  if (s.experts != 0) throw Refused("expert matrices are not supported");
  if (s.x_format != TENON_F32 || s.y_format != TENON_F32) throw Refused("activations other than f32");
  if (s.in_dim <= 0 || s.in_dim > kMost) throw Refused("a width of " + std::to_string(s.in_dim) + "; 1 to 2^31 - 1");
  int64_t columns = 0;
  for (uint32_t i = 0; i < s.n_mats; ++i) {
    if (s.out_dim[i] <= 0 || s.out_dim[i] > kMost - columns) throw Refused("rows that are not 1 to 2^31 - 1 in all");
    columns += s.out_dim[i];
  }
  detail::check_sources(s);
  auto claim = abi_struct<tenon_claim>();
  const std::vector<tenon_fop> pro = ops_of(s.pro);
  claim.pro = !pro.empty() && pro.back().id == TENON_F_RMSNORM ? 1 : 0;
  claim.epi = detail::plan_epilogue(ops_of(s.epi), has_halves(s)).taken();
  return claim;
}

inline uint64_t plain_row_bytes(tenon_format format, uint64_t k) {
  const tenon_block block = tenon_format_block(format);
  return k / block.elements * block.bytes;
}

inline tenon_footprint footprint_of(const LinearSite& site, uint64_t load_bytes) {
  auto f = abi_struct<tenon_footprint>();
  f.n_stores = static_cast<uint32_t>(site.mats.size());
  f.flags = site.in_place ? TENON_FOOTPRINT_IN_PLACE : 0;
  f.load_bytes = site.in_place ? 0 : load_bytes;
  for (size_t i = 0; i < site.mats.size(); ++i) f.store_bytes[i] = site.mats[i].rows * site.mats[i].row_bytes;
  return f;
}

// f(row of the store, row of the file) for each row of src. Throws Failed on rows that the site does not have.
template <class F>
void each_loaded_row(const LinearSite& site, const tenon_rows& src, void* const* store, F&& f) {
  const tenon_block block = tenon_format_block(src.format);
  if (src.mat >= site.mats.size() || block.elements == 0 || site.k % block.elements != 0) {
    throw Failed("rows of a matrix that the site does not have");
  }
  const StoredMatrix& m = site.mats[src.mat];
  const uint64_t file_bytes = plain_row_bytes(src.format, site.k);
  if (src.row0 > m.rows || src.rows > m.rows - src.row0 || src.bytes != src.rows * file_bytes) {
    throw Failed("rows [" + std::to_string(src.row0) + ", +" + std::to_string(src.rows) + ") in " +
                 std::to_string(src.bytes) + " bytes do not fit a matrix of " + std::to_string(m.rows) + " rows");
  }
  for (uint64_t r = 0; r < src.rows; ++r) {
    f(static_cast<uint8_t*>(store[src.mat]) + (src.row0 + r) * m.row_bytes,
      static_cast<const uint8_t*>(src.data) + r * file_bytes);
  }
}

namespace detail {

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
inline uint32_t pick_chunk_columns(uint64_t columns) {
  for (const uint32_t n : {64, 32}) {
    if (columns >= uint64_t{64} * n) return n;
  }
  return 16;
}

}  // namespace detail

template <KernelsOf Of>
void record_linear(const LinearSite& site, Isa isa, const tenon_linear_call& call, Recorder& rec) {
  using namespace detail;
  const tenon_tensor x = rec.describe(call.x), y = rec.describe(call.y);
  const std::vector<tenon_fop> pro = ops_of(call.pro), epi = ops_of(call.epi);
  LinearArgs a{};
  a.isa = isa, a.int8 = site.int8_activations ? 1 : 0, a.n_mats = static_cast<uint32_t>(site.mats.size()), a.k = site.k;
  a.rows = static_cast<uint32_t>(y.dim[0]);
  a.x_stride = x.stride[0] / 4, a.y_stride = y.stride[0] / 4;
  std::vector<tenon_operand> operands{{call.y, TENON_WRITE},
                                      {call.x, TENON_READ},
                                      {call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE), TENON_READ}};
  for (uint32_t i = 0; i < a.n_mats; ++i) {
    operands.push_back({call.store[i], TENON_READ});
    a.code[i] = site.mats[i].code, a.mat_rows[i] = site.mats[i].rows, a.row_bytes[i] = site.mats[i].row_bytes;
  }
  for (const tenon_fop& op : pro) {
    if (op.id != TENON_F_RMSNORM || pro.size() != 1) throw Failed("a prologue that was not claimed");
    a.norm = static_cast<uint32_t>(operands.size()), a.eps = op.f[0];
    operands.push_back({op.t[0], TENON_READ});
  }
  const EpiloguePlan plan = plan_epilogue(epi, true);
  if (plan.taken() != epi.size()) throw Failed("an epilogue that was not claimed");
  a.before = plan.before, a.after = plan.after, a.silu = plan.silu ? 1 : 0;
  uint32_t addends = 0;
  for (const tenon_fop& op : epi) {
    if (op.id == TENON_F_SILU_MUL) continue;
    a.addend[addends++] = {static_cast<uint32_t>(operands.size()),
                           op.id == TENON_F_ADD ? rec.describe(op.t[0]).stride[0] / 4 : 0};
    operands.push_back({op.t[0], TENON_READ});
  }

  const uint64_t columns = site.columns();
  a.chunk_columns = pick_chunk_columns(plan.silu ? columns / 2 : columns);
  const size_t row = padded(a.k) * sizeof(float) * (plan.silu ? 2 : 1);
  a.group_columns = std::clamp<uint32_t>(static_cast<uint32_t>(kUnpackedBytes / row) / 4 * 4, 4, a.chunk_columns);
  uint32_t chunks = 0;
  for (uint32_t i = 0; i < (plan.silu ? 1 : a.n_mats); ++i) {
    const uint32_t n = plan.silu ? static_cast<uint32_t>(columns / 2) : a.mat_rows[i];
    chunks += (n + a.chunk_columns - 1) / a.chunk_columns;
  }

  const auto n = static_cast<double>(columns), k = static_cast<double>(a.k);
  const double out = plan.silu ? n / 2 : n;
  const std::initializer_list<uint32_t> plain = {chunks}, prepared = {a.rows, chunks};
  const bool two = a.norm != 0 || a.int8 != 0;
  OpSpec spec{.name = a.rows == 1 ? "gemv" : "gemm", .operands = operands, .chunks = two ? prepared : plain};
  spec.cost.read[0] = static_cast<double>(site.bytes());
  spec.cost.read[1] = 4 * (k + addends * out), spec.cost.written[1] = 4 * out;
  spec.cost.flops[1] = 2 * n * k;
  const size_t tiles = size_t{kBlockRows} * 2 * a.chunk_columns;
  spec.thread_scratch_bytes = (tiles + size_t{2} * a.group_columns * (padded(a.k) + 1)) * sizeof(float);
  if (two) spec.scratch_bytes = a.int8 != 0 ? QuantizedRows::bytes(a) : size_t{a.rows} * a.k * sizeof(float);
  rec.emit<&run_linear<Of>>(spec, a);
}

template <KernelsOf Of>
void record_linear_rows(const LinearSite& site, Isa isa, tenon_tid store, tenon_tid index, tenon_tid y, Recorder& rec) {
  const StoredMatrix& m = site.mats.front();
  const tenon_tensor out = rec.describe(y);
  detail::RowsArgs a{isa, m.code, site.k, static_cast<uint32_t>(out.dim[0]), m.rows, m.row_bytes, out.stride[0] / 4};
  const tenon_operand operands[] = {
      {y, TENON_WRITE}, {index, TENON_READ}, {rec.step(TENON_STEP_LIVE), TENON_READ}, {store, TENON_READ}};
  OpSpec spec{.name = "rows", .operands = operands, .chunks = {a.rows}};
  spec.cost.read[1] = static_cast<double>(m.row_bytes), spec.cost.written[1] = 4.0 * site.k;
  spec.thread_scratch_bytes = padded(site.k) * sizeof(float);
  rec.emit<&detail::run_rows<Of>>(spec, a);
}

}  // namespace tenon::sdk::cpu
