// These are the step's own ops: they pick the rows whose logits are wanted, pool hidden states, make a draft model's
// passes, verify drafts, and tell the host of the choice. Rows are f32, contiguous inside, strided between.
#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "cpu_device.h"
#include "tenon/sdk/live.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/step_operands.h"

namespace tenon {
namespace {

using sdk::OpSpec;
using sdk::Part;
using sdk::Recorder;
using enum sdk::GatherOperand;
using enum sdk::PoolOperand;
using enum sdk::MaskOperand;
using enum sdk::VerifyOperand;
using enum sdk::TellOperand;

struct GatherArgs {
  int64_t columns, x_stride, y_stride;
};
void gather(const GatherArgs& a, const Part& p) {
  for (uint32_t i = p.begin(); i < std::min(p.end(), p.ptr<uint32_t>(kGatherLive)[sdk::kLiveOutRows]); ++i) {
    const float* x = p.ptr<const float>(kGatherX) + p.ptr<const int32_t>(kGatherOutRow)[i] * a.x_stride;
    std::copy(x, x + a.columns, p.ptr<float>(kGatherY) + i * a.y_stride);
  }
}

// A chunk is a stretch of columns. A text's rows are added in their order, whatever steps they come in.
constexpr int64_t kPoolColumns = 64;
struct PoolArgs {
  int64_t columns, x_stride;
};
void pool_columns(const PoolArgs& a, const Part& p, uint32_t seq, int64_t first) {
  const int64_t n = std::min(kPoolColumns, a.columns - first);
  const auto* seq_row = p.ptr<const int32_t>(kPoolSeqRow);
  const int32_t slot = p.ptr<const int32_t>(kPoolSeqSlot)[seq];
  float* sum = p.ptr<float>(kPooled) + slot * 2 * a.columns + first;
  if (p.ptr<const int32_t>(kPoolKvLen)[slot] == 0) std::fill_n(sum, n, 0.0F);
  for (int32_t row = seq_row[seq]; row < seq_row[seq + 1]; ++row) {
    const float* x = p.ptr<const float>(kPoolX) + row * a.x_stride + first;
    for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
    if (row + 1 == seq_row[seq + 1]) std::copy_n(x, n, sum + a.columns);
  }
}
void pool(const PoolArgs& a, const Part& p) {
  const uint32_t seqs = p.ptr<const uint32_t>(kPoolLive)[sdk::kLiveSeqs];
  for (uint32_t chunk = p.begin(); chunk < p.end(); ++chunk) {
    for (uint32_t seq = 0; seq < seqs; ++seq) pool_columns(a, p, seq, chunk * kPoolColumns);
  }
}

constexpr int64_t kSlice = 8192;  // entries of a row that a chunk takes

struct MaskArgs {
  int64_t vocab, words, x_stride, y_stride;
  uint32_t slices, padding;
};
void mask(const MaskArgs& a, const Part& p) {
  constexpr int64_t kBits = 32;
  const uint32_t rows = p.ptr<const uint32_t>(kMaskLive)[sdk::kLiveOutRows];
  for (uint32_t chunk = p.begin(); chunk < std::min(p.end(), rows * a.slices); ++chunk) {
    const uint32_t row = chunk / a.slices;
    const int64_t first = int64_t{chunk % a.slices} * kSlice, end = std::min(first + kSlice, a.vocab);
    const float* x = p.ptr<const float>(kMaskX) + row * a.x_stride;
    float* y = p.ptr<float>(kMaskY) + row * a.y_stride;
    const int32_t number = p.ptr<const int32_t>(kMaskNumber)[row];
    if (number < 0) {
      std::copy(x + first, x + end, y + first);
      continue;
    }
    const uint32_t* bits = p.ptr<const uint32_t>(kMaskWords) + number * a.words;
    for (int64_t i = first; i < end; ++i) {
      const bool allowed = ((bits[i / kBits] >> (i % kBits)) & 1U) != 0;
      y[i] = allowed ? x[i] : -std::numeric_limits<float>::infinity();
    }
  }
}

// The rows up to the first whose logits are wanted are given. From there on the first child whose token is the one
// chosen for its parent survives; children stand after their parents, so one pass over the rows finds the path. A
// choice that is no token is told as it was, and is 0 for everybody after.
struct VerifyArgs {
  uint32_t seqs, vocab;
};
void verify(const VerifyArgs& a, const Part& p) {
  const auto* live = p.ptr<uint32_t>(kVerifyLive);
  const uint32_t seqs = live[sdk::kLiveSeqs], outs = live[sdk::kLiveOutRows];
  auto* next = p.ptr<int32_t>(kVerifyNext);
  std::copy_n(next, outs, p.ptr<int32_t>(kVerifyTold));
  std::replace_if(
      next, next + outs, [&](int32_t chosen) { return static_cast<uint32_t>(chosen) >= a.vocab; }, 0);
  const auto* out_row = p.ptr<const int32_t>(kVerifyOutRow);
  const auto* seq_row = p.ptr<const int32_t>(kVerifySeqRow);
  const auto *token = p.ptr<const int32_t>(kVerifyToken), *parent = p.ptr<const int32_t>(kVerifyParent);
  auto* survivor = p.ptr<int32_t>(kVerifySurvivor);
  uint32_t o = 0;
  for (uint32_t s = 0; s < seqs; ++s) {
    const int32_t begin = seq_row[s], end = seq_row[s + 1];
    while (o < outs && out_row[o] < begin) ++o;
    const int32_t given = o < outs && out_row[o] < end ? out_row[o] + 1 : end;
    for (int32_t row = begin; row < given; ++row) survivor[row] = row;
    int32_t last = given - 1, after = given;
    for (int32_t row = given; row < end && o < outs && out_row[o] == last; ++row) {
      if (parent[row] != last || token[row] != next[o]) continue;
      survivor[after++] = last = row;
      while (o < outs && out_row[o] < row) ++o;
    }
    p.ptr<int32_t>(kVerifyAccepted)[s] = after - begin;
  }
}

// If a row's numbers are not finite, the host is told so in the place of its token, which verify() wrote. A chunk is a
// slice of a row; each chunk that finds something says so, and the lower number is the one that stays.
struct TellArgs {
  int64_t vocab, stride;  // the vocabulary's size, and the elements from one row of logits to the next
  uint32_t slices, sees_logits;
  sdk::SomeLeft left;
};
// Neither has a branch inside of its loop, so that it becomes vector instructions. A number without itself is 0 if it
// is finite, else NaN, which stays NaN in a sum.
bool any_no_logit(const float* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] - x[i + lane];
  }
  for (; i < n; ++i) sums[0] += x[i] - x[i];
  return std::any_of(std::begin(sums), std::end(sums), sdk::no_logit);
}
bool any_no_candidate(const float* x, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= static_cast<uint32_t>(sdk::no_candidate(x[i]));
  return found != 0;
}
int32_t worst_of(const TellArgs& a, const Part& p, uint32_t row, int64_t first) {
  const auto share = [first](int64_t entries) { return std::clamp<int64_t>(entries - first, 0, kSlice); };
  const float* logits = p.ptr<const float>(kTellLogits) + row * a.stride + first;
  if (a.sees_logits != 0 && any_no_logit(logits, share(a.vocab))) return sdk::kNoLogits;
  for (uint32_t i = 0; i < a.left.n; ++i) {
    const sdk::LeftRows& of = a.left.of[i];
    const int64_t entries = of.counted != 0 ? p.ptr<const int32_t>(of.operand + sdk::kLeftCount)[row] : of.columns;
    const float* left = p.ptr<const float>(of.operand + sdk::kLeftLogits) + row * of.stride + first;
    if (any_no_candidate(left, share(entries))) return sdk::kNoCandidates;
  }
  return std::numeric_limits<int32_t>::max();
}
void tell(const TellArgs& a, const Part& p) {
  const uint32_t rows = p.ptr<const uint32_t>(kTellLive)[sdk::kLiveOutRows];
  for (uint32_t chunk = p.begin(); chunk < std::min(p.end(), rows * a.slices); ++chunk) {
    const int32_t worst = worst_of(a, p, chunk / a.slices, int64_t{chunk % a.slices} * kSlice);
    if (worst == std::numeric_limits<int32_t>::max()) continue;
    const std::atomic_ref<int32_t> told(p.ptr<int32_t>(kTellTold)[chunk / a.slices]);
    for (int32_t before = told; before > worst && !told.compare_exchange_weak(before, worst);) {
    }
  }
}

