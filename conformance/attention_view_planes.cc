// This makes the planes of the views that attention_views.cc drives attention over: random keys and values as the codec
// has them, and NaN wherever no row may look.
#include <algorithm>
#include <limits>

#include "conformance/attention_views.h"
#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/recorder.h"

namespace tenon::conformance {

// Makes a view of the same cells in f16, in as few pages as hold a window of so many tokens and the step's rows:
// columns name them in turn, so that what is older than that is overwritten.
void ViewHost::make_tail() {
  static constexpr tenon_kv_format kFormat = sdk::kv_format(TENON_F16);
  const uint32_t turn = std::min((case_.recent + kFirst[1] + kPageCells - 1) / kPageCells, kColumns);
  for (uint32_t i = 0; i < kSlots * kColumns; ++i) {
    tail_pages_.push_back(static_cast<int32_t>(i / kColumns * turn + i % kColumns % turn));
  }
  tail_ = view_;
  tail_.format = &kFormat;
  tail_.k_scale = tail_.v_scale = 0;
  tail_.flags &= ~uint32_t{TENON_KV_CHANNEL_KEYS};
  tail_.group = 2;
  tail_.pages = host_.input(TENON_I32, {kSlots * kColumns}, tail_pages_);
  fill_planes(tail_, tail_pages_, tail_keys_, tail_values_);
  view_.flags |= TENON_KV_RECENT;
  view_.recent = case_.recent;
  view_.recent_view = &tail_;
}

void ViewHost::fill_planes(tenon_kv_view& view, const std::vector<int32_t>& pages, std::vector<float>& keys,
                           std::vector<float>& values) {
  const PlaneTensors k = make_plane({.values = false, .view = view, .pages = pages, .kept = keys});
  const PlaneTensors v = make_plane({.values = true, .view = view, .pages = pages, .kept = values});
  view.k = k.plane;
  view.v = v.plane;
  view.k_scale = k.scales;
  view.v_scale = v.scales;
  std::ranges::copy(k.stride, view.k_stride);
  std::ranges::copy(v.stride, view.v_stride);
  std::ranges::copy(k.scale_stride, view.ks_stride);
  std::ranges::copy(v.scale_stride, view.vs_stride);
}

ViewHost::PlaneTensors ViewHost::make_plane(const Plane& p) {
  const uint32_t dim = p.values ? kValueDim : kKeyDim;
  const tenon_format codec = (p.values ? p.view.format->v : p.view.format->k).codec;
  const tenon_tensor t = sdk::tensor(codec, {kPages, kHeads, kPageCells, sdk::kv_row_stored(codec, dim)});
  const bool grouped = !p.values && (p.view.flags & TENON_KV_CHANNEL_KEYS) != 0;
  const tenon_tensor st = grouped ? sdk::tensor(TENON_F16, {kPages, kHeads, kPageCells / p.view.key_group, 2 * dim})
                                  : sdk::tensor(TENON_F16, {kPages, kHeads, kPageCells});
  PlaneTensors tensors{.plane = 0, .scales = 0, .stride = {t.stride[0], t.stride[2], t.stride[1]}, .scale_stride = {}};
  const bool scaled = sdk::is_scaled_codec(codec);
  if (scaled) {
    tensors.scale_stride[0] = st.stride[0];
    tensors.scale_stride[1] = st.stride[2];
    tensors.scale_stride[2] = st.stride[1];
  }
  tenon_kv_view placed = p.view;
  std::ranges::copy(tensors.stride, p.values ? placed.v_stride : placed.k_stride);
  std::ranges::copy(tensors.scale_stride, p.values ? placed.vs_stride : placed.ks_stride);
  const sdk::KvLayout layout = sdk::kv_layout(placed);
  std::vector<std::byte> bytes(tensor_extent(t), std::byte{0xff}), scale_bytes(tensor_extent(st), std::byte{0xff});
  p.kept.assign(size_t{kSeqs} * kHeads * kCells * dim, std::numeric_limits<float>::quiet_NaN());
  if (grouped) {  // codes, zeros and steps are any
    for (std::byte& b : bytes) b = static_cast<std::byte>(random_());
    for (size_t i = 0; i < scale_bytes.size() / 2; ++i) {
      const float x = randoms(1)[0];
      sdk::store_kv_scale(TENON_F16, i / dim % 2 == 0 ? x : 0.1F * x, &scale_bytes[2 * i]);
    }
  }
  for (uint32_t i = 0; i < kSeqs * kHeads; ++i) {
    const uint32_t s = i / kHeads, head = i % kHeads;
    std::vector<int32_t> holds = old_cells(s, head);
    for (uint32_t row = kFirst[s]; row < kFirst[s + 1]; ++row) holds[place(row, head)] = kLength[s];
    const sdk::cpu::KvCells cells({.layout = layout,
                                   .plane = p.values ? layout.v : layout.k,
                                   .base = bytes.data(),
                                   .scales = scale_bytes.data(),
                                   .pages = p.pages.data()},
                                  static_cast<uint32_t>(kSlot[s]), head);
    for (uint32_t c = 0; c < kCells; ++c) {
      if (holds[c] >= 0 && !grouped) cells.store(randoms(dim).data(), c);
    }
    for (uint32_t c = 0; c < kCells; ++c) {
      if (holds[c] >= 0) cells.load(c, &p.kept[(size_t{i} * kCells + c) * dim]);
    }
  }
  tensors.plane = host_.strided_input(t, bytes.data());
  if (scaled) tensors.scales = host_.strided_input(st, scale_bytes.data());
  return tensors;
}

}  // namespace tenon::conformance
