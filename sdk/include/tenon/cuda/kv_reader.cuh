// Kernels read KV planes on the GPU through this, the counterpart of tenon/sdk/cpu/kv_reader.h. Layout and checks are
// those of tenon/sdk/kv_layout.h. Every codec, scales and heads apart:
//
//   cuda::with_kv_codec(args.kv.k.codec, [&]<class C>(C) { launch(&my_kernel<C>, ...); });         in the op
//   cuda::KvCells keys({args.kv, args.kv.k, base, scales, pages}, slot, head);                     in the kernel
//   C::decode(sdk::kv_code<C>(reinterpret_cast<const C::Stored*>(keys.at(cell)), d), keys.scale(cell))
//
// Plain codecs, f32, f16 or bf16, whose heads share their pages, with the GPU's own types: with_element() and KvRows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "tenon/cuda/warp.cuh"
#include "tenon/sdk/kv_layout.h"

namespace tenon::cuda {

using sdk::kv_layout;
using sdk::KvLayout;
using sdk::KvMemory;
using sdk::KvPlane;
using sdk::plain_kv_format;

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// Returns x rounded to the nearest number of E, halves to even.
template <class E>
__device__ __forceinline__ E from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Calls f with an element of a plain codec's type.
template <class F>
void with_element(uint32_t codec, F&& f) {
  if (codec == TENON_F32) {
    f(float{});
  } else if (codec == TENON_F16) {
    f(__half{});
  } else if (codec == TENON_BF16) {
    f(__nv_bfloat16{});
  } else {
    throw sdk::Refused("the cache's codec is none of f32, f16, bf16");
  }
}

// These are the SDK's codecs with the GPU's own conversions, which round alike.
struct KvF16 : sdk::KvF16 {
  __device__ static float decode(Element e, float) { return __half2float(__ushort_as_half(e)); }
  __device__ static Element encode(float x, float) { return __half_as_ushort(__float2half_rn(x)); }
};
struct KvBf16 : sdk::KvBf16 {
  __device__ static float decode(Element e, float) { return __bfloat162float(__ushort_as_bfloat16(e)); }
  __device__ static Element encode(float x, float) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
};
struct KvF8 : sdk::KvF8 {
  __device__ static float decode(Element e, float scale) {
    return __half2float(__ushort_as_half(Numbers::half_bits(e))) * (Numbers::kUnit * scale);
  }
};

// It rounds as the CPU does, the product and then the sum: the compiler would make one rounding of them.
struct KvChannel : sdk::KvChannel {
  __device__ float decode(uint8_t code) const { return __fadd_rn(zero, __fmul_rn(static_cast<float>(code), step)); }
};

// Calls f with the codec of a format. Throws Refused for a format that no codec stores.
template <class F>
void with_kv_codec(uint32_t format, F&& f) {
  if (format == TENON_F16) return f(KvF16());
  if (format == TENON_BF16) return f(KvBf16());
  if (format == TENON_F32) return f(sdk::KvF32());
  if (format == TENON_I8) return f(sdk::KvI8());
  if (format == TENON_F8E4M3) return f(KvF8());
  if (format == TENON_U8) return f(sdk::KvI4());
  throw sdk::Refused(std::string("no codec of a cache stores ") + tenon_format_name(format));
}

// This codec of TENON_U8 is for keys with zeros and steps for each dimension (KvCells::channel()). It decodes values
// only.
struct KvI4ByChannel : sdk::KvI4 {};
template <class C>
inline constexpr bool kKeysByChannel = std::is_same_v<C, KvI4ByChannel>;
// Calls f with the codec of a layout whose keys and values have one format: KvI4ByChannel if keys are in groups.
template <class F>
void with_kv_codec(const KvLayout& kv, F&& f) {
  if (kv.k.group != 0) return f(KvI4ByChannel());
  with_kv_codec(kv.k.codec, f);
}

// This is what the elements have that a lane has of a head.
struct KvExtremes {
  float most = 0, least = 0;  // the greatest and the least of them and 0
  bool numbers = true;        // none is NaN

