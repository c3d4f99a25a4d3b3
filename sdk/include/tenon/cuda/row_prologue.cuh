// This takes a row of x on its way into a product: it is multiplied by RMSNorm's weights if there is a norm,
// and becomes what a format multiplies (formats.cuh). Each of a block's warps prepares what it multiplies
// itself, the segments s with s % kMatvecWarps equal to its own number, and so waits for nothing but x; where columns
// have an order of their own, for the other warps' x as well. RMSNorm's factor comes in when the warps' sums meet.
//
// Eight k of a row are an octet. Example: K = 4096 in segments of 128 k has 32 segments of 16 octets; warp 3 prepares
// segments 3 and 19, octets 48 to 63 and 304 to 319, one a lane.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "tenon/cuda/formats.cuh"
#include "tenon/cuda/warp.cuh"

namespace tenon::cuda {

inline constexpr uint32_t kMatvecWarps = 16, kMatvecThreads = 32 * kMatvecWarps;

struct RowSource {
  const float* x;     // (k) f32
  const float* norm;  // RMSNorm's weights, (k) f32; nullptr: there is no norm
  uint32_t k, segments;
  const uint16_t* order;  // (k): the weights' column i takes x[order[i]]; nullptr: columns are in the order of x
};

// This is where an octet lies in shared memory. Each 32 k have first their high parts, then their low ones. Formats
// that multiply in f32 keep the natural order.
template <PackedFormat F>
struct OctetPlace {
  static constexpr bool kSplit = !std::is_void_v<typename F::Half>;
  static constexpr uint32_t kGap = kSplit ? 64 : 16;  // bytes from its first 16 to its last 16
  static __device__ uint32_t offset(uint32_t octet) { return kSplit ? octet / 4 * 128 + octet % 4 * 16 : octet * 32; }
};

template <class S>
concept SumSink = requires(const S& sink, uint32_t group, float sum) {
  // Takes the sum of a group of kGroup k: of what becomes two parts, in steps of 2^-24.
  sink.put_sum(group, sum);
};

// A prepared row goes to a sink.
template <class S>
concept RowSink =
    SumSink<S> && requires(const S& sink, uint32_t octet, const uint4& high, const uint4& low, uint2 codes) {
      // If true, it takes low parts; else sums leave them out too.
      { S::kPaired } -> std::convertible_to<bool>;
      // Takes an octet: its high parts and its low ones, eight halves each; or its first and its last four floats.
      sink.put_octet(octet, high, low);
      // Takes an octet as int8. The codes are the first 64 of the 256 bytes that each segment of 64 k has.
      sink.put_codes(octet, codes);
    };

// A row that becomes digits goes to such a sink.
template <class S>
concept DigitSink = SumSink<S> && requires(const S& sink, uint32_t octet, uint32_t digit, uint2 quartets) {
  // Takes one of the three digits of an octet: its quartets (group_weights.cuh).
  sink.put_digit(octet, digit, quartets);
};
template <class S>
concept ShareSink = RowSink<S> || DigitSink<S>;

namespace detail {

// Splits v into high + low; returns their sum over the 8. If x is unpaired, low is 0.
template <PackedFormat F, bool kPaired>
__device__ inline float split(const float (&v)[8], uint4& high, uint4& low) {
  using H = typename F::Half;
  uint32_t h[4], l[4];  // two halves each
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    const float up = F::kStaggered && i % 2 == 1 ? 16 : 1, a = v[2 * i] / up, b = v[2 * i + 1] / up;
    h[i] = to_halves<H>(a, b);
    const float first = from_half<H>(h[i] & 0xffff), second = from_half<H>(h[i] >> 16);
    l[i] = kPaired ? to_halves<H>(a - first, b - second) : 0;
    sum += up * ((first + from_half<H>(l[i] & 0xffff)) + (second + from_half<H>(l[i] >> 16)));
  }
  high = {h[0], h[1], h[2], h[3]};
  low = {l[0], l[1], l[2], l[3]};
  return sum;
}

__device__ inline void unpack_octet(const float4& first, const float4& last, float (&v)[8]) {
  v[0] = first.x;
  v[1] = first.y;
  v[2] = first.z;
  v[3] = first.w;
  v[4] = last.x;
  v[5] = last.y;
  v[6] = last.z;
  v[7] = last.w;
}
// Loads the octet from k on of a row of n floats; past the row's end it has zeros.
__device__ inline void load_octet(const float* p, uint32_t k, uint32_t n, float (&v)[8]) {
  if (k + 8 <= n && reinterpret_cast<uintptr_t>(p + k) % 16 == 0) {
    const auto first = *reinterpret_cast<const float4*>(p + k), last = *reinterpret_cast<const float4*>(p + k + 4);
    unpack_octet(first, last, v);
  } else {
    for (uint32_t i = 0; i < 8; ++i) v[i] = k + i < n ? p[k + i] : 0;
  }
}

// Stores an octet's 8 floats where it belongs in shared memory.
template <PackedFormat F>
__device__ inline void put_octet(uint8_t* memory, uint32_t octet, const float (&v)[8]) {
  auto* to = reinterpret_cast<float4*>(memory + OctetPlace<F>::offset(octet));
  to[0] = {v[0], v[1], v[2], v[3]};
  to[OctetPlace<F>::kGap / 16] = {v[4], v[5], v[6], v[7]};
}
template <PackedFormat F>
__device__ inline void get_octet(const uint8_t* memory, uint32_t octet, float (&v)[8]) {
  const auto* from = reinterpret_cast<const float4*>(memory + OctetPlace<F>::offset(octet));
  const float4 first = from[0], last = from[OctetPlace<F>::kGap / 16];
  unpack_octet(first, last, v);
}

// Reads the 8 floats that put_octet() splits and stores at the offset of this
// octet. Most formats read the octet itself.
//
// A format that is kSparse reads in another order, since sparse tensor cores want each four k with two lanes. Of the
// four lanes that have 32 k, lanes 2h and 2h + 1 (h = 0, 1) share the octets h and h + 2: lane 2h reads the first two
// of each four k, lane 2h + 1 the last two.
template <PackedFormat F>
__device__ __forceinline__ void get_fragment(const uint8_t* memory, uint32_t octet, float (&v)[8]) {
  if constexpr (kSparse<F>) {
    const uint8_t* from = memory + octet / 4 * 128 + octet / 2 % 2 * 16 + octet % 2 * 8;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {  // the octet h or h + 2, its first or its last four
      const auto pair = *reinterpret_cast<const float2*>(from + i % 2 * 32 + i / 2 * OctetPlace<F>::kGap);
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
  } else {
    get_octet<F>(memory, octet, v);
  }
}

}  // namespace detail

// These are the octets of a warp's segments, in their order.
template <PackedFormat F>
class OwnOctets {
 public:
  __device__ OwnOctets(uint32_t segments, uint32_t warp)
      : warp_(warp), count_((segments + kMatvecWarps - 1 - warp) / kMatvecWarps * kOfSegment) {}
  __device__ uint32_t count() const { return count_; }
  __device__ uint32_t operator[](uint32_t i) const {
    return (warp_ + i / kOfSegment * kMatvecWarps) * kOfSegment + i % kOfSegment;
  }

