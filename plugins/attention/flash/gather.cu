// Copies what a step's rows see of a view; gather.h says what of which view. A block has some spots of a KV head of a
// copied sequence: it finds how many cells come before its own, finds these, and copies their keys and values, all loads
// first. Blocks after those turn the queries, where keys are turned.
#include <type_traits>

#include "gather.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"

namespace tenon::flash {
namespace {

using attention::after_window;

constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;
constexpr uint32_t kSpotsOfBlock = 32;    // a block copies the cells of so many spots
constexpr uint32_t kQueriesOfBlock = 32;  // or turns so many queries
constexpr int32_t kNoLimit = 1 << 30;     // copies are read up to a row's place, whatever came before the step

struct CopyPointers {
  void *keys, *values;
  int32_t* pages;
  uint32_t* live;
  int32_t *pos, *slot, *seq_slot, *seq_row, *kv_len;
  float* queries;
  int32_t* cell_of;
  float* weights;
};

// ---- what a copied sequence has ---------------------------------------------------------------------------------------
struct Copied {
  uint32_t number, slot, first_row, rows;
  uint32_t first_page;  // the copy begins at it
  uint32_t first_pos, last_pos;
};

// Spots are where cells may be that a copied sequence has; some spots have none. Their order is that of places.
class Spots {
 public:
  // taken: a bit for each cell of a table, in shared memory. The whole block makes it together.
  __device__ Spots(const GatherArgs& a, const ViewPointers& p, const Copied& s, uint32_t kv_head, uint32_t* taken)
      : a_(a), p_(p), s_(s), head_(kv_head), taken_(taken), kv_len_(static_cast<uint32_t>(p.kv_len[s.slot])) {
    if (a.kv.rule == TENON_POS_TABLE) {
      used_ = static_cast<uint32_t>(p.used[a.kv.apart() ? size_t{s.slot} * a.kv.heads + kv_head : s.slot]);
      count_ = static_cast<uint32_t>(a.kv.capacity()) + s.rows;
      find_taken();
    } else if (a.most_spans != 0) {
      own_ = after_window(s.last_pos, a.window);
      list_ = p.chosen + (size_t{s.first_row} * a.kv.heads + kv_head) * (1 + a.most_spans);
      old_ = list_[0] < 0 ? 0 : static_cast<uint32_t>(list_[0]) * a.span_cells;
      // No row of so few sees all (tenon/abi/kv_cache.h); one that did would see its newest cells.
      if (list_[0] < 0) own_ = max(own_, after_window(s.last_pos, a.spots));
      first_ = list_[0] < 0 ? own_ : kv_len_;
      count_ = old_ + s.last_pos + 1 - first_;
    } else {
      own_ = after_window(s.first_pos, a.window);
      first_ = max(own_, after_window(s.first_pos, a.kv.window));
      if (a.row_apart != 0) {
        const uint32_t sinks = min(a.kv.sinks, s.last_pos + 1);
        first_ = max(first_, sinks);
        old_ = sinks > own_ ? sinks - own_ : 0;
      }
      count_ = old_ + s.last_pos + 1 - first_;
    }
  }
  __device__ uint32_t count() const { return count_; }
  __device__ const Copied& sequence() const { return s_; }
  __device__ uint32_t head() const { return head_; }
  // Says whether there is a cell, and if so which, and its position (of a table's: none).
  __device__ bool find(uint32_t spot, uint32_t& cell, uint32_t& position) const {
    if (spot >= count_) return false;
    if (a_.kv.rule == TENON_POS_TABLE) return find_in_table(spot, cell);
    if (a_.most_spans == 0) {
      position = spot < old_ ? own_ + spot : first_ + spot - old_;
      cell = a_.kv.cell_of(position);
      return true;
    }
    const bool old = spot < old_;
    position = old ? static_cast<uint32_t>(list_[1 + spot / a_.span_cells]) * a_.span_cells + spot % a_.span_cells
                   : first_ + spot - old_;
    cell = position;
    return position >= own_ && (!old || position < kv_len_);
  }
  // Returns how many spots before this one have cells; the whole block calls it.
  __device__ uint32_t before(uint32_t spot) const {
    if (a_.kv.rule == TENON_POS_RING) return spot;
    __shared__ uint32_t of_warp[kWarps];
    uint32_t own = 0;
    if (a_.kv.rule == TENON_POS_TABLE) {
      for (uint32_t i = threadIdx.x; i < min(spot, used_); i += kAtOnce * kThreads) own += old_cells(i, spot);
      if (spot > a_.kv.capacity()) own += threadIdx.x == 0 ? spot - static_cast<uint32_t>(a_.kv.capacity()) : 0;
    } else {
      for (uint32_t i = threadIdx.x; i < spot; i += kThreads) {
        uint32_t cell = 0, position = 0;
        own += find(i, cell, position) ? 1 : 0;
      }
    }
    own = __reduce_add_sync(~0u, own);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    uint32_t all = 0;
    for (const uint32_t n : of_warp) all += n;
    return all;
  }

