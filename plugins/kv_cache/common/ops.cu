// These are the ops of the caches on a GPU; ops.h says what each does, and ops.cc is the naive twin. A row without a
// slot, a cell beyond the cache and a cell without a page are passed over: a kernel can report nothing.
#include <algorithm>

#include "ops.h"
#include "tenon/cuda/error.h"
#include "tenon/cuda/hadamard.cuh"
#include "tenon/cuda/kv_reader.cuh"
#include "tenon/cuda/op.h"
#include "tenon/cuda/overlap.cuh"
#include "tenon/sdk/live.h"

namespace tenon::slot_cache {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;
constexpr uint32_t kMostRowBlocks = 4096;  // further rows are taken in turns

struct AppendPointers {
  const char *k, *v;
  void *keys, *values, *key_scales, *value_scales;
  const int32_t* pages;
  const uint32_t* live;
  const int32_t *place, *slot;
  void *tail_keys, *tail_values;
  const int32_t* tail_pages;
};

// A thread writes two elements of a row's K or V, or one if a head has an odd number.
template <class K, class V>
__global__ void append_kernel(AppendArgs a, AppendPointers p) {
  cuda::wait();
  const uint32_t live = min(*p.live, a.rows), step = (a.kv.k.dim | a.kv.v.dim) % 2 == 0 ? 2 : 1;
  const uint32_t k_columns = a.kv.heads * a.kv.k.dim, columns = k_columns + a.kv.heads * a.kv.v.dim;
  const uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) * step;
  if (at >= columns) return;
  const bool is_key = at < k_columns;
  const sdk::KvPlane& plane = is_key ? a.kv.k : a.kv.v;
  const uint32_t column = is_key ? at : at - k_columns, head = column / plane.dim, d = column % plane.dim;
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    const int32_t slot = p.slot[row], cell = p.place[row];
    if (slot < 0 || cell < 0 || static_cast<uint32_t>(cell) >= a.cells) continue;
    const cuda::KvRows rows({a.kv, plane, is_key ? p.keys : p.values, nullptr, p.pages}, static_cast<uint32_t>(slot),
                            head);
    char* to = rows.at(static_cast<uint32_t>(cell));
    if (to == nullptr) continue;
    const auto* from = reinterpret_cast<const float*>(is_key ? p.k + row * a.k_row : p.v + row * a.v_row) + column;
    for (uint32_t i = 0; i < step; ++i) {
      if (is_key) {
        reinterpret_cast<K*>(to)[d + i] = cuda::from_float<K>(from[i]);
      } else {
        reinterpret_cast<V*>(to)[d + i] = cuda::from_float<V>(from[i]);
      }
    }
  }
}

// A warp stores x(d) as a cell that has a page.
template <class C, class X>
__device__ void store_cell(const sdk::KvPlane& plane, const cuda::KvCells& cells, uint32_t cell, const X& x) {
  const uint32_t lane = threadIdx.x % 32;
  float scale = 1;
  if constexpr (C::kScaled) {
    cuda::KvExtremes own;
    for (uint32_t d = lane; d < plane.dim; d += 32) own.add(x(d));
    scale = cuda::kv_scale_of_warp(C::kFormat, plane.scale, own);
    if (lane == 0) cells.store_scale(cell, scale);
  }
  auto* to = reinterpret_cast<typename C::Stored*>(cells.at(cell));
  const uint32_t stored = sdk::kv_row_stored(C::kFormat, plane.dim);
  for (uint32_t i = lane; i < stored; i += 32) to[i] = sdk::kv_stored<C>(i, plane.dim, x, scale);
}

