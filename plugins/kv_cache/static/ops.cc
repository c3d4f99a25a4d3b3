#include "ops.h"

#include <algorithm>
#include <string>

#include "convert.h"

namespace tenon::static_cache {
namespace {

namespace cpu = sdk::cpu;
using sdk::Part;

void load_row(bool simd, uint32_t codec, const std::byte* from, uint32_t n, float* to) {
  simd ? load_row_avx2(codec, from, n, to) : cpu::load_row(codec, from, n, to);
}
void store_row(bool simd, uint32_t codec, const float* from, uint32_t n, std::byte* to) {
  simd ? store_row_avx2(codec, from, n, to) : cpu::store_row(codec, from, n, to);
}

}  // namespace

void append(const AppendArgs& a, const Part& part) {
  const uint32_t live = *part.ptr<uint32_t>(kAppendLive);
  const uint32_t end = std::min(live, part.end() * kAppendRows);
  const int32_t* pages = part.ptr<int32_t>(kAppendPages);
  for (uint32_t row = part.begin() * kAppendRows; row < end; ++row) {
    const int32_t slot = part.ptr<int32_t>(kAppendSlot)[row], pos = part.ptr<int32_t>(kAppendPos)[row];
    if (slot < 0) continue;
    if (static_cast<uint32_t>(pos) >= a.capacity) {
      throw sdk::Failed("position " + std::to_string(pos) + " in a cache for " + std::to_string(a.capacity) +
                        " tokens a sequence");
    }
    const auto* k = reinterpret_cast<const float*>(part.ptr<std::byte>(kAppendK) + row * a.k_row);
    const auto* v = reinterpret_cast<const float*>(part.ptr<std::byte>(kAppendV) + row * a.v_row);
    const auto token = static_cast<uint32_t>(pos), sequence = static_cast<uint32_t>(slot);
    for (uint32_t h = 0; h < a.kv.heads; ++h) {
      const cpu::KvRows keys(a.kv, a.kv.k, part.ptr<void>(kAppendKeys), pages, sequence, h);
      const cpu::KvRows values(a.kv, a.kv.v, part.ptr<void>(kAppendValues), pages, sequence, h);
      store_row(a.simd != 0, a.kv.k.codec, k + size_t{h} * a.kv.k.dim, a.kv.k.dim, keys.at(token));
      store_row(a.simd != 0, a.kv.v.codec, v + size_t{h} * a.kv.v.dim, a.kv.v.dim, values.at(token));
    }
  }
}

void dequant(const DequantArgs& a, const Part& part) {
  const uint32_t seqs = part.ptr<uint32_t>(kLive)[1];
  const int32_t* seq_row = part.ptr<int32_t>(kSeqRow);
  const int32_t* pages = part.ptr<int32_t>(kPages);
  auto* row = part.thread_scratch<float>();
  const uint32_t blocks = dequant_blocks(a);
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t block = chunk % blocks, h = chunk / blocks % a.from.heads, seq = chunk / blocks / a.from.heads;
    if (seq >= seqs) return;
    const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
    if (slot < 0) continue;
    const int64_t length = int64_t{part.ptr<int32_t>(kKvLen)[slot]} + seq_row[seq + 1] - seq_row[seq];
    const auto end =
        static_cast<uint32_t>(std::min<int64_t>({length, int64_t{block + 1} * kDequantTokens, int64_t{a.tokens}}));
    for (const bool v : {false, true}) {
      const cpu::KvPlane& from = v ? a.from.v : a.from.k;
      const cpu::KvPlane& to = v ? a.to.v : a.to.k;
      const auto sequence = static_cast<uint32_t>(slot);
      const cpu::KvRows source(a.from, from, part.ptr<void>(v ? kFromV : kFromK), pages, sequence, h);
      const cpu::KvRows copy(a.to, to, part.ptr<void>(v ? kToV : kToK), pages, sequence, h);
      for (uint32_t t = block * kDequantTokens; t < end; ++t) {
        load_row(a.simd != 0, from.codec, source.at(t), from.dim, row);
        store_row(a.simd != 0, to.codec, row, to.dim, copy.at(t));
      }
    }
  }
}

}  // namespace tenon::static_cache