 private:
  __device__ uint32_t cell_of_row(uint32_t row) const {
    return static_cast<uint32_t>(a_.kv.apart() ? p_.place[size_t{row} * a_.kv.heads + head_] : p_.place[row]);
  }
  // A cell that is the place of a row of the step is no old one.
  __device__ void find_taken() const {
    const auto words = static_cast<uint32_t>((a_.kv.capacity() + 31) / 32);
    for (uint32_t i = threadIdx.x; i < words; i += kThreads) taken_[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < s_.rows; i += kThreads) {
      const uint32_t cell = cell_of_row(s_.first_row + i);
      if (cell < a_.kv.capacity()) atomicOr(taken_ + cell / 32, 1u << cell % 32);
    }
    __syncthreads();
  }
  // A step's row has a cell: a cache that has none for it would not have let it come.
  __device__ bool find_in_table(uint32_t spot, uint32_t& cell) const {
    const auto capacity = static_cast<uint32_t>(a_.kv.capacity());
    cell = spot < capacity ? spot : cell_of_row(s_.first_row + spot - capacity);
    return spot < capacity ? is_old(spot, page_of(spot)) : cell < capacity;
  }
  __device__ __forceinline__ int32_t page_of(uint32_t cell) const {
    if (cell >= used_ || (taken_[cell / 32] >> cell % 32 & 1) != 0) return -1;
    return KvCells({a_.kv, a_.kv.k, nullptr, nullptr, p_.pages}, s_.slot, head_).page(cell);
  }
  __device__ __forceinline__ bool is_old(uint32_t cell, int32_t page) const {
    if (page < 0) return false;
    const size_t entry = a_.kv.apart() ? static_cast<size_t>(page) * a_.kv.heads + head_ : static_cast<size_t>(page);
    const int32_t position = p_.table[entry * a_.kv.page_cells + (cell & (a_.kv.page_cells - 1))];
    return position >= 0 && static_cast<uint32_t>(position) < kv_len_;
  }
  // Returns how many of kAtOnce cells below `end`, kThreads apart, are old; their loads are issued together.
  __device__ uint32_t old_cells(uint32_t first, uint32_t end) const {
    int32_t page[kAtOnce];
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) {
      const uint32_t cell = first + j * kThreads;
      page[j] = cell < end ? page_of(cell) : -1;
    }
    uint32_t count = 0;
#pragma unroll
    for (uint32_t j = 0; j < kAtOnce; ++j) count += is_old(first + j * kThreads, page[j]) ? 1 : 0;
    return count;
  }