// A warp codes the group of keys that ends with a cell. A lane has two dimensions
// of each row at a time, which share a byte.
__device__ void code_group(const sdk::KvPlane& plane, const cuda::KvCells& exact, const cuda::KvCells& coded,
                           uint32_t last) {
  const uint32_t first = last + 1 - plane.group, dim = plane.dim;
  for (uint32_t byte = threadIdx.x % 32; byte < sdk::kv_row_stored(TENON_U8, dim); byte += 32) {
    const auto element = [&](uint32_t cell, uint32_t d) {
      return __half2float(reinterpret_cast<const __half*>(exact.at(cell))[d]);
    };
    const auto channel_of = [&](uint32_t d) {
      float least = element(first, d), most = least;
#pragma unroll 8
      for (uint32_t cell = first + 1; cell <= last; ++cell) {
        const float x = element(cell, d);
        least = x < least ? x : least;
        most = most < x ? x : most;
      }
      const auto channel = sdk::KvChannel::of(least, most, plane.scale);
      coded.store_channel(first, d, channel);
      return channel;
    };
    const uint32_t d = 2 * byte;
    const bool two = d + 1 < dim;
    const sdk::KvChannel lower = channel_of(d), upper = two ? channel_of(d + 1) : lower;
#pragma unroll 4
    for (uint32_t cell = first; cell <= last; ++cell) {
      const uint32_t upper_code = two ? upper.encode(element(cell, d + 1)) : 0;
      reinterpret_cast<uint8_t*>(coded.at(cell))[byte] =
          static_cast<uint8_t>(lower.encode(element(cell, d)) | upper_code << 4);
    }
  }
}

// A warp writes one head of a row's K or V, and its scale if the codec has one; of keys by channel what the tail has
// alone. Where heads are rotated that is done in shared memory.
template <class C>
__global__ void append_heads_kernel(AppendArgs a, AppendPointers p) {
  extern __shared__ float heads[];  // (warps, the larger dimension)
  cuda::wait();
  const uint32_t live = min(*p.live, a.rows), i = blockIdx.x * kWarps + threadIdx.x / 32, head = i / 2;
  if (head >= a.kv.heads) return;
  const bool is_key = i % 2 == 0;
  const sdk::KvPlane& plane = is_key ? a.kv.k : a.kv.v;
  for (uint32_t row = blockIdx.y; row < live; row += gridDim.y) {
    const int32_t slot = p.slot[row];
    const auto cell = static_cast<uint32_t>(p.place[a.kv.apart() ? row * a.kv.heads + head : row]);
    if (slot < 0 || cell >= a.cells) continue;
    const cuda::KvCells cells(
        {a.kv, plane, is_key ? p.keys : p.values, is_key ? p.key_scales : p.value_scales, p.pages},
        static_cast<uint32_t>(slot), head);
    if (cells.at(cell) == nullptr) continue;
    const auto* from = reinterpret_cast<const float*>(is_key ? p.k + row * a.k_row : p.v + row * a.v_row);
    const auto store = [&](const auto& x) {
      if (!cuda::kKeysByChannel<C> || !is_key) store_cell<C>(plane, cells, cell, x);
      if (a.has_tail == 0) return;
      const cuda::KvCells tail(
          {a.tail, is_key ? a.tail.k : a.tail.v, is_key ? p.tail_keys : p.tail_values, nullptr, p.tail_pages},
          static_cast<uint32_t>(slot), head);
      store_cell<cuda::KvF16>(is_key ? a.tail.k : a.tail.v, tail, cell, x);
      if constexpr (cuda::kKeysByChannel<C>) {
        if (!is_key || a.codes_groups == 0 || (cell + 1) % plane.group != 0) return;
        __syncwarp();
        code_group(plane, tail, cells, cell);
      }
    };
    if (!a.rotates()) {
      store([&](uint32_t d) { return from[head * plane.dim + d]; });
      continue;
    }
    float* x = heads + threadIdx.x / 32 * max(a.kv.k.dim, a.kv.v.dim);
    for (uint32_t d = threadIdx.x % 32; d < plane.dim; d += 32) x[d] = from[head * plane.dim + d];
    cuda::rotate_head(x, plane.dim);
    store([&](uint32_t d) { return x[d]; });
    __syncwarp();
  }
}

