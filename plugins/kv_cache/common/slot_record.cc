// This records the ops of a cache in pages: where a layer's cells are, what a step appends, copies in other codecs,
// survivors of trees.
#include <algorithm>
#include <bit>

#include "ops.h"
#include "slot_cache.h"

namespace tenon::slot_cache {
namespace {

using sdk::Failed;
using sdk::Recorder;
using sdk::Refused;

enum Which : uint32_t { kKeys, kValues, kKeyScales, kValueScales, kTailKeys, kTailValues };

// Copies have these formats: plain, keys after rope or before it.
constexpr tenon_kv_format kPlain[] = {sdk::kv_format(TENON_F32),
                                      sdk::kv_format(TENON_F16),
                                      sdk::kv_format(TENON_BF16),
                                      sdk::kv_format(TENON_F32, TENON_FORMAT_NONE, false),
                                      sdk::kv_format(TENON_F16, TENON_FORMAT_NONE, false),
                                      sdk::kv_format(TENON_BF16, TENON_FORMAT_NONE, false)};

}  // namespace

const SlotCache::Plane& SlotCache::plane(uint32_t layer, uint32_t which) const {
  const size_t i = size_t{layer} * planes_a_layer() + which;
  if (i >= planes_.size()) {
    throw Failed("layer " + std::to_string(layer) + " of a cache of " + std::to_string(layers()) + " layers");
  }
  return planes_[i];
}

namespace {

// Returns a plane of pages as a tensor (page, head, cell, dim), and its strides in the order of a view.
tenon_tensor plane_tensor(tenon_format format, uint32_t pages, uint32_t heads, uint32_t cells, uint32_t dim) {
  return sdk::tensor(format, {pages, heads, cells, sdk::kv_row_stored(format, dim)});
}
void set_strides(const tenon_tensor& t, int64_t (&stride)[3]) {
  stride[0] = t.stride[0];
  stride[1] = t.stride[2];
  stride[2] = t.stride[1];
}

}  // namespace

sdk::KvLayout SlotCache::rule() const {
  return sdk::kv_layout(prototype(1, 1, 1, groups_.front(), cells_));
}

void SlotCache::set_planes(tenon_kv_view& view, uint32_t layer, uint32_t first, const tenon_tid* store,
                           Recorder& r) const {
  const Group& group = groups_[plane(layer, first).group];
  const auto slice = [&](uint32_t which, int64_t(&stride)[3]) {
    const Plane& p = plane(layer, which);
    const tenon_tensor t = plane_tensor(p.format, group.pages, p.heads, static_cast<uint32_t>(page_rows(p)), p.dim);
    set_strides(t, stride);
    return r.slice(store[0], t, p.offset);
  };
  view.k = slice(first, view.k_stride);
  view.v = slice(first + 1, view.v_stride);
  if (first == kKeys && scaled()) {
    view.k_scale = slice(kKeyScales, view.ks_stride);
    view.v_scale = slice(kValueScales, view.vs_stride);
  }
  view.pages = r.slice(store[1], sdk::tensor(TENON_I32, {slots_, group.columns}), group.table * sizeof(int32_t));
  view.place = ring() ? r.slice(store[2], sdk::tensor(TENON_I32, {r.bounds().rows}), 0) : r.step(TENON_STEP_PLACE);
}

tenon_kv_view SlotCache::view(uint32_t layer, const tenon_tid* store, Recorder& r) const {
  const Plane &k = plane(layer, kKeys), &v = plane(layer, kValues);
  tenon_kv_view view = prototype(k.heads, k.dim, v.dim, groups_[k.group], cells_);
  set_planes(view, layer, kKeys, store, r);
  if (policy_.tail != 0) join_tail(view, tail_view(layer, store, r));
  return view;
}

tenon_kv_view SlotCache::tail_view(uint32_t layer, const tenon_tid* store, Recorder& r) const {
  const Plane &k = plane(layer, kTailKeys), &v = plane(layer, kTailValues);
  tenon_kv_view view = prototype(k.heads, k.dim, v.dim, groups_[k.group], cells_);
  make_exact(view, kTailFormat);
  set_planes(view, layer, kTailKeys, store, r);
  return view;
}

void SlotCache::record_begin(const tenon_tid* store, Recorder& r) const {
  if (!ring()) return;
  const tenon_tid place = r.slice(store[2], sdk::tensor(TENON_I32, {r.bounds().rows}), 0);
  const std::vector<tenon_operand> operands =
      sdk::operands_by(kPlaceOperands, {{kPlaces, place, TENON_WRITE},
                                        {kOrders, r.step(TENON_STEP_PLACE), TENON_READ},
                                        {kPlaceLive, r.step(TENON_STEP_LIVE), TENON_READ}});
  emit_place(r, operands, {rule(), r.bounds().rows});
}

void SlotCache::record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, Recorder& r) const {
  const tenon_kv_view to = view(layer, store, r);
  AppendArgs args{sdk::kv_layout(to), r.describe(k).stride[0], r.describe(v).stride[0], cells_, simd_, r.bounds().rows};
  std::vector<tenon_operand> operands = append_operands(to, k, v, r);
  const auto columns = static_cast<double>(to.heads) * (to.k_dim + to.v_dim);
  tenon_cost cost{};
  cost.read[sdk::kCostPerRow] = columns * sizeof(float);
  cost.written[sdk::kCostPerRow] = columns * sdk::kv_element_bytes(format_.k.codec);
  if (const tenon_kv_view* tail = to.recent_view; tail != nullptr) {
    operands.resize(kAppendWithTail);
    operands[kAppendTailKeys] = {tail->k, TENON_WRITE_NEW};
    operands[kAppendTailValues] = {tail->v, TENON_WRITE_NEW};
    operands[kAppendTailPages] = {tail->pages, TENON_READ};
    args.tail = sdk::kv_layout(*tail);
    args.has_tail = 1;
    cost.written[sdk::kCostPerRow] += columns * sdk::kv_element_bytes(tail->format->k.codec);
  }
  if (policy_.key_group != 0 && append_codes_groups(r.bounds())) {
    args.codes_groups = 1;
    operands[kAppendTailKeys].access |= TENON_READ;
  }
  emit_append(r, operands, cost, args);
  if (policy_.key_group != 0 && args.codes_groups == 0) record_key_groups(to, r);
}

