// These are the ops of the caches on the CPU; ops.h says what each does. A row or cell without a slot is passed over; a
// cell beyond the cache is an error.
#include "ops.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "convert.h"
#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/hadamard.h"
#include "tenon/sdk/live.h"

namespace tenon::slot_cache {
namespace {

namespace cpu = sdk::cpu;
using sdk::KvPlane;
using sdk::Part;

void load_cell(bool simd, const KvPlane& plane, const cpu::KvCells& cells, uint32_t cell, float* to) {
  if (!simd || plane.group != 0) return cells.load(cell, to);
  load_row_avx2(plane.codec, cells.at(cell), plane.dim, cells.scale(cell), to);
}
void store_cell(bool simd, const KvPlane& plane, const cpu::KvCells& cells, const float* from, uint32_t cell) {
  if (!simd) return cells.store(from, cell);
  float scale = 1;
  if (plane.scale != 0) {
    scale = sdk::kv_scale(plane.codec, plane.scale, most_of_row_avx2(from, plane.dim));
    sdk::store_kv_scale(plane.scale, scale, cells.scale_at(cell));
  }
  store_row_avx2(plane.codec, from, plane.dim, scale, cells.at(cell));
}

// A chunk is kAppendRows rows. Thread scratch holds a head, f32, where heads are rotated.
void append(const AppendArgs& a, const Part& part) {
  const uint32_t live = *part.ptr<uint32_t>(kAppendLive);
  const uint32_t end = std::min(live, part.end() * kAppendRows);
  const int32_t* pages = part.ptr<int32_t>(kAppendPages);
  const sdk::KvMemory key_memory{.layout = a.kv,
                                 .plane = a.kv.k,
                                 .base = part.ptr<void>(kAppendKeys),
                                 .scales = part.ptr<void>(kAppendKeyScales),
                                 .pages = pages};
  const sdk::KvMemory value_memory{.layout = a.kv,
                                   .plane = a.kv.v,
                                   .base = part.ptr<void>(kAppendValues),
                                   .scales = part.ptr<void>(kAppendValueScales),
                                   .pages = pages};
  const bool has_tail = a.has_tail != 0;
  const auto* tail_pages = has_tail ? part.ptr<const int32_t>(kAppendTailPages) : nullptr;
  const sdk::KvMemory tail_keys{.layout = a.tail,
                                .plane = a.tail.k,
                                .base = has_tail ? part.ptr<void>(kAppendTailKeys) : nullptr,
                                .scales = nullptr,
                                .pages = tail_pages};
  const sdk::KvMemory tail_values{.layout = a.tail,
                                  .plane = a.tail.v,
                                  .base = has_tail ? part.ptr<void>(kAppendTailValues) : nullptr,
                                  .scales = nullptr,
                                  .pages = tail_pages};
  for (uint32_t row = part.begin() * kAppendRows; row < end; ++row) {
    const int32_t slot = part.ptr<int32_t>(kAppendSlot)[row];
    if (slot < 0) continue;
    const auto place = [&](uint32_t head) {
      const auto* places = part.ptr<int32_t>(kAppendPlace);
      const auto cell = static_cast<uint32_t>(a.kv.apart() ? places[row * a.kv.heads + head] : places[row]);
      if (cell < a.cells) return cell;
      throw sdk::Failed("cell " + std::to_string(cell) + " in a cache of " + std::to_string(a.cells) +
                        " cells a sequence");
    };
    const auto* k = reinterpret_cast<const float*>(part.ptr<std::byte>(kAppendK) + row * a.k_row);
    const auto* v = reinterpret_cast<const float*>(part.ptr<std::byte>(kAppendV) + row * a.v_row);
    const auto sequence = static_cast<uint32_t>(slot);
    const auto store = [&](const sdk::KvMemory& memory, const sdk::KvMemory& tail, uint32_t h, const float* from) {
      const KvPlane& plane = memory.plane;
      from += size_t{h} * plane.dim;
      if (a.rotates()) {
        auto* rotated = part.thread_scratch<float>();
        std::copy_n(from, plane.dim, rotated);
        sdk::rotate_head(rotated, plane.dim);
        from = rotated;
      }
      if (plane.group == 0) store_cell(a.simd != 0, plane, cpu::KvCells(memory, sequence, h), from, place(h));
      if (has_tail) store_cell(a.simd != 0, tail.plane, cpu::KvCells(tail, sequence, h), from, place(h));
    };
    for (uint32_t h = 0; h < a.kv.heads; ++h) {
      store(key_memory, tail_keys, h, k);
      store(value_memory, tail_values, h, v);
    }
  }
}

// Codes the group of keys that ends with a cell. x has (cells, dim) of scratch.
void code_group(const cpu::KvCells& exact, const cpu::KvCells& coded, const KvPlane& plane, uint32_t last, float* x) {
  const uint32_t first = last + 1 - plane.group, dim = plane.dim;
  for (uint32_t i = 0; i < plane.group; ++i) exact.load(first + i, x + size_t{i} * dim);
  std::byte* zeros = coded.scale_at(first);
  const uint32_t bytes = tenon_format_block(plane.scale).bytes;
  for (uint32_t d = 0; d < dim; ++d) {
    float least = x[d], most = x[d];
    for (uint32_t i = 1; i < plane.group; ++i) {
      least = std::min(least, x[size_t{i} * dim + d]);
      most = std::max(most, x[size_t{i} * dim + d]);
    }
    const auto channel = sdk::KvChannel::of(least, most, plane.scale);
    sdk::store_kv_scale(plane.scale, channel.zero, zeros + d * bytes);
    sdk::store_kv_scale(plane.scale, channel.step, zeros + (dim + d) * bytes);
    for (uint32_t i = 0; i < plane.group; ++i) {
      auto* two = reinterpret_cast<uint8_t*>(coded.at(first + i)) + d / 2;
      const uint8_t code = channel.encode(x[size_t{i} * dim + d]);
      *two = static_cast<uint8_t>(d % 2 == 0 ? code : *two | code << 4);
    }
  }
}

// A chunk is a row. Thread scratch holds a group's keys of one head, f32.
void key_groups(const KeyGroupArgs& a, const Part& part) {
  const uint32_t end = std::min({part.end(), *part.ptr<uint32_t>(kGroupLive), a.rows});
  const sdk::KvMemory exact{.layout = a.tail,
                            .plane = a.tail.k,
                            .base = part.ptr<void>(kGroupTailKeys),
                            .scales = nullptr,
                            .pages = part.ptr<int32_t>(kGroupTailPages)};
  const sdk::KvMemory coded{.layout = a.kv,
                            .plane = a.kv.k,
                            .base = part.ptr<void>(kGroupKeys),
                            .scales = part.ptr<void>(kGroupChannels),
                            .pages = part.ptr<int32_t>(kGroupPages)};
  for (uint32_t row = part.begin(); row < end; ++row) {
    const int32_t slot = part.ptr<int32_t>(kGroupSlot)[row];
    const auto cell = static_cast<uint32_t>(part.ptr<int32_t>(kGroupPlace)[row]);
    if (slot < 0 || (cell + 1) % a.kv.k.group != 0) continue;
    const auto sequence = static_cast<uint32_t>(slot);
    for (uint32_t h = 0; h < a.kv.heads; ++h) {
      code_group(cpu::KvCells(exact, sequence, h), cpu::KvCells(coded, sequence, h), a.kv.k, cell,
                 part.thread_scratch<float>());
    }
  }
}

// There is one chunk.
void place(const PlaceArgs& a, const Part& part) {
  const uint32_t live = std::min(*part.ptr<uint32_t>(kPlaceLive), a.rows);
  const auto* order = part.ptr<const int32_t>(kOrders);
  for (uint32_t row = 0; row < live; ++row) {
    part.ptr<int32_t>(kPlaces)[row] = static_cast<int32_t>(a.kv.cell_of(static_cast<uint32_t>(order[row])));
  }
}

// A chunk is a sequence.
void commit(const CommitArgs& a, const Part& part) {
  const uint32_t end = std::min(part.end(), part.ptr<uint32_t>(kCommitLive)[sdk::kLiveSeqs]);
  const auto* place = part.ptr<const int32_t>(kCommitPlace);
  for (uint32_t s = part.begin(); s < end; ++s) {
    const int32_t slot = part.ptr<int32_t>(kCommitSeqSlot)[s], first = part.ptr<int32_t>(kCommitSeqRow)[s];
    if (slot < 0) continue;
    const auto* survivor = part.ptr<const int32_t>(kCommitSurvivor) + first;
    for (int32_t i = 0; i < part.ptr<int32_t>(kCommitAccepted)[s]; ++i) {
      if (survivor[i] == first + i) continue;
      const auto from = static_cast<uint32_t>(place[survivor[i]]), to = static_cast<uint32_t>(place[first + i]);
      for (uint32_t h = 0; h < a.kv.heads; ++h) {
        for (const bool v : {false, true}) {
          const KvPlane& plane = v ? a.kv.v : a.kv.k;
          const cpu::KvCells cells({.layout = a.kv,
                                    .plane = plane,
                                    .base = part.ptr<void>(v ? kCommitValues : kCommitKeys),
                                    .scales = part.ptr<void>(v ? kCommitValueScales : kCommitKeyScales),
                                    .pages = part.ptr<int32_t>(kCommitPages)},
                                   static_cast<uint32_t>(slot), h);
          std::memcpy(cells.at(to), cells.at(from), a.row_bytes[v ? 1 : 0]);
          if (plane.scale != 0) std::memcpy(cells.scale_at(to), cells.scale_at(from), a.scale_bytes);
        }
      }
    }
  }
}

// A chunk is kDequantCells cells of one head of one sequence. Thread scratch holds a row, f32.
void dequant(const DequantArgs& a, const Part& part) {
  const uint32_t seqs = part.ptr<uint32_t>(kLive)[sdk::kLiveSeqs];
  const int32_t* seq_row = part.ptr<int32_t>(kSeqRow);
  const int32_t *pages = part.ptr<int32_t>(kPages), *copy_pages = part.ptr<int32_t>(kCopyPages);
  auto* row = part.thread_scratch<float>();
  const uint32_t blocks = dequant_blocks(a);
  for (uint32_t chunk = part.begin(); chunk < part.end(); ++chunk) {
    const uint32_t block = chunk % blocks, h = chunk / blocks % a.from.heads, seq = chunk / blocks / a.from.heads;
    if (seq >= seqs) return;
    const int32_t slot = part.ptr<int32_t>(kSeqSlot)[seq];
    if (slot < 0) continue;
    const int64_t length = int64_t{part.ptr<int32_t>(kKvLen)[slot]} + seq_row[seq + 1] - seq_row[seq];
    const auto end = static_cast<uint32_t>(std::min<int64_t>(
        {a.all_cells != 0 ? int64_t{a.cells} : length, int64_t{block + 1} * kDequantCells, int64_t{a.cells}}));
    for (const bool v : {false, true}) {
      const KvPlane& from = v ? a.from.v : a.from.k;
      const KvPlane& to = v ? a.to.v : a.to.k;
      const auto sequence = static_cast<uint32_t>(slot);
      const cpu::KvCells source({.layout = a.from,
                                 .plane = from,
                                 .base = part.ptr<void>(v ? kFromV : kFromK),
                                 .scales = part.ptr<void>(v ? kFromValueScales : kFromKeyScales),
                                 .pages = pages},
                                sequence, h);
      const cpu::KvCells copy({.layout = a.to,
                               .plane = to,
                               .base = part.ptr<void>(v ? kToV : kToK),
                               .scales = nullptr,
                               .pages = copy_pages},
                              sequence, h);
      for (uint32_t cell = block * kDequantCells; cell < end; ++cell) {
        load_cell(a.simd != 0, from, source, cell, row);
        store_cell(a.simd != 0, to, copy, row, cell);
      }
    }
  }
}

}  // namespace

void emit_append(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const AppendArgs& args) {
  r.emit<append>({.name = "append",
                  .operands = operands,
                  .chunks = {(args.rows + kAppendRows - 1) / kAppendRows},
                  .cost = cost,
                  .thread_scratch_bytes = args.rotates() ? std::max(args.kv.k.dim, args.kv.v.dim) * sizeof(float) : 0},
                 args);
}

bool append_codes_groups(const tenon_bounds&) {
  return false;
}

void emit_key_groups(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const KeyGroupArgs& args) {
  r.emit<key_groups>({.name = "key_groups",
                      .operands = operands,
                      .chunks = {args.rows},
                      .cost = cost,
                      .thread_scratch_bytes = uint64_t{args.kv.k.group} * args.kv.k.dim * sizeof(float)},
                     args);
}

void emit_place(sdk::Recorder& r, Operands operands, const PlaceArgs& args) {
  r.emit<place>({.name = "place", .operands = operands, .chunks = {1}}, args);
}

void emit_commit(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const CommitArgs& args) {
  r.emit<commit>({.name = "commit", .operands = operands, .chunks = {args.seqs}, .cost = cost}, args);
}

void emit_dequant(sdk::Recorder& r, Operands operands, const tenon_cost& cost, const DequantArgs& args) {
  r.emit<dequant>({.name = "dequant",
                   .operands = operands,
                   .chunks = {args.seqs * args.to.heads * dequant_blocks(args)},
                   .cost = cost,
                   .thread_scratch_bytes = std::max(args.to.k.dim, args.to.v.dim) * sizeof(float)},
                  args);
}

void copy(const Copy& c, void*) {
  for (uint64_t i = 0; i < c.pieces; ++i) {
    std::memcpy(static_cast<std::byte*>(c.to) + i * c.to_pitch,
                static_cast<const std::byte*>(c.from) + i * c.from_pitch, c.bytes);
  }
}

void finish(void*) {}

}  // namespace tenon::slot_cache