void append_op(const AppendArgs& a, const cuda::Launch& l) {
  AppendPointers p{.k = l.ptr<const char>(kAppendK),
                   .v = l.ptr<const char>(kAppendV),
                   .keys = l.ptr<void>(kAppendKeys),
                   .values = l.ptr<void>(kAppendValues),
                   .key_scales = l.ptr<void>(kAppendKeyScales),
                   .value_scales = l.ptr<void>(kAppendValueScales),
                   .pages = l.ptr<const int32_t>(kAppendPages),
                   .live = l.ptr<const uint32_t>(kAppendLive),
                   .place = l.ptr<const int32_t>(kAppendPlace),
                   .slot = l.ptr<const int32_t>(kAppendSlot),
                   .tail_keys = nullptr,
                   .tail_values = nullptr,
                   .tail_pages = nullptr};
  if (a.has_tail != 0) {
    p.tail_keys = l.ptr<void>(kAppendTailKeys);
    p.tail_values = l.ptr<void>(kAppendTailValues);
    p.tail_pages = l.ptr<const int32_t>(kAppendTailPages);
  }
  const uint32_t rows = std::min(a.rows, kMostRowBlocks);
  if (a.kv.k.scale != 0 || a.kv.apart()) {
    const uint32_t blocks = (2 * a.kv.heads + kWarps - 1) / kWarps;
    const size_t shared = a.rotates() ? kWarps * std::max(a.kv.k.dim, a.kv.v.dim) * sizeof(float) : 0;
    return cuda::with_kv_codec(a.kv, [&]<class C>(C) {
      l(&append_heads_kernel<C>, {.blocks = {blocks, rows}, .threads = {kThreads}, .shared_bytes = shared}, a, p);
    });
  }
  const uint32_t columns = a.kv.heads * (a.kv.k.dim + a.kv.v.dim);
  cuda::with_element(a.kv.k.codec, [&]<class E>(E) {
    l(&append_kernel<E, E>, {.blocks = {(columns + kThreads - 1) / kThreads, rows}, .threads = {kThreads}}, a, p);
  });
}

struct KeyGroupPointers {
  void *tail_keys, *keys, *channels;
  const int32_t *tail_pages, *pages;
  const uint32_t* live;
  const int32_t *place, *slot;
};

// A warp takes a head of a row.
__global__ void key_groups_kernel(KeyGroupArgs a, KeyGroupPointers p) {
  cuda::wait();
  const uint32_t head = blockIdx.x * kWarps + threadIdx.x / 32;
  if (head >= a.kv.heads) return;
  for (uint32_t row = blockIdx.y; row < min(*p.live, a.rows); row += gridDim.y) {
    const int32_t slot = p.slot[row];
    const auto cell = static_cast<uint32_t>(p.place[row]);
    if (slot < 0 || (cell + 1) % a.kv.k.group != 0 || cell >= a.kv.capacity()) continue;
    const auto sequence = static_cast<uint32_t>(slot);
    const cuda::KvCells exact({a.tail, a.tail.k, p.tail_keys, nullptr, p.tail_pages}, sequence, head);
    const cuda::KvCells coded({a.kv, a.kv.k, p.keys, p.channels, p.pages}, sequence, head);
    if (coded.at(cell) != nullptr) code_group(a.kv.k, exact, coded, cell);
  }
}
void key_groups_op(const KeyGroupArgs& a, const cuda::Launch& l) {
  l(&key_groups_kernel,
    {.blocks = {(a.kv.heads + kWarps - 1) / kWarps, std::min(a.rows, kMostRowBlocks)}, .threads = {kThreads}}, a,
    KeyGroupPointers{.tail_keys = l.ptr<void>(kGroupTailKeys),
                     .keys = l.ptr<void>(kGroupKeys),
                     .channels = l.ptr<void>(kGroupChannels),
                     .tail_pages = l.ptr<const int32_t>(kGroupTailPages),
                     .pages = l.ptr<const int32_t>(kGroupPages),
                     .live = l.ptr<const uint32_t>(kGroupLive),
                     .place = l.ptr<const int32_t>(kGroupPlace),
                     .slot = l.ptr<const int32_t>(kGroupSlot)});
}

struct DequantPointers {
  void *from_k, *from_v, *from_k_scale, *from_v_scale, *to_k, *to_v;
  const int32_t *pages, *copy_pages;
  const uint32_t* live;
  const int32_t *seq_slot, *seq_row, *kv_len;
};

