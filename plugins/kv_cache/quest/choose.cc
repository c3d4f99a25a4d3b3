// These are the ops of choose.h on the CPU. The rule stands there, and comes
// from Quest (Tang et al., arXiv:2406.10774).
//
// Invariants: summaries hold elements of keys exactly, so a bound is never below a key's score but for the rounding of
// sums; sums have one order for every instruction set; and of equal bounds the older page is chosen. So a row's choice
// has the same bits however the step is cut into threads. This is the naive twin of choose.cu.
#include "choose.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "../common/convert.h"
#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/live.h"

namespace tenon::quest {
namespace {

using sdk::Part;

void load_row(bool simd, uint32_t codec, const std::byte* from, uint32_t n, float* to) {
  if (simd) return slot_cache::load_row_avx2(codec, from, n, 1, to);
  sdk::cpu::load_row(codec, from, n, to);
}

// A chunk is a KV head of a sequence. Thread scratch holds a key, and a page's summary, f32.
void summarize(const SummaryArgs& a, const Part& part) {
  const uint32_t seqs = part.ptr<uint32_t>(kSummaryLive)[sdk::kLiveSeqs], dim = a.kv.k.dim;
  const uint64_t row_bytes = sdk::kv_row_bytes(a.kv.k.codec, dim);
  auto* key = part.thread_scratch<float>();
  float *greatest = key + dim, *least = greatest + dim;
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t seq = chunk / a.kv.heads, head = chunk % a.kv.heads;
    if (seq >= seqs) return;
    const int32_t slot = part.ptr<int32_t>(kSummarySeqSlot)[seq];
    if (slot < 0) continue;
    const auto sequence = static_cast<uint32_t>(slot);
    const int32_t* first_row = part.ptr<int32_t>(kSummarySeqRow) + seq;
    const int32_t kv_len = part.ptr<int32_t>(kSummaryKvLen)[slot];
    const size_t line = size_t{sequence} * a.kv.heads + head;
    const auto from = static_cast<uint32_t>(std::min(part.ptr<int32_t>(kSummarizedBefore)[line], kv_len));
    const uint32_t end = std::min(static_cast<uint32_t>(kv_len + first_row[1] - first_row[0]) / a.page, a.pages);
    const sdk::cpu::KvCells cells({.layout = a.kv,
                                   .plane = a.kv.k,
                                   .base = part.ptr<void>(kKeys),
                                   .scales = nullptr,
                                   .pages = part.ptr<int32_t>(kCellPages)},
                                  sequence, head);
    for (uint32_t page = from / a.page; page < end; ++page) {
      for (uint32_t cell = page * a.page; cell < (page + 1) * a.page; ++cell) {
        load_row(a.simd != 0, a.kv.k.codec, cells.at(cell), dim, key);
        const bool is_first = cell == page * a.page;
        for (uint32_t d = 0; d < dim; ++d) {
          greatest[d] = is_first || key[d] > greatest[d] ? key[d] : greatest[d];
          least[d] = is_first || key[d] < least[d] ? key[d] : least[d];
        }
      }
      std::byte* to = part.ptr<std::byte>(kSummariesOf) + (line * a.pages + page) * 2 * row_bytes;
      sdk::cpu::store_row(a.kv.k.codec, greatest, dim, to);
      sdk::cpu::store_row(a.kv.k.codec, least, dim, to + row_bytes);
    }
  }
}

// Returns x . y, summed in an order that does not depend on the instruction set; n is a multiple of 8.
float dot(const float* x, const float* y, uint32_t n) {
  constexpr uint32_t kLanes = 8;
  float sum[kLanes] = {};
  for (uint32_t i = 0; i < n; i += kLanes) {
    for (uint32_t j = 0; j < kLanes; ++j) sum[j] += x[i + j] * y[i + j];
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

constexpr uint32_t padded(uint32_t dim) {
  return (dim + 7) / 8 * 8;
}

// A thread has this memory. Rows of summaries and queries are (2, padded dim), and 0 after the dimensions.
struct Work {
  Work(const ChooseArgs& a, void* memory) {
    summary = static_cast<float*>(memory);
    queries = summary + size_t{2} * padded(a.dim);
    bound = reinterpret_cast<uint32_t*>(queries + size_t{2} * padded(a.dim) * a.group);
    order = bound + a.pages;
  }
  static uint64_t bytes(const ChooseArgs& a) {
    return (uint64_t{2} * padded(a.dim) * (1 + a.group) + uint64_t{2} * a.pages) * sizeof(float);
  }
  float *summary, *queries;  // queries has, by query head, the positive elements and then the negative ones
  uint32_t *bound, *order;   // (pages): order_of() the bounds; page numbers
};

// Finds the bounds of the first n pages of a sequence's KV head.
void bound_pages(const ChooseArgs& a, const std::byte* summaries, const float* q, uint32_t n, const Work& w) {
  const uint32_t row = padded(a.dim);
  const uint64_t row_bytes = sdk::kv_row_bytes(a.codec, a.dim);
  std::fill_n(w.summary, size_t{2} * row * (1 + a.group), 0.0F);
  for (uint32_t g = 0; g < a.group; ++g) {
    float* to = w.queries + size_t{2} * row * g;
    for (uint32_t d = 0; d < a.dim; ++d) {
      to[d] = std::max(q[size_t{g} * a.dim + d], 0.0F);
      to[row + d] = std::min(q[size_t{g} * a.dim + d], 0.0F);
    }
  }
  for (uint32_t page = 0; page < n; ++page) {
    const std::byte* from = summaries + page * 2 * row_bytes;
    load_row(a.simd != 0, a.codec, from, a.dim, w.summary);
    load_row(a.simd != 0, a.codec, from + row_bytes, a.dim, w.summary + row);
    float bound = 0;
    for (uint32_t g = 0; g < a.group; ++g) bound += dot(w.summary, w.queries + size_t{2} * row * g, 2 * row);
    w.bound[page] = order_of(std::bit_cast<uint32_t>(bound));
  }
}

// Writes to w.order, ascending, those `most` of the first n pages that have the largest bounds.
void choose_largest(const Work& w, uint32_t n, uint32_t most) {
  std::iota(w.order, w.order + n, 0U);
  std::nth_element(w.order, w.order + most, w.order + n,
                   [&](uint32_t x, uint32_t y) { return w.bound[x] != w.bound[y] ? w.bound[x] > w.bound[y] : x < y; });
  std::sort(w.order, w.order + most);
}

// A chunk is a KV head of a row.
void choose(const ChooseArgs& a, const Part& part) {
  const uint32_t live = std::min(part.ptr<uint32_t>(kLive)[sdk::kLiveRows], a.rows);
  const auto* seq_row = part.ptr<const int32_t>(kSeqRow);
  const Work w(a, part.thread_scratch());
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t row = chunk / a.heads, head = chunk % a.heads;
    if (row >= live) return;
    uint32_t seq = 0;
    while (seq + 1 < part.ptr<uint32_t>(kLive)[sdk::kLiveSeqs] && static_cast<uint32_t>(seq_row[seq + 1]) <= row) ++seq;
    const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
    if (slot < 0) continue;
    const size_t line = static_cast<size_t>(slot) * a.heads + head;
    if (row == static_cast<uint32_t>(seq_row[seq])) {
      part.ptr<int32_t>(kSummarized)[line] = part.ptr<int32_t>(kKvLen)[slot];
    }
    int32_t* list = part.ptr<int32_t>(kChosen) + (size_t{row} * a.heads + head) * (1 + a.most_pages);
    if (seq_row[seq + 1] - seq_row[seq] > static_cast<int32_t>(kMostChoosing)) {
      list[0] = -1;
      continue;
    }
    const auto position = static_cast<uint32_t>(part.ptr<int32_t>(kPos)[row]);
    const uint32_t before = pages_before(position, a.page, a.pages), own = position / a.page;
    const uint32_t n = std::min(before, a.most_pages - kAlways);
    if (n == before) {
      std::iota(w.order, w.order + n, 0U);
    } else {
      const std::byte* summaries =
          part.ptr<std::byte>(kSummaries) + line * a.pages * 2 * sdk::kv_row_bytes(a.codec, a.dim);
      bound_pages(a, summaries, part.ptr<const float>(kQ) + row * a.q_row + size_t{head} * a.group * a.dim, before, w);
      choose_largest(w, before, n);
    }
    std::copy_n(w.order, n, list + 1);
    list[0] = static_cast<int32_t>(n);
    for (uint32_t page = before; page <= own; ++page) list[++list[0]] = static_cast<int32_t>(page);
  }
}

}  // namespace

void emit_summarize(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const SummaryArgs& args) {
  r.emit<summarize>({.name = "summarize",
                     .operands = operands,
                     .chunks = {args.seqs * args.kv.heads},
                     .cost = cost,
                     .thread_scratch_bytes = 3 * uint64_t{args.kv.k.dim} * sizeof(float)},
                    args);
}

void emit_choose(sdk::Recorder& r, std::vector<tenon_operand> operands, const tenon_cost& cost,
                 const ChooseArgs& args) {
  r.emit<choose>({.name = "choose",
                  .operands = operands,
                  .chunks = {args.rows * args.heads},
                  .cost = cost,
                  .thread_scratch_bytes = Work::bytes(args)},
                 args);
}

}  // namespace tenon::quest
