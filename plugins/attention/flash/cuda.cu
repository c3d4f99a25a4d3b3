// Chooses the kernels that do a layer on a GPU (best()) and records their ops. A recording sets up the arguments and
// operands of all kernels alike, then takes what was claimed of the prologue into them, then emits the ops: decoding by
// itself; preparing, decoding for sequences of few rows and prefill; or one of these over a copy of the view.
// Invariant: what a variant claims is what its recording finds in the prologue.
#include <algorithm>
#include <vector>

#include "../exact/exact.cuh"
#include "copied_view.h"
#include "cuda_ops.h"
#include "halves_result.cuh"
#include "plugin.h"
#include "prefill.cuh"
#include "unpack_heads.h"

namespace tenon::flash {
namespace {

// A claim's variant says which kernels do a layer.
enum Variant : uint32_t { kExact, kDecode, kPrefill, kCopied };

// Cuts of positions are multiples of this share of the parameter `split`.
constexpr uint32_t kGranulesOfSplit = 4, kLeastGranule = 64;

constexpr size_t kHalfBytes = 2;

// Returns the fastest kernels that there are for a layer. Views beyond plain chains are copied first; only exact has what
// a step with trees needs. Where spans are chosen, prefill takes the sequences whose rows see all.
Variant best(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b, uint64_t shared_bytes) {
  const tenon_kv_plane &k = kv.format->k, &v = kv.format->v;
  const bool decodes = b.rows_per_seq <= kDecodeRows, scaled = sdk::is_scaled_codec(k.codec);
  if (b.trees != 0 || k.codec != v.codec) return kExact;
  const uint32_t most = shared_bytes > decode_shared_bytes(kMostDim) ? kMostDim : kMostDim / 2;
  const auto fits = [&](uint32_t whole) {
    return std::max(a.k_dim, a.v_dim) <= most && a.k_dim % whole == 0 && a.v_dim % whole == 0;
  };
  const bool sees_all = !decodes && kv.chosen_rows == kDecodeRows, groups = kv.key_group % kKeysOfGroup == 0;
  if (!sdk::kv_unread(kv, sdk::kReadsScales | sdk::kReadsRotated | sdk::kReadsRecent |
                              (groups ? uint32_t{sdk::kReadsChannels} : 0) |
                              (sees_all ? uint32_t{sdk::kReadsSpans} : 0))
           .empty()) {
    return fits(8) && can_copy(a, kv, b) ? kCopied : kExact;
  }
  if (scaled ? k.scale != TENON_F16 || v.scale != TENON_F16 : k.codec != TENON_F16 && k.codec != TENON_BF16) {
    return kExact;
  }
  const uint32_t whole = !scaled ? 8 : k.codec == TENON_U8 ? 32 : 16;  // 16 bytes have so many elements
  return !fits(whole) ? kExact : decodes ? kDecode : kPrefill;
}

// This says who appends a step's keys and values: the cache's own op, or these kernels, as they are or in codes.
enum class Appends { kCache, kPlain, kCodes };

// Heads are coded by the warp that has the whole of them, in steps where a team is a block.
Appends who_appends(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b, Variant variant) {
  if (variant == kExact || kv.recent_view != nullptr) return Appends::kCache;
  if (kv.format->k.scale == 0) return Appends::kPlain;
  const bool whole =
      a.k_dim == a.v_dim && (can_rotate(a.k_dim) || ((kv.flags & sdk::kKvHadamard) == 0 && a.k_dim == kMostDim));
  return variant == kDecode && b.rows <= kSteadyRows && kv.key_group == 0 && whole ? Appends::kCodes : Appends::kCache;
}

// Returns how many of the last ops of a chain the fast kernels do: [[[QK_NORM] ROPE] KV_APPEND] [sinks]. Before codes
// they norm no heads, and turn only whole ones.
uint32_t claimed(const tenon_attn& a, Appends appends) {
  std::vector<tenon_fop> ops = sdk::ops_of(a.pro);
  const uint32_t sinks = !ops.empty() && ops.back().id == sdk::kAttentionSinks ? 1 : 0;
  ops.resize(ops.size() - sinks);
  const auto is = [&](size_t from_end, tenon_id id) {
    return ops.size() > from_end && ops[ops.size() - 1 - from_end].id == id;
  };
  if (appends == Appends::kCache || !is(0, TENON_F_KV_APPEND)) return sinks;
  if (!is(1, TENON_F_ROPE)) return sinks + 1;
  if (appends == Appends::kPlain) return sinks + (is(2, TENON_F_QK_NORM) ? 3 : 2);
  return static_cast<uint32_t>(sdk::RopeOp(ops[ops.size() - 2]).rotated) == a.k_dim ? sinks + 2 : sinks;
}

// Says whether the kernels leave the result in a.out_format: in halves, where they alone make it.
bool leaves(const tenon_attn& a, const tenon_kv_view& kv, Variant variant) {
  const tenon_format element = sdk::element_of(a.out_format);
  return (variant == kDecode || variant == kPrefill) && kv.recent_view == nullptr && kv.most_spans == 0 &&
         (kv.flags & sdk::kKvHadamard) == 0 && a.v_dim % HalvesResult::kStretch == 0 &&
         (element == TENON_F16 || element == TENON_BF16) && !sdk::is_normed(a.out_format);
}

// These numbers of the GPU decide what is recorded.
struct Gpu {
  uint32_t units, arch, granule;
};

struct Recording {
  const tenon_attn& a;
  const tenon_attn_call& call;
  const attention::Half& half;
  sdk::Recorder& r;
  GpuArgs args{};
  std::vector<tenon_operand> operands{};  // by ChainOperand and GpuOperand
  double most_tokens = 0;                 // a row reads so many at most, whatever its context has

