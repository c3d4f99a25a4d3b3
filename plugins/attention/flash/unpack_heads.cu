// Makes fp16 of the codes of some KV heads (unpack_heads.h). A block has 128 tokens of a head of a sequence, and a thread
// makes eight elements at a time, all loads first.
#include <bit>

#include "codes.cuh"
#include "head.cuh"
#include "tenon/cuda/overlap.cuh"
#include "unpack_heads.h"

namespace tenon::flash {
namespace {

constexpr uint32_t kTokens = 128, kThreads = 256;  // a block's

constexpr uint32_t ceil_div(uint64_t x, uint64_t by) {
  return static_cast<uint32_t>((x + by - 1) / by);
}

// A copy has these.
struct Unpacked {
  __half *keys, *values;
  int32_t* pages;
};

// unpack() takes an eight as the first of 16 bytes.
struct Words {
  uint32_t word[4];
  __device__ explicit Words(const uint2& code) : word{code.x, code.y, 0, 0} {}
  __device__ explicit Words(uint32_t code) : word{code, 0, 0, 0} {}
};

// These are a block's tokens of a head, of which a thread has every so many eights.
template <uint32_t D, Codec C>
struct Tokens {
  const GpuArgs& a;
  const GpuPointers& p;
  uint32_t slot, kv_head;
  uint32_t token, end;

  // An eight takes eight bytes, or four.
  using Code = std::conditional_t<C::kEights == 2, uint2, uint32_t>;
  static constexpr uint32_t kOfToken = D / 8, kOwn = kTokens * kOfToken / kThreads;
  __device__ static uint32_t token_of(uint32_t n) { return (n * kThreads + threadIdx.x) / kOfToken; }
  __device__ static uint32_t eight() { return threadIdx.x % kOfToken; }
  static_assert(kThreads % kOfToken == 0);

  // `head` is where the copy of the head begins.
  template <Side kSide>
  __device__ __forceinline__ void unpack(__half* head) const {
    constexpr bool kByChannel = kKeysByChannel<C> && kSide == Side::kKeys;
    const cuda::KvRows codes = cached(a, p, kSide, slot, kv_head), scales = cached_scales(a, p, kSide, slot, kv_head);
    Code code[kOwn] = {};
    std::conditional_t<kByChannel, EightChannels, __half> scale[kOwn] = {};
#pragma unroll
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t own = token + token_of(n);
      const char* from = own < end ? codes.at(own) : nullptr;
      if (from == nullptr) continue;  // a token that no row sees may have no page
      code[n] = reinterpret_cast<const Code*>(from)[eight()];
      if constexpr (kByChannel) {
        const auto* zeros = reinterpret_cast<const uint4*>(cached_channels(a, p, slot, kv_head, own)) + eight();
        scale[n] = {zeros[0], zeros[kOfToken]};
      } else {
        scale[n] = *reinterpret_cast<const __half*>(scales.at(own));
      }
    }
#pragma unroll
    for (uint32_t n = 0; n < kOwn; ++n) {
      const uint32_t own = token + token_of(n);
      if (own >= end) continue;
      auto* to = reinterpret_cast<uint4*>(head + size_t{own} * D) + eight();
      const Words words(code[n]);
      if constexpr (kByChannel) {
        *to = eight_by_channel(words.word, 0, scale[n]);
      } else {
        *to = scaled_eight<C>(words.word, 0, scale[n]);
      }
    }
  }
};

template <uint32_t D, Codec C>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const __grid_constant__ UnpackArgs u, const __grid_constant__ GpuPointers p,
                  const __grid_constant__ Unpacked to) {
  cuda::wait();
  const GpuArgs& a = u.cache;
  const uint32_t s = blockIdx.z;
  if (s >= p.live[kLiveSeqs] || p.seq_slot[s] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[s]), begin = static_cast<uint32_t>(p.seq_row[s]);
  const uint32_t rows = static_cast<uint32_t>(p.seq_row[s + 1]) - begin;
  if (rows <= a.few_rows) return;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) to.pages[slot] = static_cast<int32_t>(s);
  const auto position = static_cast<uint32_t>(p.pos[begin]);
  const uint32_t seen = a.first(position) / kTokens * kTokens, past = a.past(position + rows - 1);
  const uint32_t token = blockIdx.x * kTokens, end = min(token + kTokens, past);
  if (token < seen || token >= end) return;
  const size_t head = (size_t{s} * u.heads + blockIdx.y) * u.room * D;
  const Tokens<D, C> tokens{a, p, slot, u.first_head + blockIdx.y, token, end};
  tokens.template unpack<Side::kKeys>(to.keys + head);
  tokens.template unpack<Side::kValues>(to.values + head);
}

}  // namespace

uint32_t unpacked_room(const GpuArgs& a) {
  return ceil_div(a.kv_len, kTokens) * kTokens;
}

sdk::KvLayout unpacked_layout(const GpuArgs& a, uint32_t heads) {
  sdk::KvLayout kv = a.kv;
  kv.heads = heads;
  kv.page_cells = std::bit_ceil(unpacked_room(a));
  kv.columns = 1;
  for (sdk::KvPlane* p : {&kv.k, &kv.v}) *p = plane_of_halves(TENON_F16, p->dim, heads, unpacked_room(a));
  return kv;
}

uint32_t heads_at_once(const GpuArgs& a, uint32_t units) {
  constexpr uint64_t kBytesOfRow = 16 << 10;  // gate and up of a row take about as much, when attention is over
  const uint64_t head = uint64_t{a.seqs} * unpacked_room(a) * (a.kv.k.dim + a.kv.v.dim) * sizeof(__half);
  const uint64_t most = std::min<uint64_t>(a.kv.heads, a.rows * kBytesOfRow / head);
  if (most == 0) return 0;
  const uint32_t heads = ceil_div(a.kv.heads, ceil_div(a.kv.heads, most));
  const uint32_t tiles = ceil_div(a.rows, kWgmmaTileRows) * a.group * heads;
  return 4 * tiles >= 3 * units ? heads : 0;
}

void unpack_heads(const UnpackArgs& u, const cuda::Launch& l) {
  const Unpacked to{l.ptr<__half>(kUnpackedKeys), l.ptr<__half>(kUnpackedValues), l.ptr<int32_t>(kUnpackedPages)};
  with_cache(u.cache.kv.k, [&]<class E, class C>(E, std::type_identity<C>) {
    if constexpr (!std::is_void_v<C>) {
      with_dim<64, 128>(head_dim(u.cache), [&]<uint32_t D>() {
        l(&unpack_kernel<D, C>, {.blocks = {u.room / kTokens, u.heads, u.cache.seqs}, .threads = {kThreads}}, u,
          pointers(u.cache, l), to);
      });
    }
  });
}

}  // namespace tenon::flash