// A block takes kDequantCells cells of one head of one sequence.
template <class From, class To>
__global__ void dequant_kernel(DequantArgs a, DequantPointers p) {
  cuda::wait();
  const uint32_t seq = blockIdx.z, head = blockIdx.y;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[seq]);
  const auto length = static_cast<uint32_t>(p.kv_len[slot] + p.seq_row[seq + 1] - p.seq_row[seq]);
  const uint32_t begin = blockIdx.x * kDequantCells,
                 end = min(a.all_cells != 0 ? a.cells : min(length, a.cells), begin + kDequantCells);
  for (const bool v : {false, true}) {
    const sdk::KvPlane& plane = v ? a.to.v : a.to.k;
    const cuda::KvCells from(
        {a.from, v ? a.from.v : a.from.k, v ? p.from_v : p.from_k, v ? p.from_v_scale : p.from_k_scale, p.pages}, slot,
        head);
    const cuda::KvCells to({a.to, plane, v ? p.to_v : p.to_k, nullptr, p.copy_pages}, slot, head);
    for (uint32_t t = begin + threadIdx.x / 32; t < end; t += kWarps) {
      const auto* in = reinterpret_cast<const typename From::Stored*>(from.at(t));
      if (in == nullptr) continue;
      if constexpr (cuda::kKeysByChannel<From>) {
        if (!v) {
          store_cell<To>(plane, to, t,
                         [&](uint32_t d) { return from.channel(t, d).decode(sdk::kv_code<From>(in, d)); });
          continue;
        }
      }
      const float scale = from.scale(t);
      store_cell<To>(plane, to, t, [&](uint32_t d) { return From::decode(sdk::kv_code<From>(in, d), scale); });
    }
  }
}

void dequant_op(const DequantArgs& a, const cuda::Launch& l) {
  const auto run = [&]<class From, class To>(From, To) {
    l(&dequant_kernel<From, To>, {.blocks = {dequant_blocks(a), a.from.heads, a.seqs}, .threads = {kThreads}}, a,
      DequantPointers{.from_k = l.ptr<void>(kFromK),
                      .from_v = l.ptr<void>(kFromV),
                      .from_k_scale = l.ptr<void>(kFromKeyScales),
                      .from_v_scale = l.ptr<void>(kFromValueScales),
                      .to_k = l.ptr<void>(kToK),
                      .to_v = l.ptr<void>(kToV),
                      .pages = l.ptr<const int32_t>(kPages),
                      .copy_pages = l.ptr<const int32_t>(kCopyPages),
                      .live = l.ptr<const uint32_t>(kLive),
                      .seq_slot = l.ptr<const int32_t>(kSeqSlot),
                      .seq_row = l.ptr<const int32_t>(kSeqRow),
                      .kv_len = l.ptr<const int32_t>(kKvLen)});
  };
  cuda::with_kv_codec(a.from, [&]<class From>(From from) {
    cuda::with_kv_codec(a.to.k.codec, [&]<class To>(To to) {
      if constexpr (!To::kScaled) run(from, to);  // a copy is plain
    });
  });
}

struct PlacePointers {
  int32_t* place;
  const int32_t* order;
  const uint32_t* live;
};
__global__ void place_kernel(PlaceArgs a, PlacePointers p) {
  cuda::wait();
  for (uint32_t row = threadIdx.x; row < min(*p.live, a.rows); row += blockDim.x) {
    p.place[row] = static_cast<int32_t>(a.kv.cell_of(static_cast<uint32_t>(p.order[row])));
  }
}
void place_op(const PlaceArgs& a, const cuda::Launch& l) {
  l(&place_kernel, {.blocks = {1}, .threads = {kThreads}}, a,
    PlacePointers{.place = l.ptr<int32_t>(kPlaces),
                  .order = l.ptr<const int32_t>(kOrders),
                  .live = l.ptr<const uint32_t>(kPlaceLive)});
}

struct CommitPointers {
  char *planes[2], *scales[2];  // K, V
  const int32_t* pages;
  const uint32_t* live;
  const int32_t *place, *seq_slot, *seq_row, *accepted, *survivor;
};