void SlotCache::record_key_groups(const tenon_kv_view& to, Recorder& r) const {
  const tenon_kv_view& tail = *to.recent_view;
  const std::vector<tenon_operand> operands =
      sdk::operands_by(kKeyGroupOperands, {{kGroupTailKeys, tail.k, TENON_READ},
                                           {kGroupTailPages, tail.pages, TENON_READ},
                                           {kGroupKeys, to.k, TENON_WRITE_NEW},
                                           {kGroupChannels, to.k_scale, TENON_WRITE_NEW},
                                           {kGroupPages, to.pages, TENON_READ},
                                           {kGroupLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                           {kGroupPlace, to.place, TENON_READ},
                                           {kGroupSlot, r.step(TENON_STEP_SLOT), TENON_READ}});
  // A row codes a share of a group.
  const auto columns = static_cast<double>(to.heads) * to.k_dim;
  tenon_cost cost{};
  cost.read[sdk::kCostPerRow] = columns * sdk::kv_element_bytes(tail.format->k.codec);
  cost.written[sdk::kCostPerRow] = columns * sdk::kv_element_bytes(format_.k.codec);
  emit_key_groups(r, operands, cost, {sdk::kv_layout(to), sdk::kv_layout(tail), r.bounds().rows});
}

tenon_kv_view SlotCache::record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                                        Recorder& r) const {
  const auto* const plain = std::find_if(std::begin(kPlain), std::end(kPlain), [&](const tenon_kv_format& f) {
    return f.k.codec == want.k.codec && f.v.codec == want.v.codec && f.rotated == format_.rotated;
  });
  if (plain == std::end(kPlain) || want.k.scale != TENON_FORMAT_NONE || want.v.scale != TENON_FORMAT_NONE) {
    throw Refused("a copy is made in one of f32, f16 and bf16 for keys and values");
  }
  if (want.rotated != format_.rotated) throw Refused("a copy has its keys as the cache has them, before or after rope");
  const tenon_kv_view from = view(layer, store, r);
  tenon_kv_view to = record_copy(from, plane(layer, kKeys).group, *plain, store, r);
  if (from.recent_view != nullptr) {
    join_tail(to, record_copy(*from.recent_view, plane(layer, kTailKeys).group, *plain, store, r));
  }
  return to;
}

