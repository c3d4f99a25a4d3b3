// This says how the work of an attention is cut on the CPU, and what it costs; attend.cc does the work. Splits lie at
// fixed spots, however much work there is, so that a row's bits do not depend on it.
#include <algorithm>
#include <string>
#include <vector>

#include "../common/rotated_heads_cpu.h"
#include "attend.h"
#include "kernels.h"
#include "plugin.h"

namespace tenon::flash {
namespace {

using sdk::Refused;

// A work item has so many queries: enough to share a conversion of keys and values, few enough for the L2 cache.
constexpr uint32_t kBlockQueries = 64;
// Fewer work items than this are cut along the positions too, unless partial results would take more than kMostScratch.
constexpr uint32_t kManyChunks = 64;
constexpr uint64_t kMostScratch = 16 << 20;

uint32_t round_up(uint32_t n, uint32_t step) {
  return (n + step - 1) / step * step;
}

}  // namespace

Flash::Flash(const sdk::Params& params, const sdk::Env& env)
    : split_(static_cast<uint32_t>(params.integer("split"))),
      isa_((env.device().isa & TENON_ISA_AVX512) != 0 ? 2
           : (env.device().isa & TENON_ISA_AVX2) != 0 ? 1
                                                      : 0) {}

tenon_claim Flash::claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds&) const {
  return attention::claim_view(a, kv);
}

tenon_kv_format Flash::preferred_format() const {
  return sdk::plain_kv_format(TENON_F32);
}

namespace {

uint32_t row_blocks(const AttendArgs& args) {
  return (args.rows + args.block_rows - 1) / args.block_rows;
}

// Cuts the work into blocks of rows, and into splits of spots where that leaves few work items.
void cut(AttendArgs& args, const tenon_bounds& b, uint32_t split) {
  const auto splits_of = [&](uint32_t spots) { return (spots + split - 1) / split; };
  args.block_rows = std::clamp<uint32_t>(kBlockQueries / args.group, 1, args.rows);
  args.split = split;
  if (args.kv.rule == TENON_POS_RING) {
    args.sink_splits = splits_of(args.kv.sinks);
    args.splits = args.sink_splits + splits_of(args.kv.window + args.block_rows) + 1;
  } else {
    const uint64_t spots = args.kv.rule == TENON_POS_LINEAR ? b.kv_len : args.kv.capacity();
    args.spots = static_cast<uint32_t>(std::min(spots, args.kv.capacity()));
    args.sink_splits = args.splits = std::max<uint32_t>(1, splits_of(args.spots));
  }
  if (row_blocks(args) * args.kv_heads >= kManyChunks || scratch_bytes(args) > kMostScratch) {
    args.sink_splits = args.splits = 1;
  }
}

// Returns the bytes of the cache for each token that a row attends to. Rows of one block share what is read.
double cache_bytes(const AttendArgs& args, const tenon_bounds& b) {
  const auto row_bytes = [](const sdk::KvPlane& p) {
    return double(p.dim) * sdk::kv_element_bytes(p.codec) + tenon_format_block(p.scale).bytes;
  };
  const uint32_t shared = std::clamp<uint32_t>(b.rows_per_seq, 1, args.block_rows);
  return args.kv_heads * (row_bytes(args.kv.k) + row_bytes(args.kv.v)) / shared;
}

void emit_attend(const AttendArgs& args, const std::vector<tenon_operand>& operands, const tenon_cost& cost,
                 sdk::Recorder& r) {
  const std::initializer_list<uint32_t> whole = {row_blocks(args) * args.kv_heads};
  const std::initializer_list<uint32_t> in_splits = {row_blocks(args) * args.kv_heads * args.splits,
                                                     args.rows * args.kv_heads};
  r.emit<attend>({.name = "attention",
                  .operands = operands,
                  .chunks = args.splits == 1 ? whole : in_splits,
                  .cost = cost,
                  .scratch_bytes = scratch_bytes(args),
                  .thread_scratch_bytes = thread_scratch_bytes(args)},
                 args);
}

}  // namespace

void Flash::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  attention::record_rotated_cpu(a, call, r, [&](const tenon_attn_call& rotated) {
    attention::record_halves(a, rotated, r, [&](const tenon_attn& own, const tenon_attn_call& c, const Half& half) {
      record_half(own, c, half, r);
    });
  });
}

void Flash::record_half(const tenon_attn& a, const tenon_attn_call& call, const Half& half, sdk::Recorder& r) const {
  AttendArgs args{};
  static_cast<attention::ViewArgs&>(args) = attention::view_args(a, call, half, r);
  args.kv_heads = a.kv_heads;
  args.isa = isa_;
  args.padded = round_up(a.v_dim, kValuePadding);
  cut(args, r.bounds(), split_);
  const std::vector<tenon_operand> operands = attention::cpu_operands(call, half, r);
  const tenon_bounds& b = r.bounds();
  const tenon_cost cost = attention::view_cost(a, *call.kv, half, b, cache_bytes(args, b));
  emit_attend(args, operands, attention::cost_of_out_rows(cost, args, b), r);
  attention::record_weights<sum_weights>(call, args, weights_scratch_bytes(args), operands, r);
}

}  // namespace tenon::flash

TENON_PLUGIN(tenon::flash::Flash);
