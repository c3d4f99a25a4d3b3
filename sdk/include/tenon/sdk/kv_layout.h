// An op takes a KV view as one trivially copyable struct among its arguments, KvLayout, which is the same on every
// device. kv_unread() says whether a reader can read a view.
//
//   struct Args { sdk::KvLayout kv; ... };
//   if (const auto why = sdk::kv_unread(view, sdk::kReadsScales); !why.empty()) throw sdk::Refused(why);    in claim()
//   Args args{sdk::kv_layout(*call.kv), ...};                                                               in record()
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "tenon/abi/kv_cache.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/kv_codec.h"

namespace tenon::sdk {

// This is a flag of a view beside TENON_KV_*: keys and values are stored rotated (tenon/sdk/hadamard.h), keys after
// rope. A reader rotates its queries, and what it made of the values as well. Copies of record_dequant stay rotated.
inline constexpr uint32_t kKvHadamard = 4;

// This describes the keys, or the values, of one layer.
struct KvPlane {
  int64_t page, cell, head;                    // bytes from one to the next
  int64_t scale_page, scale_cell, scale_head;  // the same in the plane of scales
  uint32_t codec, scale;                       // formats; scale 0 = there are no scales
  uint32_t dim;
  uint32_t
      group;  // cells that share a zero and a step for each dimension; 0: each cell has a scale, if there are scales
};

// This is a view without its tensors; tenon_kv_view explains the fields.
struct KvLayout {
  KvPlane k, v;
  uint32_t heads, page_cells, columns;
  uint32_t rule, sinks, ring, window;  // rule: TENON_POS_*
  uint32_t flags, rotated, reserved;