tenon_kv_view SlotCache::record_copy(const tenon_kv_view& from, uint32_t group, const tenon_kv_format& plain,
                                     const tenon_tid* store, Recorder& r) const {
  tenon_kv_view to = from;
  const tenon_format codec = plain.k.codec;
  const uint32_t cells = ring() ? cells_ : std::min(cells_, r.bounds().kv_len);
  const tenon_tensor kt = plane_tensor(codec, slots_, to.heads, cells, to.k_dim);
  const tenon_tensor vt = plane_tensor(codec, slots_, to.heads, cells, to.v_dim);
  make_exact(to, plain);
  to.k = r.temp(kt);
  to.v = r.temp(vt);
  to.k_scale = to.v_scale = 0;
  set_strides(kt, to.k_stride);
  set_strides(vt, to.v_stride);
  if (paged() || groups_[group].window != 0) {  // the copy has one page a slot
    to.page_cells = std::bit_ceil(cells);
    to.columns = 1;
    to.pages = paged() ? store[2] : r.slice(store[1], sdk::tensor(TENON_I32, {slots_, 1}), 0);
  }
  for (auto* stride : {&to.ks_stride, &to.vs_stride}) std::fill(std::begin(*stride), std::end(*stride), 0);
  const DequantArgs args{sdk::kv_layout(from), sdk::kv_layout(to), cells, r.bounds().seqs, simd_};
  const std::vector<tenon_operand> operands = dequant_operands(from, to, r);
  const auto columns = static_cast<double>(to.heads) * (to.k_dim + to.v_dim);
  const double shared = std::max<uint32_t>(1, r.bounds().rows_per_seq);  // one copy serves so many rows
  tenon_cost cost{};
  cost.read[sdk::kCostPerToken] = columns * sdk::kv_element_bytes(from.format->k.codec) / shared;
  cost.written[sdk::kCostPerToken] = columns * tenon_format_block(codec).bytes / shared;
  emit_dequant(r, operands, cost, args);
  return to;
}

void SlotCache::record_commit(const tenon_tid* store, Recorder& r) const {
  for (uint32_t layer = 0; layer < layers(); ++layer) {
    const tenon_kv_view v = view(layer, store, r);
    record_survivors(v, r);
    if (v.recent_view != nullptr) record_survivors(*v.recent_view, r);
  }
}

void SlotCache::record_survivors(const tenon_kv_view& v, Recorder& r) const {
  constexpr uint32_t kBoth = TENON_READ | TENON_WRITE;
  const std::vector<tenon_operand> operands =
      sdk::operands_by(kCommitOperands, {{kCommitKeys, v.k, kBoth},
                                         {kCommitValues, v.v, kBoth},
                                         {kCommitKeyScales, v.k_scale != 0 ? v.k_scale : v.k, kBoth},
                                         {kCommitValueScales, v.v_scale != 0 ? v.v_scale : v.v, kBoth},
                                         {kCommitPages, v.pages, TENON_READ},
                                         {kCommitLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                         {kCommitPlace, v.place, TENON_READ},
                                         {kCommitSeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                         {kCommitSeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                         {kCommitAccepted, r.step(TENON_STEP_ACCEPTED), TENON_READ},
                                         {kCommitSurvivor, r.step(TENON_STEP_SURVIVOR), TENON_READ}});
  const tenon_kv_plane &k = v.format->k, &value = v.format->v;
  tenon_cost cost{};
  cost.read[sdk::kCostPerRow] = cost.written[sdk::kCostPerRow] =
      static_cast<double>(v.heads) * (v.k_dim + v.v_dim) * sdk::kv_element_bytes(k.codec);
  emit_commit(r, operands, cost,
              {sdk::kv_layout(v),
               r.bounds().seqs,
               tenon_format_block(k.scale).bytes,
               {static_cast<uint32_t>(sdk::kv_row_bytes(k.codec, v.k_dim)),
                static_cast<uint32_t>(sdk::kv_row_bytes(value.codec, v.v_dim))}});
}

}  // namespace tenon::slot_cache