 private:
  static constexpr uint32_t kOfSegment = F::kSegmentK / 8;
  uint32_t warp_, count_;
};

// A lane finds these about its warp's share of a row.
struct ShareSums {
  float unscale = 1;  // undoes kScaled
  float total = 0;    // the sum of what the lane prepared, scaled, if kTotal
  float square = 0;   // the sum of x * x, if there is a norm
};

// Before the wait: brings the norm's weights to where the warp will want them.
template <PackedFormat F>
__device__ void keep_norm(const RowSource& s, uint32_t warp, uint8_t* memory) {
  const OwnOctets<F> own(s.segments, warp);
  for (uint32_t i = lane_id(); i < own.count(); i += 32) {
    float v[8];
    detail::load_octet(s.norm, 8 * own[i], s.k, v);
    detail::put_octet<F>(memory, own[i], v);
  }
}

namespace detail {

// A lane holds so many octets of a share in registers where the share has no more: of K up to 16384. Else they lie
// in shared memory.
inline constexpr uint32_t kHeldOctets = 4;

// This is a warp's share of a row. Its x is kept at `memory`, where the norm's weights lie first.
template <PackedFormat F>
struct Share {
  const RowSource& row;
  const OwnOctets<F>& own;
  uint8_t* memory;
};

// Loads octets of the share from `begin` on, 32 apart, times the norm's weights. Adds to the lane's sum of squares;
// returns the bits of the greatest magnitude.
template <PackedFormat F, uint32_t kAtOnce>
__device__ __forceinline__ uint32_t load_octets(const Share<F>& share, uint32_t begin, float (&v)[kAtOnce][8],
                                                float& square) {
  const RowSource& s = share.row;
  const OwnOctets<F>& own = share.own;
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t u = 0; u < kAtOnce; ++u) {  // all are under way together
    if (begin + 32 * u < own.count()) load_octet(s.x, 8 * own[begin + 32 * u], s.k, v[u]);
  }
#pragma unroll
  for (uint32_t u = 0; u < kAtOnce; ++u) {
    if (begin + 32 * u >= own.count()) break;
    if (s.norm != nullptr) {
      float weight[8];
      get_octet<F>(share.memory, own[begin + 32 * u], weight);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        square = fmaf(v[u][i], v[u][i], square);
        v[u][i] *= weight[i];
      }
    }
#pragma unroll
    for (const float f : v[u]) largest = max(largest, __float_as_uint(f) & 0x7fffffff);
  }
  return largest;
}
// Does the same with all of the share, and keeps it in the place of the norm's weights.
template <PackedFormat F>
__device__ __forceinline__ uint32_t keep_x(const Share<F>& share, float& square) {
  const OwnOctets<F>& own = share.own;
  constexpr uint32_t kAtOnce = 3;
  uint32_t largest = 0;
  for (uint32_t begin = lane_id(); begin < own.count(); begin += 32 * kAtOnce) {
    float v[kAtOnce][8];
    largest = max(largest, load_octets(share, begin, v, square));
#pragma unroll
    for (uint32_t u = 0; u < kAtOnce; ++u) {
      if (begin + 32 * u < own.count()) put_octet<F>(share.memory, own[begin + 32 * u], v[u]);
    }
  }
  return largest;
}

