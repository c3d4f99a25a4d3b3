// Says which views can be copied, and records the ops of gather.h: the copy, a ring's first cells, weights by cell.
#include <algorithm>

#include "copied_view.h"
#include "cuda_ops.h"

namespace tenon::flash {
namespace {

using attention::Half;

constexpr int64_t kHalfBytes = 2;

uint32_t rows_of_sequence(const tenon_bounds& b) {
  return std::min(b.rows, std::max(1U, b.rows_per_seq));
}
bool decodes(const tenon_bounds& b) {
  return b.rows_per_seq <= kDecodeRows;
}
uint64_t capacity(const tenon_kv_view& kv) {
  return uint64_t{kv.page_cells} * kv.columns;
}
// Returns how many spots a copied sequence has at most, see gather.cu.
uint64_t most_spots(const tenon_kv_view& kv, const tenon_bounds& b) {
  if (kv.pos_rule == TENON_POS_TABLE) return capacity(kv) + rows_of_sequence(b);
  if (kv.most_spans != 0) return uint64_t{kv.most_spans} * kv.span_cells + rows_of_sequence(b);
  return decodes(b) ? uint64_t{kv.sinks} + kv.window : uint64_t{kv.window} + rows_of_sequence(b) - 1;
}
uint64_t pages_of(const tenon_kv_view& kv, const tenon_bounds& b) {
  const uint64_t cells = kv.pos_rule == TENON_POS_TABLE ? capacity(kv) : most_spots(kv, b);
  return (cells + kCopiedPage - 1) / kCopiedPage;
}
bool has_rows_of_ring(const tenon_kv_view& kv, const tenon_bounds& b) {
  return kv.pos_rule == TENON_POS_RING && !decodes(b);
}
// Returns how many pages there are from the first one of a sequence to that of the next. A ring's sequence sees a window
// before its rows, and what these fill is counted by rows; pages that are not full take up to two more.
uint64_t pages_apart(const tenon_kv_view& kv, const tenon_bounds& b) {
  const uint64_t of_window = (kv.window - 1 + 2 * uint64_t{kCopiedPage - 1}) / kCopiedPage;
  return has_rows_of_ring(kv, b) ? std::min(of_window, pages_of(kv, b)) : pages_of(kv, b);
}
bool row_apart(const tenon_kv_view& kv, const tenon_bounds& b) {
  return kv.pos_rule != TENON_POS_TABLE && decodes(b);
}
uint32_t sequences(const tenon_kv_view& kv, const tenon_bounds& b) {
  return row_apart(kv, b) ? b.rows : std::max(1U, b.seqs);
}

uint64_t all_pages(const tenon_kv_view& kv, const tenon_bounds& b) {
  const uint64_t of_rows = pages_apart(kv, b) < pages_of(kv, b) ? b.rows / kCopiedPage : 0;
  return sequences(kv, b) * pages_apart(kv, b) + of_rows;
}

GatherArgs gather_args(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) {
  const tenon_kv_view& kv = *call.kv;
  const tenon_bounds& b = r.bounds();
  GatherArgs args{};
  static_cast<attention::ViewArgs&>(args) = attention::view_args(a, call, Half{}, r);
  args.row_apart = row_apart(kv, b) ? 1 : 0;
  args.copied = sequences(kv, b);
  args.sequence_rows = args.row_apart != 0 ? 1 : rows_of_sequence(b);
  args.columns = static_cast<uint32_t>(pages_of(kv, b));
  args.room = args.columns * kCopiedPage;
  args.pages_apart = static_cast<uint32_t>(pages_apart(kv, b));
  args.and_rows = args.pages_apart < args.columns ? 1 : 0;
  args.all_pages = static_cast<uint32_t>(all_pages(kv, b));
  args.spots = static_cast<uint32_t>(most_spots(kv, b));
  args.turns = kv.format->rotated == 0 ? 1 : 0;
  args.middle = args.row_apart != 0 ? 0 : static_cast<int32_t>(args.spots / 2);
  args.lists = kv.weight_rows != 0 ? 1 : 0;
  return args;
}

// Returns how the copy lies in memory.
sdk::KvLayout layout_of_copy(const GatherArgs& args) {
  const tenon_format half = half_of(args.kv.k.codec);
  sdk::KvLayout kv = args.kv;
  kv.rule = TENON_POS_LINEAR;
  kv.page_cells = kCopiedPage;
  kv.columns = args.columns;
  kv.sinks = kv.ring = kv.window = kv.flags = 0;
  kv.rotated = 1;
  for (sdk::KvPlane* p : {&kv.k, &kv.v}) *p = plane_of_halves(half, p->dim, kv.heads, kCopiedPage);
  return kv;
}

// Makes the tensors of the copy.
CopiedView make_copy(const GatherArgs& args, const tenon_attn_call& call, sdk::Recorder& r) {
  const int64_t copied = args.copied, columns = args.columns, heads = args.kv.heads, rows = args.rows;
  const auto numbers = [&](std::initializer_list<int64_t> dims) { return r.temp(sdk::tensor(TENON_I32, dims)); };
  CopiedView v{};
  v.all_pages = args.all_pages;
  const auto plane = [&](uint32_t dim) {
    return r.temp(sdk::tensor(half_of(args.kv.k.codec), {v.all_pages, heads, kCopiedPage, int64_t{dim}}));
  };
  v.kv = layout_of_copy(args);
  v.sequences = args.copied;
  v.rows_of_sequence = args.sequence_rows;
  v.room = args.room;
  v.keys = plane(args.kv.k.dim);
  v.values = plane(args.kv.v.dim);
  v.pages = numbers({copied, columns});
  v.live = r.temp(sdk::tensor(TENON_U32, {4}));
  v.pos = numbers({heads, rows});
  v.slot = numbers({rows});
  v.seq_slot = numbers({copied});
  v.seq_row = numbers({copied + 1});
  v.kv_len = numbers({copied});
  v.q = args.turns != 0 ? r.temp(sdk::tensor(TENON_F32, {rows, int64_t{args.q_heads} * args.kv.k.dim})) : call.q;
  if (args.lists != 0) v.cell_of = numbers({copied, heads, args.room});
  v.joins = args.kv.rule == TENON_POS_RING && args.row_apart == 0 && args.kv.sinks != 0;
  if (v.joins || args.lists != 0) v.sums = r.temp(sdk::tensor(TENON_F32, {rows, args.q_heads}));
  return v;
}

// Returns them in the order of GatherOperand.
std::vector<tenon_operand> gather_operands(const GatherArgs& args, const tenon_attn_call& call, const CopiedView& v,
                                           sdk::Recorder& r) {
  std::vector<tenon_operand> operands = attention::view_operands(call, Half{}, r);
  operands[attention::kOut] = operands[attention::kQ];
  operands.resize(kGatherOperands, operands[attention::kQ]);
  const std::pair<GatherOperand, tenon_tid> written[] = {
      {kCopiedKeys, v.keys},        {kCopiedValues, v.values},  {kCopiedPages, v.pages},
      {kCopiedLive, v.live},        {kCopiedPos, v.pos},        {kCopiedSlot, v.slot},
      {kCopiedSeqSlot, v.seq_slot}, {kCopiedSeqRow, v.seq_row}, {kCopiedKvLen, v.kv_len}};
  for (const auto& [operand, tensor] : written) operands[operand] = {tensor, TENON_WRITE};
  if (args.turns != 0) operands[kTurnedQueries] = {v.q, TENON_WRITE};
  if (args.lists != 0) operands[kCellOf] = {v.cell_of, TENON_WRITE};
  if (args.lists != 0) operands[kCellWeights] = {call.kv->weights, TENON_WRITE};
  return operands;
}

}  // namespace

bool can_copy(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b) {
  constexpr uint64_t kMostBytes = uint64_t{8} << 30, kMostBlocks = 65535;
  const uint32_t rows = rows_of_sequence(b);
  if (b.trees != 0 || kv.format->k.codec == TENON_F32 || kv.format->k.codec != kv.format->v.codec) return false;
  if ((kv.flags & ~(uint32_t{TENON_KV_HEADS_APART | TENON_KV_RENUMBERED} | sdk::kKvHadamard)) != 0) return false;
  const uint64_t cells = all_pages(kv, b) * kCopiedPage;
  if (b.rows > kMostBlocks) return false;
  if (cells * a.kv_heads * (a.k_dim + a.v_dim) * kHalfBytes > kMostBytes || sequences(kv, b) > kMostBlocks)
    return false;
  if (kv.pos_rule == TENON_POS_TABLE) {
    return kv.format->rotated != 0 && kv.window == 0 && a.window == 0 && capacity(kv) <= kMostTableCells;
  }
  if (kv.weight_rows != 0) return false;
  if (kv.pos_rule == TENON_POS_LINEAR) return kv.most_spans != 0 && decodes(b) && kv.chosen_rows >= rows;
  // No row of a step takes a cell that another one still sees. In longer steps the rope's indices are those of places,
  // half of them below 0, and none beyond the last one of the rope's table.
  const bool whole = kv.window != 0 && kv.ring >= uint64_t{kv.window} + rows;
  const uint64_t indices = (kv.flags & TENON_KV_RENUMBERED) != 0 ? uint64_t{kv.sinks} + kv.window : b.kv_len;
  const bool in_table = (most_spots(kv, b) + 1) / 2 < indices;
  return whole && (kv.format->rotated != 0 || decodes(b) || in_table);
}

CopiedView record_copy(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) {
  const tenon_kv_view& kv = *call.kv;
  const GatherArgs args = gather_args(a, call, r);
  CopiedView v = make_copy(args, call, r);
  const double bytes = double(args.kv.heads) * (args.kv.k.dim + args.kv.v.dim);
  const double stored = bytes * sdk::kv_element_bytes(args.kv.k.codec);
  tenon_cost cost{};
  if (args.row_apart == 0) {
    cost.read[cuda::kCostPerToken] = stored / args.sequence_rows;
    cost.written[cuda::kCostPerToken] = bytes * kHalfBytes / args.sequence_rows;
  } else {
    const double most = kv.most_spans != 0 ? double(kv.most_spans) * kv.span_cells : args.spots;
    v.most_tokens = std::min<double>(most, r.bounds().kv_len);
    cost.read[cuda::kCostPerRow] = v.most_tokens * stored;
    cost.written[cuda::kCostPerRow] = v.most_tokens * bytes * kHalfBytes;
  }
  const std::vector<tenon_operand> operands = gather_operands(args, call, v, r);
  cuda::emit<gather>(r, {.name = "gather", .operands = operands, .chunks = {}, .cost = cost}, args);

  if (v.joins) {
    const Half first{.joining = attention::kLeaves, .hidden = 0, .sums = v.sums};
    std::vector<tenon_operand> of_first = attention::view_operands(call, first, r);
    of_first.resize(kFirstOperands);
    of_first[kLearnedSinks] = {args.sinks != 0 ? sdk::sinks_of(call.pro) : call.q, TENON_READ};
    cuda::emit<attend_to_first>(r, {.name = "attention_first", .operands = of_first, .chunks = {}},
                                attention::view_args(a, call, first, r));
  }
  if (kv.pos_rule == TENON_POS_RING && args.row_apart == 0) {
    v.window = a.window != 0 ? std::min(a.window, kv.window) : kv.window;
  }
  return v;
}

void record_weights(const tenon_attn& a, const tenon_attn_call& call, const CopiedView& copy, sdk::Recorder& r) {
  const tenon_kv_view& kv = *call.kv;
  const attention::ViewArgs view = attention::view_args(a, call, Half{}, r);
  const CellWeightArgs args{.q_row = view.q_row,
                            .q_heads = view.q_heads,
                            .group = view.group,
                            .heads = view.kv.heads,
                            .dim = view.kv.k.dim,
                            .codec = copy.kv.k.codec,
                            .rows = view.rows,
                            .seqs = copy.sequences,
                            .room = copy.room,
                            .capacity = static_cast<uint32_t>(capacity(kv)),
                            .weight_rows = kv.weight_rows,
                            .scale = view.scale,
                            .softcap = view.softcap};
  tenon_operand operands[kCellWeightOperands];
  const auto read = [&](CellWeightOperand i, tenon_tid tensor) { operands[i] = {tensor, TENON_READ}; };
  read(kWeightQuery, call.q);
  read(kWeightKeys, copy.keys);
  read(kWeightCellOf, copy.cell_of);
  read(kWeightPos, copy.pos);
  read(kWeightSums, copy.sums);
  read(kWeightLive, r.step(TENON_STEP_LIVE));
  read(kWeightSeqSlot, r.step(TENON_STEP_SEQ_SLOT));
  read(kWeightSeqRow, r.step(TENON_STEP_SEQ_ROW));
  operands[kWeights] = {kv.weights, TENON_READ | TENON_WRITE};
  cuda::emit<cell_weights>(r, {.name = "weights", .operands = operands, .chunks = {}}, args);
}

}  // namespace tenon::flash
