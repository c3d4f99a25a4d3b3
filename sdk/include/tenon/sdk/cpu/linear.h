// The product of a site (linear_site.h) as an operation, and rows of its first matrix.
//
// A product op of several rows has one or two phases: RMSNorm of the rows, if claimed, and their conversion to int8, if
// the weights are packed for it, into scratch; then chunks of columns, each over all live rows. Of a single row every
// thread prepares its own copy, which is sooner done than waited for. With activations in f32 one live row is
// multiplied by weights as stored, several by columns unpacked once into thread scratch. Claimed behind the product:
// BIAS and ADD before and after one SILU_MUL, whose chunks compute both halves of the columns.
//
// Of a routed site the first phase also sorts the rows by expert; a chunk is its columns of one expert after the other,
// each over the expert's rows. So an expert that no row wants is not read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tenon/sdk/cpu/linear_run.h"

namespace tenon::sdk::cpu {

namespace detail {

// Chunks of all matrices, or of one of gate and up, whose columns go in pairs.
inline uint32_t count_chunks(const LinearArgs& a, uint32_t columns_a_chunk) {
  uint32_t chunks = 0;
  for (uint32_t i = 0; i < (a.silu != 0 ? 1 : a.n_mats); ++i) {
    const uint32_t n = a.silu != 0 && a.n_mats == 1 ? a.mat_rows[i] / 2 : a.mat_rows[i];
    chunks += (n + columns_a_chunk - 1) / columns_a_chunk;
  }
  return chunks;
}

// Few rows take as long as their weights need from memory, and a thread that begins elsewhere there loses the time of
// some kilobytes. Threads take chunks in runs, four a thread if there are as many.
inline uint32_t chunk_of_few_rows(const LinearArgs& a, uint64_t column_bytes, uint32_t threads) {
  constexpr uint64_t kBeginning = 7 << 10;
  constexpr uint32_t kMost = 512;
  uint32_t best = kGroupRows;
  uint64_t least = UINT64_MAX;
  for (uint32_t columns = kGroupRows; columns <= kMost; columns += kGroupRows) {
    const uint32_t chunks = count_chunks(a, columns), run = std::max(1U, chunks / (4 * threads));
    const uint64_t runs_a_thread = ((chunks + run - 1) / run + threads - 1) / threads;
    const uint64_t cost = runs_a_thread * (run * columns * column_bytes + kBeginning);
    if (cost < least) least = cost, best = columns;
  }
  return best;
}

// Of many rows wide chunks, while there are eight a thread.
inline uint32_t chunk_of_many_rows(uint64_t columns, uint32_t threads) {
  for (const uint32_t n : {64, 32}) {
    if (columns >= uint64_t{8} * threads * n) return n;
  }
  return 16;
}

// What of the arguments follows from the site and the call, and the operands that they number.
inline LinearArgs linear_args(const LinearSite& site, Isa isa, const tenon_linear_call& call, Recorder& rec,
                              std::vector<tenon_operand>& operands) {
  const tenon_tensor x = rec.describe(call.x), y = rec.describe(call.y);
  const std::vector<tenon_fop> pro = ops_of(call.pro), epi = ops_of(call.epi);
  LinearArgs a{};
  a.isa = isa, a.activations = site.activations, a.n_mats = static_cast<uint32_t>(site.mats.size()), a.k = site.k;
  a.rows = static_cast<uint32_t>(y.dim[0]);
  a.x_stride = x.stride[0] / 4, a.y_stride = y.stride[0] / 4;
  operands = {{call.y, TENON_WRITE},
              {call.x, TENON_READ},
              {call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE), TENON_READ}};
  const auto read = [&](tenon_tid t) {
    operands.push_back({t, TENON_READ});
    return static_cast<uint32_t>(operands.size() - 1);
  };
  for (uint32_t i = 0; i < a.n_mats; ++i) {
    read(call.store[i]);
    a.code[i] = site.mats[i].code, a.mat_rows[i] = site.mats[i].rows, a.row_bytes[i] = site.mats[i].row_bytes;
    a.expert_bytes[i] = site.store_bytes(site.mats[i]);
  }
  if ((site.experts != 0) != (call.expert != 0))
    throw Failed("a routed site needs the rows' experts, no other takes them");
  if (site.experts != 0) a.experts = site.experts, a.expert = read(call.expert);
  for (const tenon_fop& op : pro) {
    if (op.id != TENON_F_RMSNORM || pro.size() != 1) throw Failed("a prologue that was not claimed");
    a.norm = read(op.t[0]), a.eps = op.f[0];
  }
  const EpiloguePlan plan = plan_epilogue(epi, true);
  if (plan.taken() != epi.size()) throw Failed("an epilogue that was not claimed");
  a.before = plan.before, a.after = plan.after, a.silu = plan.silu ? 1 : 0;
  uint32_t n = 0;
  for (const tenon_fop& op : epi) {
    if (op.id == TENON_F_SILU_MUL) continue;
    a.addend[n++] = {read(op.t[0]), op.id == TENON_F_ADD ? rec.describe(op.t[0]).stride[0] / 4 : 0};
  }
  return a;
}

}  // namespace detail

