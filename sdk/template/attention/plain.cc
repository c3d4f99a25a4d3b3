// attention.plain computes softmax(q k / sqrt(d)) v with one running sum a head, over caches of plain floats.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tenon/sdk/attention.h"
#include "tenon/sdk/cpu/kv_reader.h"

namespace sdk = tenon::sdk;
namespace cpu = tenon::sdk::cpu;

namespace {

struct Args {
  sdk::KvLayout kv;
  int64_t q_row, out_row;  // elements
  uint32_t q_heads, rows, kv_len, window;
  float scale;
};
enum Operand { kOut, kQ, kK, kV, kKScales, kVScales, kPages, kLive, kPos, kSlot, kOperands };

void attend_head(const Args& a, const sdk::Part& part, uint32_t row, uint32_t head) {
  const auto slot = static_cast<uint32_t>(part.ptr<const int32_t>(kSlot)[row]);
  const auto last = static_cast<uint32_t>(part.ptr<const int32_t>(kPos)[row]);
  const uint32_t kv_head = head / (a.q_heads / a.kv.heads);
  const auto* pages = part.ptr<int32_t>(kPages);
  const cpu::KvCells keys(
      {.layout = a.kv, .plane = a.kv.k, .base = part.ptr<void>(kK), .scales = part.ptr<void>(kKScales), .pages = pages},
      slot, kv_head);
  const cpu::KvCells values(
      {.layout = a.kv, .plane = a.kv.v, .base = part.ptr<void>(kV), .scales = part.ptr<void>(kVScales), .pages = pages},
      slot, kv_head);
  const float* q = part.ptr<const float>(kQ) + row * a.q_row + size_t{head} * a.kv.k.dim;
  float* out = part.ptr<float>(kOut) + row * a.out_row + size_t{head} * a.kv.v.dim;
  auto* line = part.thread_scratch<float>();  // a key, then a value, as floats

  // A greater score than any before scales what has been summed up.
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  std::fill_n(out, a.kv.v.dim, 0.0F);
  for (uint32_t t = a.window != 0 && last >= a.window ? last + 1 - a.window : 0; t <= last; ++t) {
    keys.load(t, line);
    double score = 0;
    for (uint32_t d = 0; d < a.kv.k.dim; ++d) score += double{q[d]} * line[d];
    score *= a.scale;
    const double next = std::max(most, score), shrink = std::exp(most - next), weight = std::exp(score - next);
    most = next;
    sum = sum * shrink + weight;
    values.load(t, line);
    for (uint32_t d = 0; d < a.kv.v.dim; ++d) out[d] = static_cast<float>(out[d] * shrink + weight * line[d]);
  }
  for (uint32_t d = 0; d < a.kv.v.dim; ++d) out[d] = static_cast<float>(out[d] / sum);
}

// A chunk is one head of one row.
void attend(const Args& a, const sdk::Part& part) {
  const uint32_t live = std::min(*part.ptr<const uint32_t>(kLive), a.rows);
  for (uint32_t chunk = part.begin(); chunk < std::min(part.end(), live * a.q_heads); ++chunk) {
    const uint32_t row = chunk / a.q_heads;
    if (part.ptr<const int32_t>(kSlot)[row] < 0) continue;
    if (static_cast<uint32_t>(part.ptr<const int32_t>(kPos)[row]) >= a.kv_len) throw sdk::Failed("a position too far");
    attend_head(a, part, row, chunk % a.q_heads);
  }
}

class Plain : public sdk::Attention<Plain> {
 public:
  static constexpr const char* kName = "plain";
  static constexpr const char* kDoc = "The softmax's running form, without tricks";
  static constexpr auto kParams = sdk::params();
  static constexpr uint32_t kRowInvariantMax = UINT32_MAX;

  Plain(const sdk::Params&, const sdk::Env&) {}

  // In a linear cache without trees, cell t holds position t, and the step's own rows are among the cells.
  tenon_claim claim(const tenon_attn& a, const tenon_kv_view& view, const tenon_bounds& b) const {
    if (const std::string why = sdk::kv_unread(view, sdk::kReadsScales); !why.empty()) throw sdk::Refused(why);
    if (b.trees != 0) throw sdk::Refused("trees of drafts");
    sdk::check_heads(a);
    if (a.softcap != 0) throw sdk::Refused("a softcap");
    return sdk::abi_struct<tenon_claim>();
  }

  tenon_kv_format preferred_format() const { return sdk::plain_kv_format(TENON_F32); }

  void record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
    Args args{};
    args.kv = sdk::kv_layout(*call.kv);
    args.q_row = r.describe(call.q).stride[0] / 4;
    args.out_row = r.describe(call.out).stride[0] / 4;
    args.q_heads = a.q_heads;
    args.rows = r.bounds().rows;
    args.window = a.window;
    args.scale = a.scale;
    args.kv_len = static_cast<uint32_t>(std::min<uint64_t>(r.bounds().kv_len, args.kv.capacity()));
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kOperands, {{kOut, call.out, TENON_WRITE},
                                     {kQ, call.q, TENON_READ},
                                     {kK, call.kv->k, TENON_READ},
                                     {kV, call.kv->v, TENON_READ},
                                     {kKScales, call.kv->k_scale != 0 ? call.kv->k_scale : call.kv->k, TENON_READ},
                                     {kVScales, call.kv->v_scale != 0 ? call.kv->v_scale : call.kv->v, TENON_READ},
                                     {kPages, call.kv->pages, TENON_READ},
                                     {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                     {kPos, r.step(TENON_STEP_POS), TENON_READ},
                                     {kSlot, r.step(TENON_STEP_SLOT), TENON_READ}});
    const double columns = static_cast<double>(a.q_heads) * (a.k_dim + a.v_dim);
    tenon_cost cost{};
    cost.read[sdk::kCostPerRow] = 4.0 * a.q_heads * a.k_dim;
    cost.written[sdk::kCostPerRow] = 4.0 * a.q_heads * a.v_dim;
    cost.read[sdk::kCostPerToken] = columns * tenon_format_block(args.kv.k.codec).bytes;
    cost.flops[sdk::kCostPerToken] = 2 * columns;
    r.emit<attend>({.name = "attention",
                    .operands = operands,
                    .chunks = {args.rows * a.q_heads},
                    .cost = cost,
                    .thread_scratch_bytes = std::max(a.k_dim, a.v_dim) * sizeof(float)},
                   args);
  }
};

}  // namespace

TENON_PLUGIN(Plain);
