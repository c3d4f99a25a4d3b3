// Plain KV planes on the GPU: f32, f16 or bf16, no scales, no tiles, no tails, positions in order; the counterpart of
// tenon/sdk/cpu/kv_reader.h, whose layout and checks it shares.
//
//   struct Args { cuda::KvLayout kv; ... };
//   if (const char* why = cuda::not_plain(format)) throw sdk::Refused(why);                       in claim()
//   Args args{cuda::kv_layout(*call.kv), ...};                                                    in record()
//   cuda::with_element(args.kv.k.codec, [&]<class E>(E) { launch(&my_kernel<E>, ...); });         in the op
//   cuda::KvRows keys(args.kv, args.kv.k, base, pages, slot, head);                               in the kernel
//   cuda::to_float(static_cast<const E*>(keys.at(token))[d])
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "tenon/sdk/cpu/kv_reader.h"

namespace tenon::cuda {

using sdk::cpu::kv_layout;
using sdk::cpu::KvLayout;
using sdk::cpu::KvPlane;
using sdk::cpu::not_plain;
using sdk::cpu::plain_kv_format;

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// Rounded to nearest even.
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

// The rows of one head of one sequence. base: the plane's tensor; pages: the table, i32[slots][columns].
class KvRows {
 public:
  __device__ KvRows(const KvLayout& layout, const KvPlane& plane, void* base, const int32_t* pages, uint32_t slot,
                    uint32_t head)
      : base_(static_cast<char*>(base) + head * plane.head),
        pages_(pages + size_t{slot} * layout.columns),
        page_stride_(plane.page),
        token_stride_(plane.token) {
    shift_ = 31 - static_cast<uint32_t>(__clz(static_cast<int>(layout.page_tokens)));
  }

  // The elements of token t, which is below the layout's capacity; nullptr if the token has no page.
  __device__ char* at(uint32_t t) const {
    const int32_t page = pages_[t >> shift_];
    return page < 0 ? nullptr : base_ + page * page_stride_ + (t & ((1u << shift_) - 1)) * token_stride_;
  }
  // Tokens from t on, at most n, that follow each other at the plane's token stride.
  __device__ uint32_t run(uint32_t t, uint32_t n) const { return min(n, (1u << shift_) - (t & ((1u << shift_) - 1))); }
  __device__ int64_t stride() const { return token_stride_; }

 private:
  char* base_;
  const int32_t* pages_;
  int64_t page_stride_, token_stride_;
  uint32_t shift_;
};

}  // namespace tenon::cuda