  static constexpr uint32_t kAtOnce = 8;
  const GatherArgs& a_;
  const ViewPointers& p_;
  const Copied& s_;
  uint32_t head_;
  uint32_t* taken_;
  uint32_t kv_len_, count_ = 0;
  uint32_t used_ = 0;    // TABLE
  const int32_t* list_;  // spans: how many, and their numbers
  // The first `old` spots are a ring's cells from position own on, or those of spans; the others begin at position first.
  uint32_t own_ = 0, first_ = 0, old_ = 0;
};

// ---- copying ----------------------------------------------------------------------------------------------------------
// A block has found cells, one after the other.
struct Found {
  uint32_t cell[kSpotsOfBlock], position[kSpotsOfBlock];
  const void *key[kSpotsOfBlock], *value[kSpotsOfBlock];  // the cell's; nullptr: it has no page
  uint32_t count;
};

// These are eight elements of a head, as they are stored.
template <class C>
struct Eight {
  static constexpr uint32_t kBytes = sdk::kTwoInAByte<C> ? 4 : 8 * sizeof(typename C::Stored);
  struct alignas(kBytes) {
    typename C::Stored stored[kBytes / sizeof(typename C::Stored)];
  } raw;
  __device__ __forceinline__ void load(const void* row, uint32_t d) {
    raw = *reinterpret_cast<const decltype(raw)*>(static_cast<const char*>(row) + d / 8 * kBytes);
  }
  __device__ __forceinline__ float operator()(uint32_t i, float scale) const {
    return C::decode(sdk::kv_code<C>(raw.stored, i), scale);
  }
};
template <cuda::HalfType E>
struct alignas(16) EightHalves {
  E e[8];
};

// Says whether heads can be copied eight elements at a time, with the partners of those that turn.
inline bool goes_by_eights(const GatherArgs& a) {
  const auto bytes = [](const cuda::KvPlane& p) {
    return p.codec == TENON_U8 ? 4 : sdk::kv_element_bytes(p.codec) * 8;
  };
  const auto fits = [&](const cuda::KvPlane& p) {
    const auto whole = static_cast<int64_t>(bytes(p));
    return p.page % whole == 0 && p.cell % whole == 0 && p.head % whole == 0;
  };
  return fits(a.kv.k) && fits(a.kv.v) && (a.turns == 0 || a.rotated % 16 == 0);
}

// These are keys or values of `count` cells, and the places, one after the other, that they go to.
template <cuda::HalfType E>
struct Side {
  const void* const* row;  // by number; nullptr: zeros
  const uint32_t* cell;    // by number
  uint32_t count, dim;
  E* to;              // (count, dim)
  const float* rope;  // nullptr: they are not turned
};
// The block copies them. index(i) is the rope's index of the i-th.
template <class C, bool kEights, cuda::HalfType E, class Index>
__device__ __forceinline__ void copy_side(const GatherArgs& a, const KvCells& cells, const Side<E>& side,
                                          const Index& index) {
  const auto [rows, cell, count, dim, to, rope] = side;
  if constexpr (!kEights) {
    for (uint32_t i = threadIdx.x / 32; i < count; i += kWarps) {
      const auto* row = static_cast<const typename C::Stored*>(rows[i]);
      const float scale = row != nullptr && C::kScaled ? cells.scale(cell[i]) : 1;
      const auto x = [&](uint32_t d) { return row == nullptr ? 0 : C::decode(sdk::kv_code<C>(row, d), scale); };
      for (uint32_t d = threadIdx.x % 32; d < dim; d += 32) {
        to[i * dim + d] = cuda::from_float<E>(rope == nullptr ? x(d) : turned(a, rope, index(i), d, x));
      }
    }
  } else {
    const uint32_t of_row = dim / 8, all = count * of_row;
    const sdk::RopePairs pairs = a.rope_pairs();
    const bool apart = pairs.pairing == 0;  // the eight partners follow each other elsewhere, or are among the eight
#pragma unroll 4
    for (uint32_t n = threadIdx.x; n < all; n += kThreads) {
      const uint32_t i = n / of_row, d = n % of_row * 8;
      EightHalves<E> out{};
      if (rows[i] != nullptr) {
        Eight<C> own, other;
        own.load(rows[i], d);
        const float scale = C::kScaled ? cells.scale(cell[i]) : 1;
        if (rope == nullptr || d >= 2 * pairs.half()) {
#pragma unroll
          for (uint32_t e = 0; e < 8; ++e) out.e[e] = cuda::from_float<E>(own(e, scale));
        } else {
          const bool second = apart && pairs.is_second(d);
          if (apart) other.load(rows[i], pairs.partner(d));
          const int32_t at = index(i);
          const auto* angles = reinterpret_cast<const float2*>(rope) +
                               size_t{static_cast<uint32_t>(abs(at))} * pairs.half() + pairs.pair(d);
          const float sign = at < 0 ? -1 : 1;
#pragma unroll
          for (uint32_t e = 0; e < 8; ++e) {
            const float2 angle = angles[apart ? e : e / 2];
            const float x = own(e, scale), y = apart ? other(e, scale) : own(e ^ 1, scale);
            const bool is_second = apart ? second : e % 2 != 0;
            out.e[e] = cuda::from_float<E>(x * angle.x + (is_second ? y : -y) * angle.y * sign);
          }
        }
      }
      *reinterpret_cast<EightHalves<E>*>(to + i * dim + d) = out;
    }
  }
}

// The word of the copies' LIVE is this one of the step's.
__device__ __forceinline__ uint32_t of_live(const GatherArgs& a, uint32_t word) {
  return word == sdk::kLiveSeqs && a.row_apart != 0 ? uint32_t{sdk::kLiveRows} : word;
}
// Says where the copied sequence is, in the place of the step's own state.
__device__ void describe(const GatherArgs& a, const ViewPointers& p, const CopyPointers& to, const Copied& s,
                         bool there) {
  const auto number = static_cast<int32_t>(s.number);
  // No row sees a page past the sequence's own, but all are pages that there are.
  for (uint32_t i = threadIdx.x; i < a.columns; i += kThreads) {
    to.pages[size_t{s.number} * a.columns + i] = static_cast<int32_t>(min(s.first_page + i, a.all_pages - 1));
  }
  for (uint32_t i = threadIdx.x; i < s.rows; i += kThreads) to.slot[s.first_row + i] = there ? number : -1;
  if (threadIdx.x != 0) return;
  to.seq_slot[s.number] = there ? number : -1;
  to.seq_row[s.number] = static_cast<int32_t>(s.first_row);
  to.seq_row[s.number + 1] = static_cast<int32_t>(s.first_row + s.rows);
  to.kv_len[s.number] = kNoLimit;
}

// These are queries of a sequence, of its rows and of the query heads of a KV head.
struct Turning {
  uint32_t kv_head, first;  // from this number on
  uint32_t end;             // the place after that of the sequence's last row
  float* to;                // (rows of the step, query heads, dim)
};
__device__ void turn_queries(const GatherArgs& a, const ViewPointers& p, const Copied& s, const Turning& turning) {
  const auto [kv_head, first, rows_end, to] = turning;
  const uint32_t all = s.rows * a.group, dim = a.kv.k.dim;
  for (uint32_t i = first + threadIdx.x / 32; i < min(all, first + kQueriesOfBlock); i += kWarps) {
    const uint32_t row = s.first_row + i / a.group, head = kv_head * a.group + i % a.group;
    const uint32_t position = static_cast<uint32_t>(p.pos[row]);
    const int32_t index = a.row_apart != 0 ? static_cast<int32_t>(position - a.kv.shift_at(position))
                                           : static_cast<int32_t>(rows_end - s.rows + i / a.group) - a.middle;
    const float* q = p.q + row * a.q_row + head * dim;
    for (uint32_t d = threadIdx.x % 32; d < dim; d += 32) {
      to[(size_t{row} * a.q_heads + head) * dim + d] = turned(a, p.rope, index, d, [&](uint32_t e) { return q[e]; });
    }
  }
}

// Returns the copied sequence of that number, and whether there is anything of it.
__device__ __forceinline__ bool find_sequence(const GatherArgs& a, const ViewPointers& p, uint32_t number, Copied& s) {
  const int32_t slot = a.row_apart != 0 ? p.slot[number] : p.seq_slot[number];
  s = {.number = number, .slot = static_cast<uint32_t>(slot), .first_row = number, .rows = 1};
  if (a.row_apart == 0) {
    s.first_row = static_cast<uint32_t>(p.seq_row[number]);
    s.rows = static_cast<uint32_t>(p.seq_row[number + 1]) - s.first_row;
  }
  s.first_page = number * a.pages_apart + (a.and_rows != 0 ? s.first_row / kCopiedPage : 0);
  if (slot < 0 || s.rows == 0) return false;
  s.first_pos = static_cast<uint32_t>(p.pos[s.first_row]);
  s.last_pos = static_cast<uint32_t>(p.pos[s.first_row + s.rows - 1]);
  return true;
}

// The cells of a block's spots are found by its first warp, which has a lane for each; they get places from `first` on.
struct Finding {
  uint32_t begin, first;  // the first spot; so many spots before it have cells
  const KvCells &keys, &values;
};
__device__ __forceinline__ void find_cells(const GatherArgs& a, const CopyPointers& to, const Spots& spots,
                                           const Finding& finding, Found& found) {
  static_assert(kSpotsOfBlock == 32);
  const auto [begin, first, keys, values] = finding;
  const uint32_t spot = begin + threadIdx.x;
  const Copied& s = spots.sequence();
  const size_t line = size_t{s.number} * a.kv.heads + spots.head();
  uint32_t cell = 0, position = 0;
  const bool seen = spots.find(spot, cell, position);
  const uint32_t all = __ballot_sync(~0u, seen), at = static_cast<uint32_t>(__popc(all & ((1u << threadIdx.x) - 1)));
  if (seen) {
    found.cell[at] = cell;
    found.position[at] = position;
    found.key[at] = keys.at(cell);
    found.value[at] = values.at(cell);
    if (a.lists != 0 && first + at < a.room) to.cell_of[line * a.room + first + at] = static_cast<int32_t>(cell);
  } else if (a.lists != 0 && spot < a.kv.capacity()) {
    to.weights[(size_t{s.slot} * a.kv.heads + spots.head()) * a.kv.capacity() + spot] = 0;
  }
  const auto count = static_cast<uint32_t>(__popc(all));
  if (threadIdx.x == 0) found.count = min(count, a.room > first ? a.room - first : 0);
}

// The grid has along x chunks of spots and then of queries, KV heads along y, copied sequences along z.
template <class C, cuda::HalfType E, bool kEights>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ GatherArgs a, const __grid_constant__ ViewPointers p,
                  const __grid_constant__ CopyPointers to, uint32_t spot_chunks) {
  extern __shared__ uint32_t taken[];
  __shared__ Found found;
  cuda::wait();
  const uint32_t number = blockIdx.z, kv_head = blockIdx.y, chunk = blockIdx.x;
  const bool is_first = kv_head == 0 && chunk == 0;
  if (number == 0 && is_first && threadIdx.x < 4) to.live[threadIdx.x] = p.live[of_live(a, threadIdx.x)];
  if (number >= p.live[of_live(a, sdk::kLiveSeqs)]) return;
  Copied s;
  const bool there = find_sequence(a, p, number, s);
  if (is_first) describe(a, p, to, s, there);
  if (!there) return;
  const Spots spots(a, p, s, kv_head, taken);
  if (chunk >= spot_chunks) {  // spots of a ring all have cells
    return turn_queries(a, p, s, {kv_head, (chunk - spot_chunks) * kQueriesOfBlock, spots.count(), to.queries});
  }
  const uint32_t begin = chunk * kSpotsOfBlock;
  if (begin >= spots.count()) return;

  const uint32_t first = spots.before(begin);
  const KvCells keys({a.kv, a.kv.k, p.keys, p.key_scales, p.pages}, s.slot, kv_head);
  const KvCells values({a.kv, a.kv.v, p.values, p.value_scales, p.pages}, s.slot, kv_head);
  if (threadIdx.x < kSpotsOfBlock) find_cells(a, to, spots, {begin, first, keys, values}, found);
  __syncthreads();
  const uint32_t count = found.count;
  if (begin + kSpotsOfBlock >= spots.count()) {  // it is the last chunk
    for (uint32_t i = threadIdx.x; i < s.rows; i += kThreads) {
      const auto place = static_cast<int32_t>(first + count - s.rows + i);
      to.pos[size_t{kv_head} * a.rows + s.first_row + i] = max(place, -1);
    }
  }

  // ---- keys and values, in one page of the copy or two ----
  const CopiedHead head{s.first_page, kv_head, a.kv.heads};
  const float* rope = a.turns != 0 ? p.rope : nullptr;
  const uint32_t k_dim = a.kv.k.dim, v_dim = a.kv.v.dim;
  const auto copy = [&](uint32_t from, uint32_t n) {
    const auto index = [&](uint32_t i) {
      if (a.row_apart == 0) return static_cast<int32_t>(first + from + i) - a.middle;
      const uint32_t at = found.position[from + i];
      return static_cast<int32_t>(at < a.kv.sinks ? at : at - a.kv.shift_at(s.last_pos));
    };
    E* own_keys = static_cast<E*>(to.keys) + element_at(head, first + from, k_dim);
    E* own_values = static_cast<E*>(to.values) + element_at(head, first + from, v_dim);
    const uint32_t* cell = found.cell + from;
    copy_side<C, kEights>(a, keys, Side<E>{found.key + from, cell, n, k_dim, own_keys, rope}, index);
    copy_side<C, kEights>(a, values, Side<E>{found.value + from, cell, n, v_dim, own_values, nullptr}, index);
  };
  const uint32_t in_page = min(count, kCopiedPage - first % kCopiedPage);
  copy(0, in_page);
  if (count > in_page) copy(in_page, count - in_page);
}

}  // namespace