  void set_args() {
    static_cast<attention::ViewArgs&>(args) = attention::view_args(a, call, half, r);
    const tenon_bounds& b = r.bounds();
    const tenon_tensor out = r.describe(call.out);
    args.out_order = cuda::order_of(out);
    args.out = out.format == TENON_F32 ? Out::kF32 : out.format == TENON_BF16 ? Out::kBf16 : Out::kF16;
    args.rows_per_seq = std::min(b.rows, std::max(1u, b.rows_per_seq));
    args.single = args.rows_per_seq == 1 ? 1 : 0;
    args.seqs = std::max(1u, b.seqs);
    args.kv_len = static_cast<uint32_t>(std::min<uint64_t>(b.kv_len, args.kv.capacity()));
    // The planes have so many pages, as far as their tensors reach.
    const tenon_tensor plane = r.describe(call.kv->k);
    args.kv_pages = static_cast<uint32_t>(plane.dim[0] * plane.stride[0] / args.kv.k.page);
  }

  void set_operands() {
    operands = attention::chain_operands(call, half, r);
    operands.resize(kOperands, operands[kQ]);
    allow_in_cache(TENON_READ_OLD);
  }
  // Adds an access to the planes of the cache and to their scales.
  void allow_in_cache(uint32_t access) {
    for (const uint32_t i : {kKeyPlane, kValuePlane}) operands[i].access |= access;
    if (call.kv->k_scale == 0) return;
    for (const uint32_t i : {kKeyScales, kValueScales}) operands[i].access |= access;
  }

  void set_prologue() {
    attention::check_claimed(call, {TENON_F_QK_NORM, TENON_F_KV_APPEND});
    for (const tenon_fop& op : sdk::ops_of(call.pro)) {
      if (op.id == TENON_F_QK_NORM) {
        const sdk::QkNormOp norm(op);
        args.normed = 1;
        args.eps = norm.eps;
        operands[kQWeight] = {norm.q_weight, TENON_READ};
        operands[kKWeight] = {norm.k_weight, TENON_READ};
      } else if (op.id == TENON_F_KV_APPEND) {
        args.append = 1;
        args.rotates = (call.kv->flags & sdk::kKvHadamard) != 0 ? 1 : 0;
        allow_in_cache(TENON_WRITE_NEW);
      } else if (op.id == sdk::kAttentionSinks) {
        operands[kSinks] = {sdk::sinks_of(call.pro), TENON_READ};
      }
    }
  }

  // Returns how many columns K and V have in a row.
  double kv_columns() const { return double(a.kv_heads) * (args.kv.k.dim + args.kv.v.dim); }

  // So many rows, rows_sharing, read the same tokens together. The cost is that of the heads of args.kv.
  tenon_cost cost(double rows_sharing) const {
    const double all = half.joining == attention::kLeaves ? std::min(a.window, args.kv_len) : 0;
    const tenon_cost of_all =
        attention::attention_cost(a,
                                  {.cache_bytes = kv_columns() * sdk::kv_element_bytes(args.kv.k.codec) / rows_sharing,
                                   .most = most_tokens != 0 ? most_tokens : all},
                                  args.out == Out::kF32 ? sizeof(float) : kHalfBytes);
    return attention::share_of(of_all, double(args.kv.heads) / a.kv_heads);
  }