template <KernelsOf Of>
void record_linear(const LinearSite& site, Isa isa, uint32_t threads, const tenon_linear_call& call, Recorder& rec) {
  using namespace detail;
  std::vector<tenon_operand> operands;
  LinearArgs a = linear_args(site, isa, call, rec, operands);
  const uint64_t columns = site.columns();
  constexpr uint32_t kFewRows = 16;
  const uint64_t out_columns = a.silu != 0 ? columns / 2 : columns;
  a.chunk_columns = a.rows <= kFewRows ? chunk_of_few_rows(a, site.bytes() / out_columns, threads)
                                       : chunk_of_many_rows(out_columns, threads);
  const size_t row = padded(a.k) * sizeof(float) * (a.silu != 0 ? 2 : 1);
  a.group_columns = std::clamp<uint32_t>(static_cast<uint32_t>(kUnpackedBytes / row) / 4 * 4, 4, a.chunk_columns);
  const uint32_t chunks = count_chunks(a, a.chunk_columns);

  const auto n = static_cast<double>(columns), k = static_cast<double>(a.k);
  const double out = a.silu != 0 ? n / 2 : n;
  const std::initializer_list<uint32_t> plain = {chunks}, prepared = {a.rows, chunks};
  const bool two = a.rows > 1 && PreparedRows::bytes(a) != 0;
  OpSpec spec{.name = a.rows == 1 ? "gemv" : "gemm", .operands = operands, .chunks = two ? prepared : plain};
  // Of a routed site each row reads its expert's matrices, until there may be as many rows as experts.
  const bool few = a.rows < a.experts;
  spec.cost.read[few ? 1 : 0] = static_cast<double>(site.bytes()) * (few ? 1 : std::max(a.experts, 1U));
  spec.cost.read[1] += 4 * (k + (a.before + a.after) * out), spec.cost.written[1] = 4 * out;
  spec.cost.flops[1] = 2 * n * k;
  spec.thread_scratch_bytes = ThreadLayout(a).end * sizeof(float);
  if (two) spec.scratch_bytes = PreparedRows::bytes(a);
  rec.emit<&run_linear<Of>>(spec, a);
}

template <KernelsOf Of>
void record_linear_rows(const LinearSite& site, Isa isa, tenon_tid store, tenon_tid index, tenon_tid y, Recorder& rec) {
  const StoredMatrix& m = site.mats.front();
  const tenon_tensor out = rec.describe(y);
  detail::RowsArgs a{isa,         site.packed() ? 1U : 0U, m.code, site.k, static_cast<uint32_t>(out.dim[0]), m.rows,
                     m.row_bytes, out.stride[0] / 4};
  const tenon_operand operands[] = {
      {y, TENON_WRITE}, {index, TENON_READ}, {rec.step(TENON_STEP_LIVE), TENON_READ}, {store, TENON_READ}};
  OpSpec spec{.name = "rows", .operands = operands, .chunks = {a.rows}};
  spec.cost.read[1] = static_cast<double>(m.row_bytes), spec.cost.written[1] = 4.0 * site.k;
  spec.thread_scratch_bytes = padded(site.k) * sizeof(float);
  rec.emit<&detail::run_rows<Of>>(spec, a);
}

}  // namespace tenon::sdk::cpu