  __device__ void add(float x) {
    most = fmaxf(most, x);
    least = fminf(least, x);
    numbers &= x == x;
  }
};
// Returns the scale (sdk::kv_scale()) of a head that the lanes of a warp have among them.
__device__ __forceinline__ float kv_scale_of_warp(uint32_t codec, uint32_t format, const KvExtremes& own) {
  const float most = warp_max(own.most), least = warp_min(own.least);
  const bool numbers = __all_sync(~0U, own.numbers) != 0;
  return sdk::kv_scale(codec, format, !numbers ? NAN : -least > most ? least : most);
}

// These are the cells of one head of one sequence. The plane of the memory stays where it is meanwhile.
class KvCells {
 public:
  __device__ KvCells(const KvMemory& m, uint32_t slot, uint32_t head)
      : base_(static_cast<char*>(m.base) + head * m.plane.head),
        scales_(static_cast<char*>(m.scales) + head * m.plane.scale_head),
        pages_(m.pages + (m.layout.apart() ? size_t{slot} * m.layout.heads + head : size_t{slot}) * m.layout.columns),
        plane_(m.plane) {
    shift_ = 31 - static_cast<uint32_t>(__clz(static_cast<int>(m.layout.page_cells)));
  }

  // Returns the page of a cell below the layout's capacity; below 0 if it has none.
  __device__ int32_t page(uint32_t cell) const { return pages_[cell >> shift_]; }
  __device__ uint32_t inside(uint32_t cell) const { return cell & ((1u << shift_) - 1); }
  // Returns the elements of a cell; nullptr if it has no page.
  __device__ char* at(uint32_t cell) const {
    const int32_t p = page(cell);
    return p < 0 ? nullptr : base_ + p * plane_.page + inside(cell) * plane_.cell;
  }
  // Returns the scale of a cell that has a page.
  __device__ char* scale_at(uint32_t cell) const {
    return scales_ + page(cell) * plane_.scale_page + inside(cell) * plane_.scale_cell;
  }
  __device__ float scale(uint32_t cell) const {
    if (plane_.scale == 0) return 1;
    const char* from = scale_at(cell);
    return plane_.scale == TENON_F16 ? __half2float(*reinterpret_cast<const __half*>(from))
                                     : *reinterpret_cast<const float*>(from);
  }
  // Returns the zero and the step of a dimension, for a cell of a plane with groups.
  __device__ KvChannel channel(uint32_t cell, uint32_t d) const {
    const char* zeros = zeros_at(cell);
    const auto load = [&](uint32_t i) {
      return plane_.scale == TENON_F16 ? __half2float(reinterpret_cast<const __half*>(zeros)[i])
                                       : reinterpret_cast<const float*>(zeros)[i];
    };
    return {{load(d), load(plane_.dim + d)}};
  }
  __device__ void store_channel(uint32_t cell, uint32_t d, const sdk::KvChannel& channel) const {
    char* zeros = zeros_at(cell);
    const auto store = [&](uint32_t i, float x) {
      if (plane_.scale == TENON_F16) {
        reinterpret_cast<__half*>(zeros)[i] = __float2half_rn(x);
      } else {
        reinterpret_cast<float*>(zeros)[i] = x;
      }
    };
    store(d, channel.zero);
    store(plane_.dim + d, channel.step);
  }
  __device__ void store_scale(uint32_t cell, float scale) const {
    if (plane_.scale == TENON_F16) {
      *reinterpret_cast<__half*>(scale_at(cell)) = __float2half_rn(scale);
    } else {
      *reinterpret_cast<float*>(scale_at(cell)) = scale;
    }
  }

 private:
  __device__ char* zeros_at(uint32_t cell) const {
    return scales_ + page(cell) * plane_.scale_page + inside(cell) / plane_.group * plane_.scale_cell;
  }

  char *base_, *scales_;
  const int32_t* pages_;
  const KvPlane& plane_;
  uint32_t shift_;
};

// These are the rows of one head of one sequence, in a cache whose heads share their pages. It reads no scales.
class KvRows {
 public:
  __device__ KvRows(const KvMemory& m, uint32_t slot, uint32_t head)
      : base_(static_cast<char*>(m.base) + head * m.plane.head),
        pages_(m.pages + size_t{slot} * m.layout.columns),
        page_stride_(m.plane.page),
        cell_stride_(m.plane.cell) {
    shift_ = 31 - static_cast<uint32_t>(__clz(static_cast<int>(m.layout.page_cells)));
  }

  // Returns the elements of token t, which is below the layout's capacity; nullptr if the token has no page.
  __device__ char* at(uint32_t t) const {
    const int32_t page = pages_[t >> shift_];
    return page < 0 ? nullptr : base_ + page * page_stride_ + (t & ((1u << shift_) - 1)) * cell_stride_;
  }
  // Returns how many tokens from t on, at most n, follow each other at the plane's token stride.
  __device__ uint32_t run(uint32_t t, uint32_t n) const { return min(n, (1u << shift_) - (t & ((1u << shift_) - 1))); }
  __device__ int64_t stride() const { return cell_stride_; }

 private:
  char* base_;
  const int32_t* pages_;
  int64_t page_stride_, cell_stride_;
  uint32_t shift_;
};

}  // namespace tenon::cuda
