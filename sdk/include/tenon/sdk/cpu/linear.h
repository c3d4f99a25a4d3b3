// This is the product of a site (linear_site.h) as an op.
//
// A product op of several rows has one or two phases: RMSNorm of the rows, if claimed, and their conversion to int8 or
// bf16, if the weights are stored for it, into scratch; then chunks of columns, each over all live rows. With a single
// row every thread prepares its own copy, which is sooner done than waited for. With activations in f32 one live row is
// multiplied by weights as stored, several by columns unpacked once into thread scratch. Claimed after the product:
// BIAS and ADD before and after one SILU_MUL, whose chunks compute both halves of the columns.
//
// The first phase of a routed site also sorts the rows by expert; a chunk is its columns of one expert after the other,
// each over the expert's rows. So an expert that no row wants is not read.
//
// An example: 4096 columns of 4096 k in Q4_0, which are 2304 bytes a column. One row on 8 threads: chunk_of_few_rows()
// takes 512 columns, a chunk for each thread, so that each begins elsewhere in memory once. One row on 2 threads: 16
// columns make 256 chunks, which the threads take 32 at a time. 4096 rows on 8 threads: 64 columns a chunk, 64 chunks,
// and 4096 chunks of one row each in the phase before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tenon/sdk/cpu/linear_run.h"
#include "tenon/sdk/fop.h"

namespace tenon::sdk::cpu {

namespace detail {

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
    if (cost < least) {
      least = cost;
      best = columns;
    }
  }
  return best;
}

// Many rows take wide chunks, while there are eight a thread.
inline uint32_t chunk_of_many_rows(uint64_t columns, uint32_t threads) {
  for (const uint32_t n : {64, 32}) {
    if (columns >= uint64_t{8} * threads * n) return n;
  }
  return 16;
}

// This is an op of a product while it is recorded: its arguments, and the operands that they number.
class LinearRecording {
 public:
  LinearRecording(const LinearSite& site, const Processor& processor, const tenon_linear_call& call, Recorder& rec)
      : site_(site), call_(call), rec_(rec) {
    args_.isa = processor.isa;
    args_.vbmi = processor.vbmi ? 1 : 0;
    set_rows();
    set_matrices();
    set_prologue();
    set_epilogue();
  }

  const LinearArgs& args() const { return args_; }

  // Cuts the columns into chunks, and chunks into groups that fit the thread's scratch.
  void cut(uint32_t threads) {
    constexpr uint32_t kFewRows = 16;
    args_.chunk_columns = args_.rows <= kFewRows ? chunk_of_few_rows(args_, site_.bytes() / out_columns(), threads)
                                                 : chunk_of_many_rows(out_columns(), threads);
    const size_t unpacked_column = padded(args_.k) * sizeof(float) * column_runs_of(args_);
    const auto fitting = static_cast<uint32_t>(kUnpackedBytes / unpacked_column);
    args_.group_columns = std::clamp<uint32_t>(fitting / 4 * 4, 4, args_.chunk_columns);
  }

  template <KernelsOf kKernelsOf>
  void emit() {
    const uint32_t chunks = count_chunks(args_, args_.chunk_columns);
    const std::initializer_list<uint32_t> plain = {chunks}, prepared = {args_.rows, chunks};
    const bool two_phases = prepares_first(args_);
    OpSpec spec{.name = args_.rows == 1 ? "gemv" : "gemm",
                .operands = operands_,
                .chunks = two_phases ? prepared : plain,
                .cost = cost()};
    spec.thread_scratch_bytes = ThreadLayout(args_).end * sizeof(float);
    if (two_phases) spec.scratch_bytes = PreparedRows::bytes(args_);
    rec_.emit<&run_linear<kKernelsOf>>(spec, args_);
  }

 private:
  uint64_t out_columns() const { return site_.columns() / column_runs_of(args_); }

  // Returns the operand's number.
  uint32_t read(tenon_tid tensor) {
    operands_.push_back({tensor, TENON_READ});
    return static_cast<uint32_t>(operands_.size() - 1);
  }

