// Plain KV planes on the CPU: f32, f16 or bf16, no scales, no tiles, no tails, positions in order. What an op needs of
// a view is one trivially copyable struct for its arguments:
//
//   struct Args { sdk::cpu::KvLayout kv; ... };
//   if (const char* why = sdk::cpu::not_plain(*call.kv->format)) throw sdk::Refused(why);        in claim()
//   Args args{sdk::cpu::kv_layout(*call.kv), ...};                                               in record()
//   sdk::cpu::KvRows keys(args.kv, args.kv.k, part.ptr<void>(0), part.ptr<int32_t>(2), slot, head);     in the op
//   sdk::cpu::load_row(args.kv.k.codec, keys.at(token), dim, out);
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "tenon/abi/kv_cache.h"
#include "tenon/sdk/cpu/convert.h"
#include "tenon/sdk/error.h"

namespace tenon::sdk::cpu {

constexpr bool is_plain_codec(tenon_format f) {
  return f == TENON_F32 || f == TENON_F16 || f == TENON_BF16;
}

// nullptr, or why these readers cannot read the format.
inline const char* not_plain(const tenon_kv_format& f) {
  for (const tenon_kv_plane* p : {&f.k, &f.v}) {
    if (!is_plain_codec(p->codec)) return "the cache's codec is none of f32, f16, bf16";
    if (p->block != 0 || p->scale != TENON_FORMAT_NONE || p->zero != TENON_FORMAT_NONE) return "the cache has scales";
    if (p->inner != 0) return "the cache's contiguous axis is not the head dimension";
    if (p->tile != 0) return "the cache is tiled";
  }
  if (f.v.rotated != 0) return "the cache's values are rotated";
  if (f.tail_tokens != 0) return "the cache keeps its newest tokens in another codec";
  if (f.ext != 0) return "the cache's format has an extension";
  return nullptr;
}

// A plain format with keys after rope.
constexpr tenon_kv_format plain_kv_format(tenon_format codec) {
  auto f = abi_struct<tenon_kv_format>();
  f.k.codec = f.v.codec = codec;
  f.k.rotated = 1;
  return f;
}

// One of K, V of a layer. Strides in bytes.
struct KvPlane {
  int64_t page, token, head;
  uint32_t codec, dim;
};
// A plain view without its tensors.
struct KvLayout {
  KvPlane k, v;
  uint32_t heads, page_tokens, columns, reserved;

  uint64_t capacity() const { return uint64_t{page_tokens} * columns; }  // tokens of a sequence
};

// Throws Refused for a view that is not plain.
inline KvLayout kv_layout(const tenon_kv_view& view) {
  if (const char* why = not_plain(*view.format)) throw Refused(why);
  if (view.pos_rule != TENON_POS_LINEAR) throw Refused("the cache's positions are not in order");
  if (!std::has_single_bit(view.page_tokens)) throw Refused("page_tokens is no power of two");
  const auto plane = [](const int64_t(&stride)[3], uint32_t codec, uint32_t dim) {
    return KvPlane{stride[0], stride[1], stride[2], codec, dim};
  };
  return {plane(view.k_stride, view.format->k.codec, view.k_dim),
          plane(view.v_stride, view.format->v.codec, view.v_dim),
          view.heads,
          view.page_tokens,
          view.columns,
          0};
}

// The rows of one head of one sequence. base: the plane's tensor; pages: the table, i32[slots][columns].
class KvRows {
 public:
  KvRows(const KvLayout& layout, const KvPlane& plane, void* base, const int32_t* pages, uint32_t slot, uint32_t head)
      : base_(static_cast<std::byte*>(base) + head * plane.head),
        pages_(pages + size_t{slot} * layout.columns),
        plane_(plane),
        shift_(static_cast<uint32_t>(std::countr_zero(layout.page_tokens))) {}

  // The elements of token t, which is below the layout's capacity. Throws Failed if the token has no page.
  std::byte* at(uint32_t t) const {
    const int32_t page = pages_[t >> shift_];
    if (page < 0) throw Failed("token " + std::to_string(t) + " of a sequence has no page in the cache");
    return base_ + page * plane_.page + (t & ((1u << shift_) - 1)) * plane_.token;
  }
  // Tokens from t on, at most n, that follow each other at the plane's token stride.
  uint32_t run(uint32_t t, uint32_t n) const { return std::min(n, (1u << shift_) - (t & ((1u << shift_) - 1))); }
  int64_t stride() const { return plane_.token; }

 private:
  std::byte* base_;
  const int32_t* pages_;
  KvPlane plane_;
  uint32_t shift_;
};

// n elements of a plain codec as f32.
inline void load_row(uint32_t codec, const std::byte* from, uint32_t n, float* to) {
  if (codec == TENON_F32) {
    std::memcpy(to, from, n * sizeof(float));
    return;
  }
  for (uint32_t i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * size_t{i}, 2);
    to[i] = codec == TENON_F16 ? half_to_float(bits) : bf16_to_float(bits);
  }
}

// n f32 into a plain codec, rounded to nearest even.
inline void store_row(uint32_t codec, const float* from, uint32_t n, std::byte* to) {
  if (codec == TENON_F32) {
    std::memcpy(to, from, n * sizeof(float));
    return;
  }
  for (uint32_t i = 0; i < n; ++i) {
    const uint16_t bits = codec == TENON_F16 ? float_to_half(from[i]) : float_to_bf16(from[i]);
    std::memcpy(to + 2 * size_t{i}, &bits, 2);
  }
}

}  // namespace tenon::sdk::cpu