// These are the step's own rows and what a draft model's pass makes of them, one row a sequence. A choice that is no
// token becomes 0: what is proposed is verified, whatever it is.
struct DraftPassArgs {
  uint32_t pass, rows_per_seq, vocab;
};
void draft_pass(const DraftPassArgs& a, const Part& p) {
  const auto is_token = [&](int32_t chosen) { return static_cast<uint32_t>(chosen) < a.vocab; };
  const auto i32 = [&](sdk::DraftPassOperand o) { return p.ptr<int32_t>(o); };
  const auto* step_live = p.ptr<const uint32_t>(sdk::kPassStepLive);
  const uint32_t seqs = step_live[sdk::kLiveSeqs];
  for (uint32_t s = 0; s < seqs; ++s) {
    const uint32_t row = s * a.rows_per_seq + a.pass;
    const int32_t slot = i32(sdk::kPassStepSlot)[row];
    if (a.pass > 0) i32(sdk::kPassStepToken)[row] = is_token(i32(sdk::kPassNext)[s]) ? i32(sdk::kPassNext)[s] : 0;
    i32(sdk::kPassToken)[s] = i32(sdk::kPassStepToken)[row];
    i32(sdk::kPassPos)[s] = i32(sdk::kPassStepPos)[row];
    i32(sdk::kPassSlot)[s] = slot;
    i32(sdk::kPassParent)[s] = -1;
    i32(sdk::kPassChoiceRow)[s] = static_cast<int32_t>(row);
    i32(sdk::kPassSeqRow)[s] = i32(sdk::kPassOutRow)[s] = static_cast<int32_t>(s);
    i32(sdk::kPassKvLen)[slot] = i32(sdk::kPassStepKvLen)[slot] + static_cast<int32_t>(a.pass);
  }
  i32(sdk::kPassSeqRow)[seqs] = static_cast<int32_t>(seqs);
  const uint32_t live[4] = {seqs, seqs, seqs, 0}, choice[4] = {step_live[sdk::kLiveRows], seqs, seqs, 0};
  std::copy_n(live, 4, p.ptr<uint32_t>(sdk::kPassLive));
  std::copy_n(choice, 4, p.ptr<uint32_t>(sdk::kPassChoiceLive));
}