// A block is a head of K or V of one sequence; its threads share the bytes of a cell.
__global__ void commit_kernel(CommitArgs a, CommitPointers p) {
  cuda::wait();
  const uint32_t seq = blockIdx.z, head = blockIdx.y, v = blockIdx.x;
  if (seq >= p.live[sdk::kLiveSeqs] || p.seq_slot[seq] < 0) return;
  const auto slot = static_cast<uint32_t>(p.seq_slot[seq]);
  const sdk::KvPlane& plane = v != 0 ? a.kv.v : a.kv.k;
  const uint32_t bytes = a.row_bytes[v];
  const cuda::KvCells cells({a.kv, plane, p.planes[v], p.scales[v], p.pages}, slot, head);
  const int32_t first = p.seq_row[seq];
  for (int32_t i = 0; i < p.accepted[seq]; ++i) {
    const int32_t row = p.survivor[first + i];
    if (row == first + i) continue;
    const auto from = static_cast<uint32_t>(p.place[row]), to = static_cast<uint32_t>(p.place[first + i]);
    const char* source = cells.at(from);
    char* target = cells.at(to);
    if (source == nullptr || target == nullptr) continue;
    for (uint32_t b = threadIdx.x; b < bytes; b += blockDim.x) target[b] = source[b];
    if (plane.scale != 0 && threadIdx.x == 0) {
      for (uint32_t b = 0; b < a.scale_bytes; ++b) cells.scale_at(to)[b] = cells.scale_at(from)[b];
    }
    __syncthreads();
  }
}
void commit_op(const CommitArgs& a, const cuda::Launch& l) {
  l(&commit_kernel, {.blocks = {2, a.kv.heads, a.seqs}, .threads = {kThreads}}, a,
    CommitPointers{.planes = {l.ptr<char>(kCommitKeys), l.ptr<char>(kCommitValues)},
                   .scales = {l.ptr<char>(kCommitKeyScales), l.ptr<char>(kCommitValueScales)},
                   .pages = l.ptr<const int32_t>(kCommitPages),
                   .live = l.ptr<const uint32_t>(kCommitLive),
                   .place = l.ptr<const int32_t>(kCommitPlace),
                   .seq_slot = l.ptr<const int32_t>(kCommitSeqSlot),
                   .seq_row = l.ptr<const int32_t>(kCommitSeqRow),
                   .accepted = l.ptr<const int32_t>(kCommitAccepted),
                   .survivor = l.ptr<const int32_t>(kCommitSurvivor)});
}

}  // namespace

void emit_append(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const AppendArgs& args) {
  cuda::emit<append_op>(r, {.name = "append", .operands = operands, .chunks = {}, .cost = cost}, args);
}

// Says whether the warp that appends a key also codes its group. Where a sequence has one row, the warp that writes the
// last key of a group is the only one that writes any of it.
bool append_codes_groups(const tenon_bounds& b) {
  return b.rows_per_seq == 1;
}

void emit_key_groups(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const KeyGroupArgs& args) {
  cuda::emit<key_groups_op>(r, {.name = "key_groups", .operands = operands, .chunks = {}, .cost = cost}, args);
}

void emit_place(sdk::Recorder& r, Operands operands, const PlaceArgs& args) {
  cuda::emit<place_op>(r, {.name = "place", .operands = operands, .chunks = {}}, args);
}

void emit_commit(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const CommitArgs& args) {
  cuda::emit<commit_op>(r, {.name = "commit", .operands = operands, .chunks = {}, .cost = cost}, args);
}

void emit_dequant(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const DequantArgs& args) {
  cuda::emit<dequant_op>(r, {.name = "dequant", .operands = operands, .chunks = {}, .cost = cost}, args);
}

void copy(const Copy& c, void* queue) {
  const auto stream = static_cast<cudaStream_t>(queue);
  if (c.pieces == 1) {
    TENON_CUDA_CHECK(cudaMemcpyAsync(c.to, c.from, c.bytes, cudaMemcpyDefault, stream));
  } else {
    TENON_CUDA_CHECK(
        cudaMemcpy2DAsync(c.to, c.to_pitch, c.from, c.from_pitch, c.bytes, c.pieces, cudaMemcpyDefault, stream));
  }
  if (queue == nullptr) finish(queue);
}

void finish(void* queue) {
  TENON_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(queue)));
}

}  // namespace tenon::slot_cache