  void decode_step(const Gpu& gpu) {
    set_splits(args, gpu.units, gpu.arch, gpu.granule);
    tenon_cost c = cost(args.rows_per_seq);
    if (args.append != 0) {
      c.read[cuda::kCostPerRow] += kv_columns() * sizeof(float);
      c.written[cuda::kCostPerRow] += kv_columns() * sdk::kv_element_bytes(args.kv.k.codec);
    }
    cuda::emit<decode>(r,
                       {.name = "attention",
                        .operands = operands,
                        .chunks = {},
                        .cost = c,
                        .scratch_bytes = decode_scratch_bytes(args),
                        .zeroed_bytes = decode_zeroed_bytes(args)},
                       args);
  }

  void prefill_step(const Gpu& gpu) {
    const bool copied = args.copied_rows != 0, spans = !copied && call.kv->most_spans != 0;
    args.few_rows = args.seqs > 1 || spans ? kDecodeRows : 0;
    const tenon_format element = half_of(args.kv.k.codec);
    const tenon_tid converted = r.temp(sdk::tensor(element, {args.rows, int64_t{args.q_heads} * args.kv.k.dim}));
    const double columns = double(args.q_heads) * args.kv.k.dim + (args.append != 0 ? kv_columns() : 0);
    tenon_cost c{};
    c.read[cuda::kCostPerRow] = columns * sizeof(float);
    c.written[cuda::kCostPerRow] = columns * tenon_format_block(element).bytes;
    operands[kConverted] = {converted, TENON_WRITE};
    const bool wgmma = can_prefill_wgmma(args, gpu.arch);
    if (args.few_rows != 0) {
      args.tile_rows = wgmma ? kWgmmaTileRows : kTileRows;
      const int64_t listed = 1 + most_tiles(args, args.tile_rows);
      operands[kTiles] = {r.temp(sdk::tensor(TENON_I32, {listed, 4})), TENON_WRITE};
    }
    std::vector<tenon_operand> own = operands;
    own[kOut] = own[kSums] = own[kQ];
    if (args.append == 0) own[kKeyPlane] = own[kValuePlane] = own[kQ];
    cuda::emit<prepare>(r, {.name = "prepare", .operands = own, .chunks = {}, .cost = c}, args);
    operands[kTiles].access = TENON_READ;

    operands[kKeyPlane].access = operands[kValuePlane].access = TENON_READ | TENON_READ_OLD;
    if (spans) {
      exact::record_half(a, call, half, r, args.few_rows);
    } else if (args.few_rows != 0) {
      decode_few(gpu);
    }
    operands[kKeyPlane].access = operands[kValuePlane].access = TENON_READ;
    operands[kConverted] = {converted, TENON_READ};
    const tenon_tid q = operands[kQ].tensor;
    for (tenon_operand& o : operands) {
      if (o.tensor == q) o = operands[kConverted];  // Q itself is not needed any more
    }
    if (args.few_rows != 0) {  // the other sequences' rows stay
      operands[kOut].access |= TENON_READ;
      operands[kSums].access |= TENON_READ;
    }
    const uint32_t heads = wgmma && sdk::is_scaled_codec(args.kv.k.codec) ? heads_at_once(args, gpu.units) : 0;
    if (heads != 0) return unpacked_step(heads);
    const sdk::OpSpec spec = prefill_spec();
    if (wgmma) {
      cuda::emit<prefill_wgmma>(r, spec, args, TENON_OP_FOREIGN);  // it takes more than half a multiprocessor
    } else {
      cuda::emit<prefill>(r, spec, args);
    }
  }
  sdk::OpSpec prefill_spec() const {
    return {.name = "attention",
            .operands = operands,
            .chunks = {},
            .cost = attention::cost_of_out_rows(cost(args.rows), args, r.bounds())};
  }