void record_gather(tenon_tid x, tenon_tid y, Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y);
  const GatherArgs a{from.dim[1], from.stride[0] / 4, to.stride[0] / 4};
  const std::vector<tenon_operand> operands = sdk::gather_operands(x, y, rec);
  rec.emit<&gather>({.name = "gather", .operands = operands, .chunks = {rec.bounds().out_rows}}, a);
}

void record_pool(tenon_tid x, tenon_tid y, Recorder& rec) {
  const tenon_tensor from = rec.describe(x);
  const PoolArgs a{from.dim[1], from.stride[0] / 4};
  const std::vector<tenon_operand> operands = sdk::pool_operands(x, y, rec);
  const auto chunks = static_cast<uint32_t>((a.columns + kPoolColumns - 1) / kPoolColumns);
  rec.emit<&pool>({.name = "pool", .operands = operands, .chunks = {chunks}}, a);
}

void record_mask(const sdk::MaskOp& op, tenon_tid x, tenon_tid y, Recorder& rec) {
  const tenon_tensor from = rec.describe(x), to = rec.describe(y), masks = rec.describe(op.masks);
  const int64_t vocab = from.dim[1];
  const auto slices = static_cast<uint32_t>((vocab + kSlice - 1) / kSlice), rows = rec.bounds().out_rows;
  const std::vector<tenon_operand> operands = sdk::mask_operands(op, x, y, rec);
  rec.emit<&mask>({.name = "mask", .operands = operands, .chunks = {rows * slices}},
                  MaskArgs{vocab, masks.dim[1], from.stride[0] / 4, to.stride[0] / 4, slices, 0});
}

void record_verify(const sdk::VerifyOp& op, tenon_tid next, tenon_tid accepted, Recorder& rec) {
  const std::vector<tenon_operand> operands = sdk::verify_operands(op, next, accepted, rec);
  const VerifyArgs a{rec.bounds().seqs, static_cast<uint32_t>(rec.describe(op.logits()).dim[1])};
  rec.emit<&verify>({.name = "verify", .operands = operands, .chunks = {1}}, a);
}

void record_tell(const sdk::VerifyOp& verify, std::span<const sdk::Left> left, bool first, Recorder& rec) {
  const tenon_tensor logits = rec.describe(verify.logits());
  std::vector<tenon_operand> operands = sdk::tell_operands(verify, rec);
  const int64_t vocab = logits.dim[1];
  const auto slices = static_cast<uint32_t>((vocab + kSlice - 1) / kSlice), rows = rec.bounds().out_rows;
  const TellArgs a{vocab, logits.stride[0] / 4, slices, first, sdk::add_left(left, rec, operands)};
  tenon_cost cost{};
  if (first) cost.read[sdk::kFixedCost] = static_cast<double>(rows) * static_cast<double>(vocab) * sizeof(float);
  rec.emit<&tell>({.name = "tell", .operands = operands, .chunks = {rows * slices}, .cost = cost}, a);
}

void record_draft_pass(const sdk::DraftPass& longer, Recorder& rec) {
  const tenon_draft_pass& to = longer.pass;
  const std::vector<tenon_operand> operands = sdk::draft_pass_operands(to, rec);
  rec.emit<&draft_pass>({.name = "draft_pass", .operands = operands, .chunks = {1}},
                        DraftPassArgs{to.pass, to.rows_per_seq, longer.tokens()});
}

}  // namespace

tenon_status record_cpu_op(const sdk::VerifyOp& verify, tenon_tid x, tenon_tid y, const tenon_recorder* raw,
                           tenon_reason* why) {
  return sdk::guard(why, [&] {
    Recorder rec(raw);
    const tenon_fop& op = verify.op;
    switch (op.id) {
      case TENON_F_GATHER_ROWS:
        return record_gather(x, y, rec);
      case TENON_F_POOL:
        return record_pool(x, y, rec);
      case TENON_F_MASK:
        return record_mask(sdk::MaskOp(op), x, y, rec);
      case TENON_F_VERIFY:
        record_verify(verify, x, y, rec);
        return sdk::record_by_op(verify.all_left(),
                                 [&](auto left, bool first) { record_tell(verify, left, first, rec); });
      default:
        throw sdk::Refused("device.cpu has no op of the step for id " + std::to_string(op.id));
    }
  });
}

tenon_status record_cpu_draft_pass(const sdk::DraftPass& pass, const tenon_recorder* raw, tenon_reason* why) {
  return sdk::guard(why, [&] {
    Recorder rec(raw);
    record_draft_pass(pass, rec);
  });
}

}  // namespace tenon
