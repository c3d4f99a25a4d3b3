#include <algorithm>
#include <string>

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

tenon_claim Flash::claim(const tenon_attn& a, const tenon_kv_format& f, const tenon_bounds&) const {
  if (const char* why = sdk::cpu::not_plain(f)) throw Refused(why);
  if (a.q_format != TENON_F32) throw Refused("queries that are not f32");
  if (a.kv_heads == 0 || a.q_heads == 0 || a.q_heads % a.kv_heads != 0) {
    throw Refused(std::to_string(a.q_heads) + " query heads cannot share " + std::to_string(a.kv_heads) + " KV heads");
  }
  if (a.k_dim == 0 || a.v_dim == 0) throw Refused("heads without dimensions");
  if (a.mask != TENON_MASK_CAUSAL && a.mask != TENON_MASK_PARENT) throw Refused("an unknown mask");
  return sdk::abi_struct<tenon_claim>();
}

tenon_kv_format Flash::preferred_format() const {
  return sdk::cpu::plain_kv_format(TENON_F32);
}

void Flash::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  AttendArgs args{};
  args.kv = sdk::cpu::kv_layout(*call.kv);
  if (args.kv.heads != a.kv_heads || args.kv.k.dim != a.k_dim || args.kv.v.dim != a.v_dim) {
    throw sdk::Failed("the cache's heads are not the layer's");
  }
  args.q_row = r.describe(call.q).stride[0], args.out_row = r.describe(call.out).stride[0];
  args.want_lse = a.want_lse != 0 && call.lse != 0, args.has_sink = a.has_sink;
  if (args.want_lse != 0) args.lse_row = r.describe(call.lse).stride[0];
  args.kv_heads = a.kv_heads, args.group = a.q_heads / a.kv_heads;
  args.rows = r.bounds().rows;
  args.block_rows = std::clamp<uint32_t>(kBlockQueries / args.group, 1, args.rows);
  args.window = a.window, args.tree = a.mask == TENON_MASK_PARENT;
  args.isa = isa_, args.padded = round_up(a.v_dim, kValuePadding);
  args.scale = a.scale, args.softcap = a.softcap;
  const uint32_t blocks = (args.rows + args.block_rows - 1) / args.block_rows;
  args.kv_len = static_cast<uint32_t>(std::min<uint64_t>(r.bounds().kv_len, args.kv.capacity()));
  args.split = split_, args.splits = std::max<uint32_t>(1, (args.kv_len + split_ - 1) / split_);
  if (blocks * a.kv_heads >= kManyChunks || scratch_bytes(args) > kMostScratch) args.splits = 1;

  const tenon_operand operands[] = {{call.q, TENON_READ},
                                    {call.out, TENON_WRITE},
                                    {call.kv->k, TENON_READ},
                                    {call.kv->v, TENON_READ},
                                    {call.kv->pages, TENON_READ},
                                    {r.step(TENON_STEP_LIVE), TENON_READ},
                                    {r.step(TENON_STEP_POS), TENON_READ},
                                    {r.step(TENON_STEP_SLOT), TENON_READ},
                                    {r.step(TENON_STEP_PARENT), TENON_READ},
                                    {r.step(TENON_STEP_KV_LEN), TENON_READ},
                                    {a.has_sink != 0 ? call.sink : call.q, TENON_READ},
                                    {args.want_lse != 0 ? call.lse : call.out, TENON_WRITE}};
  // Rows of one block share what is read of the cache.
  const uint32_t shared = std::clamp<uint32_t>(r.bounds().rows_per_seq, 1, args.block_rows);
  const double q_columns = double(a.q_heads) * a.k_dim, out_columns = double(a.q_heads) * a.v_dim;
  tenon_cost cost{};
  cost.read[1] = q_columns * sizeof(float), cost.written[1] = out_columns * sizeof(float);
  cost.read[2] = a.kv_heads *
                 (double(a.k_dim) * tenon_format_block(args.kv.k.codec).bytes +
                  double(a.v_dim) * tenon_format_block(args.kv.v.codec).bytes) /
                 shared;
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
  if (args.splits == 1) {
    emit({blocks * a.kv_heads});
  } else {
    emit({blocks * a.kv_heads * args.splits, args.rows * a.kv_heads});
  }
}

}  // namespace tenon::flash

TENON_PLUGIN(tenon::flash::Flash);