  constexpr uint64_t capacity() const { return uint64_t{page_cells} * columns; }  // a sequence has so many cells
  constexpr bool apart() const { return (flags & TENON_KV_HEADS_APART) != 0; }
  // Under LINEAR and RING this is the cell of a row of that order, and of an old key of that position.
  constexpr uint32_t cell_of(uint32_t order) const {
    return rule == TENON_POS_RING && order >= sinks ? sinks + (order - sinks) % ring : order;
  }
  // Returns whether the view's own window lets a row at position n see position p.
  constexpr bool in_window(int64_t p, int64_t n) const { return window == 0 || p > n - window || p < sinks; }
  // The rope's indices for a row at position n are below the positions by this much; see TENON_KV_RENUMBERED.
  constexpr uint32_t shift_at(uint32_t n) const {
    const uint32_t kept = sinks + window;
    return (flags & TENON_KV_RENUMBERED) != 0 && n + 1 > kept ? n + 1 - kept : 0;
  }
};

// This is where a plane of a layer's cache lies.
struct KvMemory {
  const KvLayout& layout;
  const KvPlane& plane;  // the layout's k or v
  void* base;            // the plane's tensor
  void* scales;          // the tensor of its scales; unused where the plane has none
  const int32_t* pages;  // the view's table
};

// Every reader reads plain codecs in linear caches with keys after rope; each flag is something more that it can do.
enum KvReads : uint32_t {
  kReadsScales = 1,
  kReadsRing = 2,  // and windows
  kReadsTable = 4,
  kReadsUnrotated = 8,
  kReadsApart = 16,
  kGivesWeights = 32,
  kReadsRotated = 64,
  kReadsSpans = 128,
  kReadsRecent = 256,
  kReadsChannels = 512,  // keys with zeros and steps for each dimension
  kReadsEverything = 1023
};

inline std::string recent_unread(const tenon_kv_view& view, uint32_t reads);

// It says why a reader that can do `reads` cannot read the view; "" = it can. Tensors and strides may be missing.
inline std::string kv_unread(const tenon_kv_view& view, uint32_t reads) {
  const auto cannot = [&](uint32_t what) { return (reads & what) == 0; };
  for (const tenon_kv_plane* p : {&view.format->k, &view.format->v}) {
    if (!is_kv_codec(p->codec)) return std::string("no reader for cells of ") + kv_codec_name(p->codec);
    if (is_scaled_codec(p->codec) != (p->scale != TENON_FORMAT_NONE))
      return "a codec and scales that do not belong together";
    if (p->scale != TENON_FORMAT_NONE && p->scale != TENON_F32 && p->scale != TENON_F16)
      return "scales of another format";
    if (p->scale != TENON_FORMAT_NONE && cannot(kReadsScales)) {
      return std::string("no reader for ") + kv_codec_name(p->codec) + " with scales";
    }
  }
  if (!std::has_single_bit(view.page_cells)) return "page_cells is no power of two";
  if (view.pos_rule < TENON_POS_LINEAR || view.pos_rule > TENON_POS_TABLE) return "an unknown rule of positions";
  if (view.pos_rule == TENON_POS_RING && (cannot(kReadsRing) || view.ring == 0)) return "no reader for rings";
  if (view.window != 0 && cannot(kReadsRing)) return "no reader for a cache's window";
  if (view.pos_rule == TENON_POS_TABLE && cannot(kReadsTable)) return "no reader for tables of positions";
  if (view.format->rotated == 0 && cannot(kReadsUnrotated)) return "no reader for keys before rope";
  if ((view.flags & ~(uint32_t{TENON_KV_HEADS_APART | TENON_KV_RENUMBERED | TENON_KV_RECENT | TENON_KV_CHANNEL_KEYS} |
                      kKvHadamard)) != 0) {
    return "an unknown flag of the view";
  }
  if ((view.flags & kKvHadamard) != 0 && cannot(kReadsRotated)) return "no reader for rotated heads";
  if ((view.flags & kKvHadamard) != 0 && view.format->rotated == 0) return "keys that are rotated before rope";
  if ((view.flags & TENON_KV_HEADS_APART) != 0 && cannot(kReadsApart)) return "no reader for heads apart";
  if (view.weight_rows != 0 && cannot(kGivesWeights)) return "it gives no softmax weights";
  if ((view.flags & TENON_KV_CHANNEL_KEYS) != 0) {
    if (cannot(kReadsChannels)) return "no reader for keys with a scale for each channel";
    if (view.format->k.codec != TENON_U8 || (view.flags & TENON_KV_RECENT) == 0 ||
        !std::has_single_bit(view.key_group) || view.key_group > view.recent || view.key_group > view.page_cells) {
      return "keys with a scale for each channel in another codec, or in groups that are no power of two or longer "
             "than the tail";
    }
  }
  if ((view.flags & TENON_KV_RECENT) != 0 && cannot(kReadsRecent)) return "no reader for a tail of newest tokens";
  if ((view.flags & TENON_KV_RECENT) != 0) return recent_unread(view, reads);
  if (view.most_spans == 0) return {};
  if (cannot(kReadsSpans)) return "no reader for spans that are chosen for each row";
  if (!std::has_single_bit(view.span_cells) || view.span_cells < 16) return "span_cells is no power of two from 16 on";
  if (view.pos_rule != TENON_POS_LINEAR || view.window != 0 || view.format->rotated == 0) {
    return "spans in a ring, in a table, under a window of the view, or of keys before rope";
  }
  return {};
}

// It says the same of the tail of a view whose flags have RECENT.
inline std::string recent_unread(const tenon_kv_view& view, uint32_t reads) {
  if (view.recent == 0 || view.recent_view == nullptr)
    return "a tail of newest tokens without tokens or without a view";
  for (const tenon_kv_view* v : {&view, view.recent_view}) {
    if (v->pos_rule != TENON_POS_LINEAR || v->window != 0 || v->format->rotated == 0 || v->most_spans != 0 ||
        v->weight_rows != 0) {
      return "a tail of newest tokens beside a ring, a table, a window of the view, keys before rope, spans or weights";
    }
  }
  const tenon_kv_view& tail = *view.recent_view;
  if (tail.flags != (view.flags & ~uint32_t{TENON_KV_RECENT | TENON_KV_CHANNEL_KEYS}))
    return "a tail of newest tokens whose flags are others";
  if (tail.heads != view.heads || tail.k_dim != view.k_dim || tail.v_dim != view.v_dim) {
    return "a tail of newest tokens with other heads";
  }
  return kv_unread(tail, reads);
}

inline KvLayout kv_layout(const tenon_kv_view& view) {
  const auto plane = [](const int64_t(&s)[3], const int64_t(&scale)[3], const tenon_kv_plane& p, uint32_t dim) {
    return KvPlane{s[0], s[1], s[2], scale[0], scale[1], scale[2], p.codec, p.scale, dim, 0};
  };
  KvLayout l{};
  l.k = plane(view.k_stride, view.ks_stride, view.format->k, view.k_dim);
  l.k.group = (view.flags & TENON_KV_CHANNEL_KEYS) != 0 ? view.key_group : 0;
  l.v = plane(view.v_stride, view.vs_stride, view.format->v, view.v_dim);
  l.heads = view.heads;
  l.page_cells = view.page_cells;
  l.columns = view.columns;
  l.rule = view.pos_rule;
  l.sinks = view.sinks;
  l.ring = view.ring;
  l.window = view.window;
  l.flags = view.flags;
  l.rotated = view.format->rotated;
  return l;
}

}  // namespace tenon::sdk