  // Records attention over codes, so many KV heads at a time, which become fp16 before (unpack_heads.h).
  void unpacked_step(uint32_t heads) {
    UnpackArgs unpack{.cache = args, .first_head = 0, .heads = heads, .room = unpacked_room(args)};
    const auto plane = [&](uint32_t dim) {
      return r.temp(sdk::tensor(TENON_F16, {int64_t{args.seqs}, int64_t{heads}, int64_t{unpack.room}, int64_t{dim}}));
    };
    const tenon_tid keys = plane(args.kv.k.dim), values = plane(args.kv.v.dim);
    const tenon_tid pages = r.temp(sdk::tensor(TENON_I32, {r.describe(call.kv->pages).dim[0]}));
    std::vector<tenon_operand> of_unpack = operands;
    for (const uint32_t i : std::initializer_list<uint32_t>{kQ, kOut, kSums, kTiles, kConverted})
      of_unpack[i] = operands[kLive];
    of_unpack.insert(of_unpack.end(), {{keys, TENON_WRITE}, {values, TENON_WRITE}, {pages, TENON_WRITE}});
    const std::pair<attention::ChainOperand, tenon_tid> of_copy[] = {
        {kKeyPlane, keys}, {kValuePlane, values}, {kKeyScales, keys}, {kValueScales, values}, {kPages, pages}};
    for (const auto& [operand, tensor] : of_copy) operands[operand] = {tensor, TENON_READ};
    args.kv_pages = args.seqs;
    for (; unpack.first_head < unpack.cache.kv.heads; unpack.first_head += heads) {
      unpack.heads = std::min(heads, unpack.cache.kv.heads - unpack.first_head);
      args.kv = unpacked_layout(unpack.cache, unpack.heads);
      args.first_head = unpack.first_head * args.group;
      tenon_cost c{};
      const double columns = double(unpack.heads) * (args.kv.k.dim + args.kv.v.dim) / args.rows;
      c.read[cuda::kCostPerToken] = columns * sdk::kv_element_bytes(unpack.cache.kv.k.codec);
      c.written[cuda::kCostPerToken] = columns * kHalfBytes;
      cuda::emit<unpack_heads>(r, {.name = "unpack", .operands = of_unpack, .chunks = {}, .cost = c}, unpack);
      cuda::emit<prefill_wgmma>(r, prefill_spec(), args, TENON_OP_FOREIGN);
      operands[kOut].access |= TENON_READ;  // the columns of other heads stay
      operands[kSums].access |= TENON_READ;
    }
  }

  // Records attention over a copy of the view.
  void copied_step(const Gpu& gpu) {
    const CopiedView copy = record_copy(a, call, r);
    most_tokens = copy.most_tokens;
    args.kv = copy.kv;
    args.kv_pages = copy.all_pages;
    args.kv_len = copy.room;
    args.seqs = copy.sequences;
    args.rows_per_seq = copy.rows_of_sequence;
    args.window = copy.window;
    args.rotated = 0;        // the copy's keys and queries are turned
    args.only_out_rows = 0;  // the copy's rows are others
    args.copied_rows = args.rows;
    args.joining = copy.joins ? attention::kJoins : copy.sums != 0 ? attention::kLeaves : attention::kAlone;
    const std::pair<attention::ChainOperand, tenon_tid> copied[] = {
        {kQ, copy.q},          {kKeyPlane, copy.keys},    {kValuePlane, copy.values},
        {kPages, copy.pages},  {kLive, copy.live},        {kPos, copy.pos},
        {kSlot, copy.slot},    {kSeqSlot, copy.seq_slot}, {kSeqRow, copy.seq_row},
        {kKvLen, copy.kv_len}, {kRope, copy.q},           {kKeyScales, copy.q},
        {kValueScales, copy.q}};
    for (const auto& [operand, tensor] : copied) operands[operand] = {tensor, TENON_READ};
    args.q_row = r.floats_of_row(copy.q);
    operands[kOut].access = copy.joins ? TENON_READ | TENON_WRITE : TENON_WRITE;
    operands[kSums] = copy.sums == 0
                          ? operands[kQ]
                          : tenon_operand{copy.sums, copy.joins ? uint32_t{TENON_READ} : uint32_t{TENON_WRITE}};
    if (args.rows_per_seq <= kDecodeRows) {
      decode_step(gpu);
    } else {
      prefill_step(gpu);
    }
    if (copy.cell_of != 0) record_weights(a, call, copy, r);
  }

