#include <algorithm>
#include <string>
#include <vector>

#include "attend.h"
#include "kernels.h"
#include "plugin.h"

namespace tenon::flash {
namespace {

using sdk::Refused;

// Queries of a work item: enough to share a conversion of keys and values, few enough for the second-level cache.
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
  if (const std::string why = sdk::kv_unread(kv, sdk::kReadsEverything); !why.empty()) throw Refused(why);
  sdk::check_heads(a);
  auto claim = sdk::abi_struct<tenon_claim>();
  const std::vector<tenon_fop> pro = sdk::ops_of(a.pro);
  if (kv.format->rotated == 0 && !pro.empty() && pro.back().id == TENON_F_ROPE) claim.pro = 1;
  return claim;
}

tenon_kv_format Flash::preferred_format() const {
  return sdk::plain_kv_format(TENON_F32);
}

namespace {

// How the work is cut.
void cut(AttendArgs& args, const tenon_bounds& b, uint32_t split) {
  const uint32_t blocks = (args.rows + args.block_rows - 1) / args.block_rows;
  const auto splits_of = [&](uint32_t lanes) { return (lanes + split - 1) / split; };
  args.split = split;
  if (args.kv.rule == TENON_POS_RING) {
    args.sink_splits = splits_of(args.kv.sinks);
    args.splits = args.sink_splits + splits_of(args.kv.window + args.block_rows) + 1;
  } else {
    const uint64_t lanes = args.kv.rule == TENON_POS_LINEAR ? b.kv_len : args.kv.capacity();
    args.lanes = static_cast<uint32_t>(std::min(lanes, args.kv.capacity()));
    args.sink_splits = args.splits = std::max<uint32_t>(1, splits_of(args.lanes));
  }
  if (blocks * args.kv_heads >= kManyChunks || scratch_bytes(args) > kMostScratch) args.sink_splits = args.splits = 1;
}

}  // namespace

void Flash::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  AttendArgs args{};
  args.kv = attention::layout_of(a, *call.kv);
  args.q_row = r.describe(call.q).stride[0], args.out_row = r.describe(call.out).stride[0];
  args.kv_heads = a.kv_heads, args.group = a.q_heads / a.kv_heads;
  args.rows = r.bounds().rows, args.seqs = r.bounds().seqs, args.trees = r.bounds().trees;
  args.block_rows = std::clamp<uint32_t>(kBlockQueries / args.group, 1, args.rows);
  args.window = a.window, args.weight_rows = call.kv->weight_rows;
  args.isa = isa_, args.padded = round_up(a.v_dim, kValuePadding);
  args.scale = a.scale, args.softcap = a.softcap;
  const attention::Turn turn = attention::claimed_turn(call);
  args.rotated = turn.rotated, args.pairing = turn.pairing;
  cut(args, r.bounds(), split_);

  std::vector<tenon_operand> operands = attention::view_operands(call, turn, r);
  // Rows of one block share what is read of the cache.
  const uint32_t shared = std::clamp<uint32_t>(r.bounds().rows_per_seq, 1, args.block_rows);
  const double q_columns = double(a.q_heads) * a.k_dim, out_columns = double(a.q_heads) * a.v_dim;
  const auto row_bytes = [](const sdk::KvPlane& p) {
    return double(p.dim) * tenon_format_block(p.codec).bytes + tenon_format_block(p.scale).bytes;
  };
  tenon_cost cost{};
  cost.read[1] = q_columns * sizeof(float), cost.written[1] = out_columns * sizeof(float);
  cost.read[2] = a.kv_heads * (row_bytes(args.kv.k) + row_bytes(args.kv.v)) / shared;
  cost.flops[2] = 2 * (q_columns + out_columns);
  const auto emit = [&](std::initializer_list<uint32_t> chunks) {
    r.emit<attend>({.name = "attention",
                    .operands = operands,
                    .chunks = chunks,
                    .cost = cost,
                    .scratch_bytes = scratch_bytes(args),
                    .thread_scratch_bytes = thread_scratch_bytes(args)},
                   args);
  };
  const uint32_t blocks = (args.rows + args.block_rows - 1) / args.block_rows;
  if (args.splits == 1) {
    emit({blocks * a.kv_heads});
  } else {
    emit({blocks * a.kv_heads * args.splits, args.rows * a.kv_heads});
  }
  if (args.weight_rows == 0) return;
  operands[kOut] = operands[kQ];
  operands.push_back({call.kv->weights, TENON_WRITE});
  r.emit<sum_weights>({.name = "weights",
                       .operands = operands,
                       .chunks = {args.seqs * a.kv_heads},
                       .thread_scratch_bytes = weights_scratch_bytes(args)},
                      args);
}

}  // namespace tenon::flash

TENON_PLUGIN(tenon::flash::Flash);