// Hands the sum of an octet's group to the sink, times `unit`, if the format needs it; whole warps do. sum: that of the
// octet, if it is there, else 0.
template <PackedFormat F, SumSink Sink>
__device__ __forceinline__ void put_group_sum(uint32_t octet, bool there, float sum, float unit, const Sink& sink) {
  if constexpr (kNeedsSums<F>) {
    constexpr uint32_t kLanes = F::kGroup / 8;
    for (uint32_t d = 1; d < kLanes; d *= 2) sum += __shfl_xor_sync(~0U, sum, d);
    if (there && lane_id() % kLanes == 0) sink.put_sum(octet / kLanes, sum * unit);
  }
}

// Hands octet i of the share to the sink, times `scale` and split; whole warps do. Returns the sum of what the lane has
// handed over.
template <PackedFormat F, RowSink Sink>
__device__ __forceinline__ float put_split(const OwnOctets<F>& own, uint32_t i, float (&v)[8], float scale,
                                           const Sink& sink) {
  const uint32_t octet = own[i];
  float sum = 0;
  if (i < own.count()) {
    uint4 high, low;
    if constexpr (OctetPlace<F>::kSplit) {
#pragma unroll
      for (float& f : v) f *= scale;
      sum = split<F, Sink::kPaired>(v, high, low);
    } else {
      high = __builtin_bit_cast(uint4, make_float4(v[0], v[1], v[2], v[3]));
      low = __builtin_bit_cast(uint4, make_float4(v[4], v[5], v[6], v[7]));
    }
    sink.put_octet(octet, high, low);
  }
  put_group_sum<F>(octet, i < own.count(), sum, kDenormalStep, sink);
  return sum;
}