  void set_rows() {
    args_.activations = site_.activations;
    args_.k = site_.k;
    args_.rows = static_cast<uint32_t>(rec_.describe(call_.y).dim[0]);
    args_.x_stride = rec_.floats_of_row(call_.x);
    args_.y_stride = rec_.floats_of_row(call_.y);
    const tenon_tid live = call_.row_live != 0 ? call_.row_live : rec_.step(TENON_STEP_LIVE);
    operands_ =
        operands_by(kStores, {{kY, call_.y, TENON_WRITE}, {kX, call_.x, TENON_READ}, {kLive, live, TENON_READ}});
  }

  void set_matrices() {
    args_.n_mats = static_cast<uint32_t>(site_.mats.size());
    for (uint32_t i = 0; i < args_.n_mats; ++i) {
      const StoredMatrix& m = site_.mats[i];
      read(call_.store[i]);
      args_.code[i] = m.code;
      args_.mat_rows[i] = m.rows;
      args_.row_bytes[i] = m.row_bytes;
      args_.expert_bytes[i] = site_.store_bytes(m);
    }
    if ((site_.experts != 0) != (call_.expert != 0)) {
      throw Failed("a routed site needs the rows' experts, no other takes them");
    }
    if (site_.experts == 0) return;
    args_.experts = site_.experts;
    args_.expert = read(call_.expert);
  }

  void set_prologue() {
    const std::vector<tenon_fop> ops = ops_of(call_.pro);
    for (const tenon_fop& op : ops) {
      if (op.id != TENON_F_RMSNORM || ops.size() != 1) throw Failed("a prologue that was not claimed");
      args_.norm = read(RmsNormOp(op).weight);
      args_.eps = RmsNormOp(op).eps;
    }
  }

  void set_epilogue() {
    const std::vector<tenon_fop> ops = ops_of(call_.epi);
    const EpiloguePlan plan = plan_epilogue(ops, true);
    if (plan.taken() != ops.size()) throw Failed("an epilogue that was not claimed");
    args_.before = plan.before;
    args_.after = plan.after;
    args_.silu = plan.silu ? 1 : 0;
    uint32_t n = 0;
    for (const tenon_fop& op : ops) {
      if (op.id == TENON_F_SILU_MUL) continue;
      const tenon_tid addend = AddOp(op).addend;
      args_.addend[n++] = {read(addend), op.id == TENON_F_ADD ? rec_.floats_of_row(addend) : 0};
    }
  }

  // Returns bytes and operations; [0] once a step, [1] a row.
  tenon_cost cost() const {
    const auto columns = static_cast<double>(site_.columns()), k = static_cast<double>(args_.k);
    const double out = args_.silu != 0 ? columns / 2 : columns;
    tenon_cost cost{};
    // Each row of a routed site reads its expert's matrices, until there may be as many rows as experts.
    const bool few = args_.rows < args_.experts;
    cost.read[few ? 1 : 0] = static_cast<double>(site_.bytes()) * (few ? 1 : std::max(args_.experts, 1U));
    cost.read[kCostPerRow] += sizeof(float) * (k + (args_.before + args_.after) * out);
    cost.written[kCostPerRow] = sizeof(float) * out;
    cost.flops[kCostPerRow] = 2 * columns * k;
    return cost;
  }

  const LinearSite& site_;
  const tenon_linear_call& call_;
  Recorder& rec_;
  LinearArgs args_{};
  std::vector<tenon_operand> operands_;  // LinearOperand, then what the arguments number
};

}  // namespace detail

template <KernelsOf kKernelsOf>
void record_linear(const LinearSite& site, const Processor& processor, const tenon_linear_call& call, Recorder& rec) {
  detail::LinearRecording recording(site, processor, call, rec);
  recording.cut(processor.threads);
  recording.emit<kKernelsOf>();
}

}  // namespace tenon::sdk::cpu