void gather(const GatherArgs& a, const cuda::Launch& l) {
  const CopyPointers to{l.ptr<void>(kCopiedKeys),       l.ptr<void>(kCopiedValues),    l.ptr<int32_t>(kCopiedPages),
                        l.ptr<uint32_t>(kCopiedLive),   l.ptr<int32_t>(kCopiedPos),    l.ptr<int32_t>(kCopiedSlot),
                        l.ptr<int32_t>(kCopiedSeqSlot), l.ptr<int32_t>(kCopiedSeqRow), l.ptr<int32_t>(kCopiedKvLen),
                        l.ptr<float>(kTurnedQueries),   l.ptr<int32_t>(kCellOf),       l.ptr<float>(kCellWeights)};
  const uint32_t chunks = (a.spots + kSpotsOfBlock - 1) / kSpotsOfBlock;
  const uint32_t turning = a.turns != 0 ? (a.sequence_rows * a.group + kQueriesOfBlock - 1) / kQueriesOfBlock : 0;
  const size_t bits = a.kv.rule == TENON_POS_TABLE ? (a.kv.capacity() + 31) / 32 * sizeof(uint32_t) : 0;
  cuda::with_kv_codec(a.kv.k.codec, [&]<class C>(C) {
    if constexpr (!std::is_same_v<C, sdk::KvF32>) {
      using E = std::conditional_t<std::is_same_v<C, cuda::KvBf16>, __nv_bfloat16, __half>;
      l(goes_by_eights(a) ? &gather_kernel<C, E, true> : &gather_kernel<C, E, false>,
        {.blocks = {chunks + turning, a.kv.heads, a.copied}, .threads = {kThreads}, .shared_bytes = bits}, a,
        ViewPointers(l), to, chunks);
    }
  });
}

}  // namespace tenon::flash