// These are the quartets of each of three digits, lowest first.
struct DigitQuartets {
  uint32_t of[3];
};
// Each digit of the four integers u is biased by 128.
__device__ __forceinline__ DigitQuartets quartets_of(const uint4& u) {
  constexpr uint32_t kUnbias = 0x80808080;
  // Each has digits of two integers, the lower two side by side or the third.
  const uint32_t first = __byte_perm(u.x, u.y, 0x5140), last = __byte_perm(u.z, u.w, 0x5140),
                 first_third = __byte_perm(u.x, u.y, 0x0062), last_third = __byte_perm(u.z, u.w, 0x0062);
  return {{__byte_perm(first, last, 0x5410) ^ kUnbias, __byte_perm(first, last, 0x7632) ^ kUnbias,
           __byte_perm(first_third, last_third, 0x5410) ^ kUnbias}};
}
// Hands octet i to the sink, times `scale`, which makes it less than 2^22, and rounded to integers of three digits.
template <PackedFormat F, DigitSink Sink>
__device__ __forceinline__ void put_digits(const OwnOctets<F>& own, uint32_t i, const float (&v)[8], float scale,
                                           const Sink& sink) {
  // A float of 1.5 * 2^23 plus an integer has the integer in its bits.
  constexpr uint32_t kRounding = 0x4b400000, kBias = 0x00808080;
  const uint32_t octet = own[i];
  uint32_t sum = 0;
  if (i < own.count()) {
    uint32_t u[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      u[j] = __float_as_uint(fmaf(v[j], scale, __uint_as_float(kRounding))) - kRounding + kBias;
      sum += u[j];
    }
    sum -= 8 * kBias;
    // The first quartet has k 0 and 5 outside, and kSecond and kThird between them.
    constexpr int kSecond = kQuartetsOfPairs<F> ? 1 : 4, kThird = 5 - kSecond;
    const DigitQuartets first = quartets_of({u[0], u[kSecond], u[kThird], u[5]}),
                        last = quartets_of({u[2], u[2 + kSecond], u[2 + kThird], u[7]});
#pragma unroll
    for (uint32_t digit = 0; digit < 3; ++digit) sink.put_digit(octet, digit, {first.of[digit], last.of[digit]});
  }
  put_group_sum<F>(octet, i < own.count(), static_cast<float>(static_cast<int32_t>(sum)), 1, sink);
}

// Returns what a share is multiplied by, given the bits of its lanes' greatest magnitudes, and notes what undoes it.
template <PackedFormat F, ShareSink Sink>
__device__ __forceinline__ float scale_of(uint32_t largest, ShareSums& found) {
  constexpr uint32_t kInfinity = 0x7f800000, kNaN = 0x7fffffff;
  if constexpr (!DigitSink<Sink> && !F::kScaled) return 1;
  const uint32_t all = __reduce_max_sync(~0U, largest);
  // These are the exponent's bits of 2^13, or for digits 2^21, over the largest's power of two.
  const uint32_t bits = min((DigitSink<Sink> ? 275 : 267) - (all >> 23), 253U);
  // Digits of what is not finite are numbers like any others: their sums must not be.
  found.unscale = __uint_as_float(DigitSink<Sink> && all >= kInfinity ? kNaN : (254 - bits) << 23);
  return __uint_as_float(bits << 23);
}

// Hands octet i of the share to the sink, times `scale`; whole warps do.
template <PackedFormat F, ShareSink Sink>
__device__ __forceinline__ void put(const OwnOctets<F>& own, uint32_t i, float (&v)[8], float scale, const Sink& sink,
                                    ShareSums& found) {
  if constexpr (DigitSink<Sink>) {
    put_digits<F>(own, i, v, scale, sink);
  } else {
    found.total += put_split<F>(own, i, v, scale, sink);
  }
}