  // Records decoding for the sequences that prefill passes over. Their keys and values are in the cache. Most of them
  // have one row: that is what blocks are shared out for.
  void decode_few(const Gpu& gpu) {
    GpuArgs few = args;
    few.append = 0;
    few.rows_per_seq = 1;
    set_splits(few, gpu.units, gpu.arch, gpu.granule);
    few.rows_per_seq = few.few_rows;
    operands[kConverted] = operands[kQ];
    cuda::emit<decode>(r,
                       {.name = "attention_few",
                        .operands = operands,
                        .chunks = {},
                        .scratch_bytes = decode_scratch_bytes(few),
                        .zeroed_bytes = decode_zeroed_bytes(few)},
                       few);
  }
};

}  // namespace

GpuPointers pointers(const GpuArgs& a, const cuda::Launch& l) {
  GpuPointers p{};
  p.q = l.ptr<float>(kQ);
  p.out = l.ptr<float>(kOut);
  p.keys = l.ptr<void>(kKeyPlane);
  p.values = l.ptr<void>(kValuePlane);
  p.pages = l.ptr<const int32_t>(kPages);
  p.live = l.ptr<const uint32_t>(kLive);
  p.pos = l.ptr<const int32_t>(kPos);
  p.slot = l.ptr<const int32_t>(kSlot);
  p.seq_slot = l.ptr<const int32_t>(kSeqSlot);
  p.seq_row = l.ptr<const int32_t>(kSeqRow);
  p.kv_len = l.ptr<const int32_t>(kKvLen);
  p.rope = l.ptr<const float>(kRope);
  if (a.normed != 0) {
    p.q_weight = l.ptr<const float>(kQWeight);
    p.k_weight = l.ptr<const float>(kKWeight);
  }
  if (a.sinks != 0) p.sinks = l.ptr<const float>(kSinks);
  p.converted = l.ptr<void>(kConverted);
  p.key_scales = l.ptr<void>(kKeyScales);
  p.value_scales = l.ptr<void>(kValueScales);
  if (a.joining != attention::kAlone) p.sums = l.ptr<float>(kSums);
  if (a.tile_rows != 0) p.tiles = l.ptr<int4>(kTiles);
  if (a.only_out_rows != 0) p.out_row = l.ptr<const int32_t>(kOutRow);
  return p;
}

static_assert(Flash::kRowInvariantMax == kSteadyRows);

Flash::Flash(const sdk::Params& params, const sdk::Env& env)
    : split_(static_cast<uint32_t>(params.integer("split"))),
      arch_(env.device().arch),
      units_(env.device().units),
      shared_(env.device().shared_per_unit) {}

tenon_claim Flash::claim(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b) const {
  auto claim = exact::claim(a, kv, b);
  claim.variant = best(a, kv, b, shared_);
  const auto variant = static_cast<Variant>(claim.variant);
  if (variant == kDecode || variant == kPrefill) claim.pro = claimed(a, who_appends(a, kv, b, variant));
  if (a.out_format > TENON_F32 && !leaves(a, kv, variant)) throw sdk::Refused("results here are f32");
  return claim;
}

tenon_kv_format Flash::preferred_format() const {
  return sdk::plain_kv_format(TENON_F16);
}

void Flash::record(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r) const {
  const auto record = [&](const tenon_attn_call& own_call) {
    attention::record_halves(a, own_call, r, [&](const tenon_attn& own, const tenon_attn_call& c, const Half& half) {
      record_half(own, c, half, r);
    });
  };
  // Kernels that append rotated heads rotate queries and results, too.
  const std::vector<tenon_fop> ops = sdk::ops_of(call.pro);
  const bool appends =
      std::any_of(ops.begin(), ops.end(), [](const tenon_fop& op) { return op.id == TENON_F_KV_APPEND; });
  if (appends) return record(call);
  attention::record_rotated_cuda(a, call, r, record);
}

void Flash::record_half(const tenon_attn& a, const tenon_attn_call& call, const Half& half, sdk::Recorder& r) const {
  // The claim is about the view's own cells.
  const uint32_t variant =
      half.joining == attention::kLeaves ? best(a, *call.kv, r.bounds(), shared_) : call.claim->variant;
  if (variant == kExact) return exact::record_half(a, call, half, r);
  Recording recording{a, call, half, r};
  recording.set_args();
  recording.set_operands();
  recording.set_prologue();
  const Gpu gpu{units_, arch_, std::max(kLeastGranule, split_ / kGranulesOfSplit)};
  if (variant == kCopied) {
    recording.copied_step(gpu);
  } else if (variant == kDecode) {
    recording.decode_step(gpu);
  } else {
    recording.prefill_step(gpu);
  }
}

}  // namespace tenon::flash

TENON_PLUGIN(tenon::flash::Flash);
