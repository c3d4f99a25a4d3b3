// gather.h says what these kernels are for.
#include <algorithm>
#include <type_traits>

#include "cuda_ops.h"
#include "gather.h"
#include "softmax.cuh"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/mma.cuh"
#include "tenon/cuda/overlap.cuh"
#include "tenon/cuda/shared_memory.cuh"
#include "tenon/sdk/live.h"
#include "tiles.cuh"

namespace tenon::flash {
namespace {

using attention::ViewArgs;
using cuda::KvCells;

constexpr uint32_t kWarps = 4, kThreads = 32 * kWarps;
constexpr uint32_t kLanesOfBlock = 32;    // a block copies the cells of so many lanes
constexpr uint32_t kQueriesOfBlock = 32;  // or turns so many queries
constexpr int32_t kNoLimit = 1 << 30;     // copies are read up to a row's place, whatever came before the step

// These are the view and the step.
struct ViewPointers {
  const float* q;
  float* out;
  void *keys, *values, *key_scales, *value_scales;
  const int32_t *pages, *place, *used, *table;
  const uint32_t* live;
  const int32_t *pos, *slot, *kv_len, *seq_slot, *seq_row, *chosen;
  const float* rope;
  float* sums;

  explicit ViewPointers(const cuda::Launch& l)
      : q(l.ptr<const float>(attention::kQ)),
        out(l.ptr<float>(attention::kOut)),
        keys(l.ptr<void>(attention::kKeyPlane)),
        values(l.ptr<void>(attention::kValuePlane)),
        key_scales(l.ptr<void>(attention::kKeyScales)),
        value_scales(l.ptr<void>(attention::kValueScales)),
        pages(l.ptr<const int32_t>(attention::kPages)),
        place(l.ptr<const int32_t>(attention::kPlace)),
        used(l.ptr<const int32_t>(attention::kUsed)),
        table(l.ptr<const int32_t>(attention::kTable)),
        live(l.ptr<const uint32_t>(attention::kLive)),
        pos(l.ptr<const int32_t>(attention::kPos)),
        slot(l.ptr<const int32_t>(attention::kSlot)),
        kv_len(l.ptr<const int32_t>(attention::kKvLen)),
        seq_slot(l.ptr<const int32_t>(attention::kSeqSlot)),
        seq_row(l.ptr<const int32_t>(attention::kSeqRow)),
        chosen(l.ptr<const int32_t>(attention::kChosen)),
        rope(l.ptr<const float>(attention::kRope)),
        sums(l.ptr<float>(attention::kSums)) {}
};
struct CopyPointers {
  void *keys, *values;
  int32_t* pages;
  uint32_t* live;
  int32_t *pos, *slot, *seq_slot, *seq_row, *kv_len;
  float* queries;
  int32_t* cell_of;
  float* weights;
};

// Returns the first position that a window of so many shows a row at position n; 0: it shows all.
__device__ __forceinline__ uint32_t after_window(uint32_t n, uint32_t window) {
  return window != 0 && n >= window ? n + 1 - window : 0;
}

// ---- rope -------------------------------------------------------------------------------------------------------------
// This is a head of f32 numbers, given by x(d).
template <class X>
__device__ __forceinline__ float turned(const ViewArgs& a, const float* rope, int32_t index, uint32_t d, const X& x) {
  const uint32_t rotated = static_cast<uint32_t>(a.rotated), half = rotated / 2;
  if (d >= rotated) return x(d);
  const bool second = a.pairing == 0 ? d >= half : d % 2 != 0;
  const uint32_t other = a.pairing != 0 ? d ^ 1 : second ? d - half : d + half;
  const uint32_t pair = a.pairing == 0 ? d % half : d / 2;
  const auto row = static_cast<uint32_t>(index < 0 ? -index : index);
  const float2 angle = reinterpret_cast<const float2*>(rope)[size_t{row} * half + pair];
  const float sine = index < 0 ? -angle.y : angle.y;
  return second ? x(other) * sine + x(d) * angle.x : x(d) * angle.x - x(other) * sine;
}

// ---- what a copied sequence has ---------------------------------------------------------------------------------------
struct Copied {
  uint32_t number, slot, first_row, rows;
  uint32_t first_pos, last_pos;
};

// Lanes are where cells may be that a copied sequence has; some lanes have none. Their order is that of places.
class Lanes {
 public:
  // taken: a bit for each cell of a table, in shared memory. The whole block makes it together.
  __device__ Lanes(const GatherArgs& a, const ViewPointers& p, const Copied& s, uint32_t kv_head, uint32_t* taken)
      : a_(a), p_(p), s_(s), head_(kv_head), taken_(taken), kv_len_(static_cast<uint32_t>(p.kv_len[s.slot])) {
    if (a.kv.rule == TENON_POS_TABLE) {
      line_ = a.kv.apart() ? size_t{s.slot} * a.kv.heads + kv_head : s.slot;
      used_ = static_cast<uint32_t>(p.used[line_]);
      count_ = static_cast<uint32_t>(a.kv.capacity()) + s.rows;
      find_taken();
    } else if (a.most_spans != 0) {
      own_ = after_window(s.last_pos, a.window);
      list_ = p.chosen + (size_t{s.first_row} * a.kv.heads + kv_head) * (1 + a.most_spans);
      old_ = list_[0] < 0 ? 0 : static_cast<uint32_t>(list_[0]) * a.span_cells;
      // No row of so few sees all (tenon/abi/kv_cache.h); one that did would see its newest cells.
      if (list_[0] < 0) own_ = max(own_, after_window(s.last_pos, a.lanes));
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
  __device__ bool find(uint32_t lane, uint32_t& cell, uint32_t& position) const {
    if (lane >= count_) return false;
    if (a_.kv.rule == TENON_POS_TABLE) return find_in_table(lane, cell);
    if (a_.most_spans == 0) {
      position = lane < old_ ? own_ + lane : first_ + lane - old_;
      cell = a_.kv.cell_of(position);
      return true;
    }
    const bool old = lane < old_;
    position = old ? static_cast<uint32_t>(list_[1 + lane / a_.span_cells]) * a_.span_cells + lane % a_.span_cells
                   : first_ + lane - old_;
    cell = position;
    return position >= own_ && (!old || position < kv_len_);
  }
  // Returns how many lanes before this one have cells; the whole block calls it.
  __device__ uint32_t before(uint32_t lane) const {
    if (a_.kv.rule == TENON_POS_RING) return lane;
    __shared__ uint32_t of_warp[kWarps];
    uint32_t own = 0;
    if (a_.kv.rule == TENON_POS_TABLE) {
      for (uint32_t i = threadIdx.x; i < min(lane, used_); i += kAtOnce * kThreads) own += old_cells(i, lane);
      if (lane > a_.kv.capacity()) own += threadIdx.x == 0 ? lane - static_cast<uint32_t>(a_.kv.capacity()) : 0;
    } else {
      for (uint32_t i = threadIdx.x; i < lane; i += kThreads) {
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
  __device__ bool find_in_table(uint32_t lane, uint32_t& cell) const {
    const auto capacity = static_cast<uint32_t>(a_.kv.capacity());
    cell = lane < capacity ? lane : cell_of_row(s_.first_row + lane - capacity);
    return lane < capacity ? is_old(lane, page_of(lane)) : cell < capacity;
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
  size_t line_ = 0;      // TABLE
  uint32_t used_ = 0;    // TABLE
  const int32_t* list_;  // spans: how many, and their numbers
  // The first `old` lanes are a ring's cells from position own on, or those of spans; the others begin at position first.
  uint32_t own_ = 0, first_ = 0, old_ = 0;
};

// ---- copying ----------------------------------------------------------------------------------------------------------
// A block has found cells, one after the other.
struct Found {
  uint32_t cell[kLanesOfBlock], position[kLanesOfBlock];
  const void *key[kLanesOfBlock], *value[kLanesOfBlock];  // the cell's; nullptr: it has no page
  uint32_t count;
};

// This is a KV head of a copied sequence.
struct CopiedHead {
  uint32_t sequence, head, columns, heads;
};
// Returns where a copied place lies, in elements.
__device__ __forceinline__ size_t element_at(const CopiedHead& h, uint32_t place, uint32_t dim) {
  const size_t page = (size_t{h.sequence} * h.columns + place / kCopiedPage) * h.heads + h.head;
  return (page * kCopiedPage + place % kCopiedPage) * dim;
}

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
template <class E>
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

// Keys or values of `count` cells, which go to places that follow each other.
template <class E>
struct Side {
  const void* const* row;  // by number; nullptr: zeros
  const uint32_t* cell;    // by number
  uint32_t count, dim;
  E* to;              // (count, dim)
  const float* rope;  // nullptr: they are not turned
};
// index(i) is the rope's index of the i-th.
template <class C, bool kEights, class E, class Index>
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
    const uint32_t of_row = dim / 8, all = count * of_row, half = static_cast<uint32_t>(a.rotated) / 2;
#pragma unroll 4
    for (uint32_t n = threadIdx.x; n < all; n += kThreads) {
      const uint32_t i = n / of_row, d = n % of_row * 8;
      EightHalves<E> out{};
      if (rows[i] != nullptr) {
        Eight<C> own, other;
        own.load(rows[i], d);
        const float scale = C::kScaled ? cells.scale(cell[i]) : 1;
        if (rope == nullptr || d >= 2 * half) {
#pragma unroll
          for (uint32_t e = 0; e < 8; ++e) out.e[e] = cuda::from_float<E>(own(e, scale));
        } else {
          const bool second = a.pairing == 0 && d >= half;
          if (a.pairing == 0) other.load(rows[i], second ? d - half : d + half);
          const int32_t at = index(i);
          const auto* angles = reinterpret_cast<const float2*>(rope) + size_t{static_cast<uint32_t>(abs(at))} * half +
                               (a.pairing == 0 ? d % half : d / 2);
          const float sign = at < 0 ? -1 : 1;
#pragma unroll
          for (uint32_t e = 0; e < 8; ++e) {
            const float2 angle = angles[a.pairing == 0 ? e : e / 2];
            const float x = own(e, scale), y = a.pairing == 0 ? other(e, scale) : own(e ^ 1, scale);
            const bool is_second = a.pairing == 0 ? second : e % 2 != 0;
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
  for (uint32_t i = threadIdx.x; i < a.columns; i += kThreads) {
    to.pages[size_t{s.number} * a.columns + i] = static_cast<int32_t>(s.number * a.columns + i);
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
  s = {number, static_cast<uint32_t>(slot), number, 1, 0, 0};
  if (a.row_apart == 0) {
    s.first_row = static_cast<uint32_t>(p.seq_row[number]);
    s.rows = static_cast<uint32_t>(p.seq_row[number + 1]) - s.first_row;
  }
  if (slot < 0 || s.rows == 0) return false;
  s.first_pos = static_cast<uint32_t>(p.pos[s.first_row]);
  s.last_pos = static_cast<uint32_t>(p.pos[s.first_row + s.rows - 1]);
  return true;
}

// The cells of a block's lanes are found by its first warp, which has a lane for each; they get places from `first` on.
struct Finding {
  uint32_t begin, first;  // the first lane; so many lanes before it have cells
  const KvCells &keys, &values;
};
__device__ __forceinline__ void find_cells(const GatherArgs& a, const CopyPointers& to, const Lanes& lanes,
                                           const Finding& finding, Found& found) {
  static_assert(kLanesOfBlock == 32);
  const auto [begin, first, keys, values] = finding;
  const uint32_t lane = begin + threadIdx.x;
  const Copied& s = lanes.sequence();
  const size_t line = size_t{s.number} * a.kv.heads + lanes.head();
  uint32_t cell = 0, position = 0;
  const bool seen = lanes.find(lane, cell, position);
  const uint32_t all = __ballot_sync(~0u, seen), at = static_cast<uint32_t>(__popc(all & ((1u << threadIdx.x) - 1)));
  if (seen) {
    found.cell[at] = cell;
    found.position[at] = position;
    found.key[at] = keys.at(cell);
    found.value[at] = values.at(cell);
    if (a.lists != 0 && first + at < a.room) to.cell_of[line * a.room + first + at] = static_cast<int32_t>(cell);
  } else if (a.lists != 0 && lane < a.kv.capacity()) {
    to.weights[(size_t{s.slot} * a.kv.heads + lanes.head()) * a.kv.capacity() + lane] = 0;
  }
  const auto count = static_cast<uint32_t>(__popc(all));
  if (threadIdx.x == 0) found.count = min(count, a.room > first ? a.room - first : 0);
}

// The grid has along x chunks of lanes and then of queries, KV heads along y, copied sequences along z.
template <class C, class E, bool kEights>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ GatherArgs a, const __grid_constant__ ViewPointers p,
                  const __grid_constant__ CopyPointers to, uint32_t lane_chunks) {
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
  const Lanes lanes(a, p, s, kv_head, taken);
  if (chunk >= lane_chunks) {  // lanes of a ring all have cells
    return turn_queries(a, p, s, {kv_head, (chunk - lane_chunks) * kQueriesOfBlock, lanes.count(), to.queries});
  }
  const uint32_t begin = chunk * kLanesOfBlock;
  if (begin >= lanes.count()) return;

  const uint32_t first = lanes.before(begin);
  const KvCells keys({a.kv, a.kv.k, p.keys, p.key_scales, p.pages}, s.slot, kv_head);
  const KvCells values({a.kv, a.kv.v, p.values, p.value_scales, p.pages}, s.slot, kv_head);
  if (threadIdx.x < kLanesOfBlock) find_cells(a, to, lanes, {begin, first, keys, values}, found);
  __syncthreads();
  const uint32_t count = found.count;
  if (begin + kLanesOfBlock >= lanes.count()) {  // it is the last chunk
    for (uint32_t i = threadIdx.x; i < s.rows; i += kThreads) {
      const auto place = static_cast<int32_t>(first + count - s.rows + i);
      to.pos[size_t{kv_head} * a.rows + s.first_row + i] = max(place, -1);
    }
  }

  // ---- keys and values, in one page of the copy or two ----
  const CopiedHead head{number, kv_head, a.columns, a.kv.heads};
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

// ---- a ring's first cells ---------------------------------------------------------------------------------------------
// A warp has a query head of a row; a lane has the elements d = lane + 32 i.
template <class C>
__global__ void __launch_bounds__(kThreads)
    first_kernel(const __grid_constant__ ViewArgs a, const __grid_constant__ ViewPointers p, const float* learned) {
  constexpr uint32_t kOwn = 256 / 32;
  cuda::wait();
  const uint32_t row = blockIdx.y, head = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= *p.live || head >= a.q_heads || p.slot[row] < 0) return;
  const auto slot = static_cast<uint32_t>(p.slot[row]), n = static_cast<uint32_t>(p.pos[row]);
  const KvCells keys({a.kv, a.kv.k, p.keys, p.key_scales, p.pages}, slot, head / a.group);
  const KvCells values({a.kv, a.kv.v, p.values, p.value_scales, p.pages}, slot, head / a.group);
  const float* q = p.q + row * a.q_row + head * a.kv.k.dim;
  const auto query = [&](uint32_t d) { return q[d]; };
  float own[kOwn], out[kOwn] = {}, top = kNothing, sum = 0;
#pragma unroll
  for (uint32_t i = 0; i < kOwn; ++i) {
    const uint32_t d = lane + 32 * i;
    own[i] = d < a.kv.k.dim ? turned(a, p.rope, static_cast<int32_t>(n - a.kv.shift_at(n)), d, query) : 0;
  }
  const uint32_t end = min(a.kv.sinks, after_window(n, a.kv.window));
  for (uint32_t cell = after_window(n, a.window); cell < end; ++cell) {
    const auto* key = reinterpret_cast<const typename C::Stored*>(keys.at(cell));
    const auto* value = reinterpret_cast<const typename C::Stored*>(values.at(cell));
    if (key == nullptr || value == nullptr) continue;
    const float key_scale = keys.scale(cell), value_scale = values.scale(cell);
    float score = 0;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t d = lane + 32 * i;
      if (d >= a.kv.k.dim) break;
      score += own[i] * turned(a, p.rope, static_cast<int32_t>(cell), d,
                               [&](uint32_t e) { return C::decode(sdk::kv_code<C>(key, e), key_scale); });
    }
    for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(~0u, score, step);
    score *= a.scale;
    if (a.softcap != 0) score = a.softcap * tanhf(score / a.softcap);
    score *= kLog2E;
    const float higher = fmaxf(top, score), shrink = exp2f(top - higher), weight = exp2f(score - higher);
    top = higher;
    sum = sum * shrink + weight;
#pragma unroll
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t d = lane + 32 * i;
      if (d < a.kv.v.dim) out[i] = out[i] * shrink + weight * C::decode(sdk::kv_code<C>(value, d), value_scale);
    }
  }
  if (learned != nullptr) {  // it weighs no value
    const float score = learned[head] * kLog2E, higher = fmaxf(top, score), shrink = exp2f(top - higher);
    sum = sum * shrink + exp2f(score - higher);
    for (float& o : out) o *= shrink;
    top = higher;
  }
#pragma unroll
  for (uint32_t i = 0; i < kOwn; ++i) {
    const uint32_t d = lane + 32 * i;
    if (d < a.kv.v.dim) p.out[row * a.out_row + head * a.kv.v.dim + d] = sum == 0 ? 0 : out[i] / sum;
  }
  if (lane == 0) p.sums[row * a.q_heads + head] = sum == 0 ? kNothing : top + log2f(sum);
}

// ---- weights by cell --------------------------------------------------------------------------------------------------
constexpr uint32_t kCellsOfBlock = 64;

struct CellWeightPointers {
  const float* q;
  const void* keys;
  const int32_t *cell_of, *pos;
  const float* sums;
  const uint32_t* live;
  const int32_t *seq_slot, *seq_row;
  float* weights;
};

// A lane's halves of a query from dimension d on: d and d + 1.
template <class E>
__device__ __forceinline__ uint32_t two_of(const float* q, uint32_t d, uint32_t dim) {
  if (q == nullptr || d >= dim) return 0;
  const float2 x = *reinterpret_cast<const float2*>(q + d);
  return cuda::to_halves<E>(x.x, x.y);
}

// These are the places of a block: kCellsOfBlock of a KV head of a sequence, whose keys are a tile in shared memory.
struct Places {
  uint32_t seq, kv_head, first, end;  // the sequence has places up to `end`
  uint32_t first_row, end_row;        // these rows' weights count
  const int32_t* pos;                 // by row of the step
  uint32_t tile;
};
// The whole block calls this.
template <class E, uint32_t D>
__device__ __forceinline__ void load_keys(const CellWeightArgs& a, const E* keys, const Places& s) {
  const CopiedHead head{s.seq, s.kv_head, a.room / kCopiedPage, a.heads};
  const E* from = keys + element_at(head, s.first, a.dim);
  for (uint32_t i = threadIdx.x; i < kCellsOfBlock * D / 8; i += kThreads) {
    const uint32_t r = i / (D / 8), piece = i % (D / 8), to = s.tile + tile_offset<D>(r, piece);
    if (s.first + r < s.end && piece < a.dim / 8) {
      cuda::copy_async(to, from + r * a.dim + piece * 8);
    } else {
      cuda::store_zeros(to);
    }
  }
  cuda::commit_copies();
  cuda::wait_copies<0>();
  __syncthreads();
}

// In a 16 x 8 product, lane 4 g + t has queries g and g + 8, and of eight places 2t and 2t + 1.
using PlaceSums = float[kCellsOfBlock / 8][2];  // [eight places][of the lane's two]
// Adds the weights of 16 queries, from number q on.
template <class E, uint32_t D>
__device__ __forceinline__ void add_weights(const CellWeightArgs& a, const CellWeightPointers& p, const Places& places,
                                            uint32_t q, PlaceSums& sum) {
  const uint32_t queries = (places.end_row - places.first_row) * a.group;
  const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const ScoreScale scale = score_scale(a.scale, a.softcap);
  const float* own[2];  // by row of the product; nullptr: there is no such query
  float log[2];
  uint32_t past[2];
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t number = q + g + 8 * i, row = places.first_row + number / a.group,
                   head = places.kv_head * a.group + number % a.group;
    const bool there = number < queries;
    own[i] = there ? p.q + row * a.q_row + head * a.dim : nullptr;
    log[i] = there ? p.sums[row * a.q_heads + head] : 0;
    past[i] = there ? static_cast<uint32_t>(places.pos[row]) + 1 : 0;
  }
  float s[kCellsOfBlock / 8][4] = {};
#pragma unroll
  for (uint32_t k = 0; k < D / 16; ++k) {
    const uint32_t d = k * 16 + 2 * t;
    const uint32_t x[4] = {two_of<E>(own[0], d, a.dim), two_of<E>(own[1], d, a.dim), two_of<E>(own[0], d + 8, a.dim),
                           two_of<E>(own[1], d + 8, a.dim)};
#pragma unroll
    for (uint32_t n = 0; n < kCellsOfBlock / 16; ++n) {
      uint32_t b[4];
      cuda::load_matrices(b, places.tile + pieces_first<D>(n * 16, k * 2));
      cuda::mma<E>(s[2 * n], x, b[0], b[1]);
      cuda::mma<E>(s[2 * n + 1], x, b[2], b[3]);
    }
  }
#pragma unroll
  for (uint32_t n = 0; n < kCellsOfBlock / 8; ++n) {
#pragma unroll
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t place = places.first + n * 8 + 2 * t + e % 2;
      if (place < past[e / 2]) sum[n][e % 2] += exp2_approx(scale(s[n][e]) - log[e / 2]);
    }
  }
}

// A block's warps take 16 queries at a time, of all rows and query heads that count.
template <class E, uint32_t D>
__global__ void __launch_bounds__(kThreads)
    weights_kernel(const __grid_constant__ CellWeightArgs a, const __grid_constant__ CellWeightPointers p) {
  extern __shared__ __align__(128) char smem[];
  __shared__ float of_warp[kWarps][kCellsOfBlock];
  cuda::wait();
  const uint32_t seq = blockIdx.z, kv_head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto first_row = static_cast<uint32_t>(p.seq_row[seq]), end_row = static_cast<uint32_t>(p.seq_row[seq + 1]);
  if (first_row == end_row) return;
  const int32_t* pos = p.pos + size_t{kv_head} * a.rows;
  const uint32_t observed = max(first_row, end_row > a.weight_rows ? end_row - a.weight_rows : 0);
  const Places places{
      seq,     kv_head, blockIdx.x * kCellsOfBlock, static_cast<uint32_t>(pos[end_row - 1]) + 1, observed,
      end_row, pos,     cuda::shared_address(smem)};
  if (places.first >= places.end) return;
  load_keys<E, D>(a, static_cast<const E*>(p.keys), places);

  PlaceSums sum = {};
  for (uint32_t q = warp * 16; q < (end_row - observed) * a.group; q += kWarps * 16) {
    add_weights<E, D>(a, p, places, q, sum);
  }
#pragma unroll
  for (uint32_t n = 0; n < kCellsOfBlock / 8; ++n) {
#pragma unroll
    for (uint32_t e = 0; e < 2; ++e) {
      for (uint32_t step = 4; step < 32; step *= 2) sum[n][e] += __shfl_xor_sync(~0u, sum[n][e], step);
      if (lane < 4) of_warp[warp][n * 8 + 2 * lane + e] = sum[n][e];
    }
  }
  __syncthreads();
  const uint32_t place = places.first + threadIdx.x;
  if (threadIdx.x >= kCellsOfBlock || place >= places.end) return;
  float all = 0;
  for (uint32_t w = 0; w < kWarps; ++w) all += of_warp[w][threadIdx.x];
  const auto cell = static_cast<uint32_t>(p.cell_of[(size_t{seq} * a.heads + kv_head) * a.room + place]);
  p.weights[(size_t{static_cast<uint32_t>(p.seq_slot[seq])} * a.heads + kv_head) * a.capacity + cell] = all;
}

}  // namespace

void gather(const GatherArgs& a, const cuda::Launch& l) {
  const CopyPointers to{l.ptr<void>(kCopiedKeys),       l.ptr<void>(kCopiedValues),    l.ptr<int32_t>(kCopiedPages),
                        l.ptr<uint32_t>(kCopiedLive),   l.ptr<int32_t>(kCopiedPos),    l.ptr<int32_t>(kCopiedSlot),
                        l.ptr<int32_t>(kCopiedSeqSlot), l.ptr<int32_t>(kCopiedSeqRow), l.ptr<int32_t>(kCopiedKvLen),
                        l.ptr<float>(kTurnedQueries),   l.ptr<int32_t>(kCellOf),       l.ptr<float>(kCellWeights)};
  const uint32_t chunks = (a.lanes + kLanesOfBlock - 1) / kLanesOfBlock;
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

void attend_to_first(const ViewArgs& a, const cuda::Launch& l) {
  cuda::with_kv_codec(a.kv.k.codec, [&]<class C>(C) {
    if constexpr (!std::is_same_v<C, sdk::KvF32>) {
      l(&first_kernel<C>, {.blocks = {(a.q_heads + kWarps - 1) / kWarps, a.rows}, .threads = {kThreads}}, a,
        ViewPointers(l), a.sinks != 0 ? l.ptr<const float>(kLearnedSinks) : nullptr);
    }
  });
}

void cell_weights(const CellWeightArgs& a, const cuda::Launch& l) {
  const CellWeightPointers p{
      l.ptr<const float>(kWeightQuery),     l.ptr<const void>(kWeightKeys),      l.ptr<const int32_t>(kWeightCellOf),
      l.ptr<const int32_t>(kWeightPos),     l.ptr<const float>(kWeightSums),     l.ptr<const uint32_t>(kWeightLive),
      l.ptr<const int32_t>(kWeightSeqSlot), l.ptr<const int32_t>(kWeightSeqRow), l.ptr<float>(kWeights)};
  with_half(a.codec, [&]<class E>(E) {
    with_dim<64, 96, 128, 256>(a.dim, [&]<uint32_t D>() {
      l(&weights_kernel<E, D>,
        {.blocks = {(a.room + kCellsOfBlock - 1) / kCellsOfBlock, a.heads, a.seqs},
         .threads = {kThreads},
         .shared_bytes = kCellsOfBlock * kTileRowBytes<D>},
        a, p);
    });
  });
}

}  // namespace tenon::flash