// Takes an octet of columns from a whole row in shared memory, whose octets are in their own places.
template <PackedFormat F>
__device__ __forceinline__ void take_in_order(const RowSource& s, const uint8_t* row, uint32_t octet, float (&v)[8]) {
  union {
    uint4 words;
    uint16_t columns[8];
  } order{};
  const bool there = 8 * octet < s.k;
  if (there) order.words = reinterpret_cast<const uint4*>(s.order)[octet];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t column = order.columns[i];
    const uint32_t at = OctetPlace<F>::offset(column / 8) + column / 4 % 2 * OctetPlace<F>::kGap + column % 4 * 4;
    v[i] = there ? *reinterpret_cast<const float*>(row + at) : 0;
  }
}
// Does what prepare_share() does where columns have an order of their own. All of the block's warps call it: each brings
// its share of x as it lies, and takes the columns that it multiplies from all of x.
template <PackedFormat F, ShareSink Sink>
__device__ __forceinline__ ShareSums prepare_in_order(const RowSource& s, uint32_t warp, uint8_t* memory,
                                                      const Sink& sink) {
  const OwnOctets<F> own(s.segments, warp);
  ShareSums found;
  keep_x(Share<F>{s, own, memory}, found.square);
  __syncthreads();
  float v[kHeldOctets][8];
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t h = 0; h < kHeldOctets; ++h) {
    const uint32_t i = 32 * h + lane_id();
    if (i >= own.count()) break;
    take_in_order<F>(s, memory, own[i], v[h]);
#pragma unroll
    for (const float f : v[h]) largest = max(largest, __float_as_uint(f) & 0x7fffffff);
  }
  const float scale = scale_of<F, Sink>(largest, found);
  __syncthreads();  // the sink may write where x lies
#pragma unroll
  for (uint32_t h = 0; h < kHeldOctets; ++h) {
    if (32 * h < own.count()) put<F>(own, 32 * h + lane_id(), v[h], scale, sink, found);
  }
  __syncwarp();
  return found;
}

}  // namespace detail

// A row of up to so many columns, whole octets, may have an order.
inline constexpr uint32_t kMostOrdered = 32 * detail::kHeldOctets * kMatvecWarps * 8;

// After the wait and, if there is a norm, after keep_norm(): prepares the warp's share of a row. `memory` is in shared
// memory, 4 bytes a k, 16-byte aligned. The sink may write an octet to the octet's own place in `memory`, and digits to
// those of the eight octets of the same 64 k. Digits of a share with a number that is not finite give results that are
// not. Only formats that say kTakesOrder take a row with an order.
template <PackedFormat F, ShareSink Sink>
__device__ ShareSums prepare_share(const RowSource& s, uint32_t warp, uint8_t* memory, const Sink& sink) {
  if constexpr (kTakesOrder<F>) {
    if (s.order != nullptr) return detail::prepare_in_order<F>(s, warp, memory, sink);
  }
  const OwnOctets<F> own(s.segments, warp);
  const detail::Share<F> share{s, own, memory};
  ShareSums found;
  const auto put = [&](uint32_t i, float(&v)[8], float scale) { detail::put<F>(own, i, v, scale, sink, found); };
  if (!kSparse<F> && own.count() <= 32 * detail::kHeldOctets) {
    float v[detail::kHeldOctets][8];
    const uint32_t largest = detail::load_octets(share, lane_id(), v, found.square);
    const float scale = detail::scale_of<F, Sink>(largest, found);
#pragma unroll
    for (uint32_t h = 0; h < detail::kHeldOctets; ++h) {
      if (32 * h < own.count()) put(32 * h + lane_id(), v[h], scale);
    }
  } else {
    const uint32_t largest = detail::keep_x(share, found.square);
    const float scale = detail::scale_of<F, Sink>(largest, found);
    __syncwarp();  // a fragment has what other lanes have put there
    for (uint32_t begin = 0; begin < own.count(); begin += 32) {
      const uint32_t i = begin + lane_id();
      float v[8];
      if (i < own.count()) detail::get_fragment<F>(memory, own[i], v);
      __syncwarp();  // all have got what lies where they put
      put(i, v, scale);
    }
  }
  __syncwarp();
  return found;
}

// Returns RMSNorm's factor from the squares of all warps' shares.
__device__ inline float norm_factor(const float* squares, uint32_t k, float eps) {
  float square = 0;
  for (uint32_t w = 0; w < kMatvecWarps; ++w) square += squares[w];
  return rsqrtf(square / static_cast<float>(k) + eps);
}

}  // namespace tenon::cuda
