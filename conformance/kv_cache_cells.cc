// This computes what a cache should make of keys and values, without any code of it, and whether its views hold that,
// cell by cell. Scales are rounded as the codec says before they divide. Keys of a group are compared only when the
// group is full, since before that they are in the tail.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "conformance/kv_cache_host.h"
#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/hadamard.h"

namespace tenon::conformance {

float rounded(tenon_format codec, float value) {
  if (codec == TENON_F32 || value == 0) return value;
  const int digits = codec == TENON_F16 ? 11 : 8, least = codec == TENON_F16 ? -24 : -133;
  const double largest = codec == TENON_F16 ? 65504 : double{std::bit_cast<float>(0x7f7f0000u)};
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - digits, least);
  const double near = std::ldexp(std::nearbyint(std::ldexp(double{value}, -unit)), unit);
  if (std::abs(near) > largest) return std::copysign(std::numeric_limits<float>::infinity(), value);
  return static_cast<float>(std::copysign(near, value));
}

namespace {

// Returns the nearest number with 4 bits of precision, of which the last is 2^-9 or more; 448 is the largest.
float nearest_f8(float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int unit = std::max(exponent - 4, -9);
  const double near = std::ldexp(std::nearbyint(std::ldexp(double{value}, -unit)), unit);
  return static_cast<float>(std::copysign(std::min(std::abs(near), 448.0), value));
}

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace

// Turns a head's row into what the cache makes of it, computed without any code of the cache.
void KvCacheHost::stored(float* row, uint32_t n) const {
  if (hadamard_) sdk::rotate_head(row, n);
  if (scale_ == TENON_FORMAT_NONE) {
    for (uint32_t i = 0; i < n; ++i) row[i] = rounded(codec_, row[i]);
    return;
  }
  float most = 0, least = 0;
  for (uint32_t i = 0; i < n; ++i) {
    most = std::max(most, row[i]);
    least = std::min(least, row[i]);
  }
  if (codec_ == TENON_U8) {  // the greatest magnitude is -8 times the scale
    const float greatest = std::max({most, -least, 8e-5f}), sign = most >= -least ? -1.0f : 1.0f;
    const float scale = sign * rounded(scale_, greatest / 8);
    for (uint32_t i = 0; i < n; ++i) row[i] = (std::clamp(std::nearbyint(row[i] / scale), -8.0f, 7.0f) + 0.0f) * scale;
    return;
  }
  most = std::max(most, -least);
  const bool f8 = codec_ == TENON_F8E4M3;
  const float scale = rounded(scale_, std::max(most / (f8 ? 448.0f : 127.0f), 1e-5f));
  for (uint32_t i = 0; i < n && f8; ++i) row[i] = nearest_f8(row[i] / scale) * scale;
  for (uint32_t i = 0; i < n && !f8; ++i)
    row[i] = (std::clamp(std::nearbyint(row[i] / scale), -127.0f, 127.0f) + 0.0f) * scale;
}

std::string KvCacheHost::compare_view(const Layer& layer, const tenon_kv_view& view, uint32_t slot) const {
  if (const std::string why = sdk::kv_unread(view, sdk::kReadsEverything); !why.empty()) return why;
  const std::string wrong = compare_cells(layer, view, slot, false);
  if (!wrong.empty() || view.recent_view == nullptr) return wrong;
  const std::string of_tail = compare_cells(layer, *view.recent_view, slot, true);
  return of_tail.empty() ? "" : "tail: " + of_tail;
}

float KvCacheHost::key_of_group(const Layer& layer, uint32_t slot, uint32_t position, uint32_t head_and_dim) const {
  const uint32_t n = layer.view.key_group, first = position / n * n;
  const auto element = [&](uint32_t p) {
    return std::clamp(layer.by_slot[slot][p].tail_k[head_and_dim], -65504.0F, 65504.0F);
  };
  float least = element(first), most = least;
  for (uint32_t p = first; p < first + n; ++p) {
    least = std::min(least, element(p));
    most = std::max(most, element(p));
  }
  const float step = rounded(scale_, std::max((most - least) / 15, 1e-5F));
  return least + std::clamp(std::nearbyint((element(position) - least) / step), 0.0F, 15.0F) * step;
}

std::string KvCacheHost::compare_cells(const Layer& layer, const tenon_kv_view& view, uint32_t slot, bool tail) const {
  const uint32_t recent = layer.view.recent;
  const uint32_t window = tail && (layer.window == 0 || recent < layer.window) ? recent : layer.window;
  const sdk::KvLayout layout = sdk::kv_layout(view);
  auto pages = host_.read<int32_t>(view.pages);
  auto k = host_.read<std::byte>(view.k), v = host_.read<std::byte>(view.v);
  std::vector<std::byte> ks, vs;
  if (view.k_scale != 0) {
    ks = host_.read<std::byte>(view.k_scale);
    vs = host_.read<std::byte>(view.v_scale);
  }
  for (uint32_t h = 0; h < layer.heads; ++h) {
    const std::map<uint32_t, uint32_t> cells = cells_of(window, view, slot, h);
    const uint32_t seen = length(slot) - first_seen(window, slot);
    if (every_token_ && cells.size() != seen) {
      return "slot " + std::to_string(slot) + " has " + std::to_string(cells.size()) + " cells in use for " +
             std::to_string(seen) + " tokens";
    }
    for (const bool values : {false, true}) {
      const uint32_t dim = values ? layer.v_dim : layer.k_dim;
      const sdk::KvPlane& plane = values ? layout.v : layout.k;
      const sdk::cpu::KvCells rows({.layout = layout,
                                    .plane = plane,
                                    .base = (values ? v : k).data(),
                                    .scales = (values ? vs : ks).data(),
                                    .pages = pages.data()},
                                   slot, h);
      std::vector<float> got(dim);
      for (const auto& [cell, position] : cells) {
        if (position >= length(slot)) return "a cell in use holds position " + std::to_string(position);
        const Token& token = layer.by_slot[slot][position];
        rows.load(cell, got.data());
        for (uint32_t d = 0; d < dim; ++d) {
          const bool grouped = !tail && !values && layer.view.key_group != 0;
          if (grouped && (position / layer.view.key_group + 1) * layer.view.key_group > length(slot)) continue;
          const float kept = grouped ? key_of_group(layer, slot, position, h * dim + d)
                                     : (tail     ? values ? token.tail_v : token.tail_k
                                        : values ? token.v
                                                 : token.k)[h * dim + d];
          const float want = plane.scale != 0 ? kept : rounded(plane.codec, kept);
          if (same(got[d], want)) continue;
          return std::string(values ? "V" : "K") + " of slot " + std::to_string(slot) + " token " +
                 std::to_string(position) + " in cell " + std::to_string(cell) + " head " + std::to_string(h) +
                 " dim " + std::to_string(d) + " is " + std::to_string(got[d]) + ", not " + std::to_string(want);
        }
      }
    }
  }
  return {};
}

}  // namespace tenon::conformance
