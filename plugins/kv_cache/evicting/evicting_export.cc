// Sequences leave a cache that evicts as bytes, and come back to one of the same rule. What a head has dropped decides
// what it drops next, so a sequence goes on as if it had never left only with all of its state: which cell holds which
// position, since rows take the first cell that is free and sums go by cells; the scores, with the weights of the last
// step, which the next one would add; and whether a prompt was being read.
#include <algorithm>
#include <cstring>

#include "../common/ops.h"
#include "evicting_cache.h"
#include "tenon/sdk/error.h"

namespace tenon::evicting {
namespace {

using sdk::Refused;
using Bytes = std::span<const std::byte>;

// An exported sequence begins with this. Then come the KV heads, layer by layer: u32 cells in use,
// u32 whether a prompt is read; of those cells, ascending, i32 numbers, i32 positions, f32 scores,
// keys (cell, k_dim) and values (cell, v_dim).
struct ExportHeader {
  char magic[8];
  uint32_t codec, layers, kv_len, heads;  // heads: of all layers
  uint64_t shape;                         // hash of the layers and the rule
  uint64_t bytes;                         // the sequence has so many, this header included
};
constexpr char kMagic[8] = {'T', 'E', 'N', 'O', 'N', 'K', 'E', '1'};

template <class T>
void put(std::byte*& to, const T* from, size_t n) {
  std::memcpy(to, from, n * sizeof(T));
  to += n * sizeof(T);
}

Bytes take(Bytes& rest, uint64_t bytes) {
  if (bytes > rest.size()) throw Refused("the sequence ends within a KV head");
  const Bytes taken = rest.first(bytes);
  rest = rest.subspan(bytes);
  return taken;
}
template <class T>
std::vector<T> take_numbers(Bytes& rest, uint64_t n) {
  const Bytes from = take(rest, n * sizeof(T));
  std::vector<T> all(n);
  if (n > 0) std::memcpy(all.data(), from.data(), from.size());
  return all;
}

}  // namespace

// It holds a KV head of an exported sequence: each vector has an entry for each cell in use.
struct EvictingCache::Line {
  uint32_t prompt;
  std::vector<int32_t> cell, position;
  std::vector<float> score;
  Bytes k, v;
};

// It holds on the host what a slot has of a layer. Positions, scores and weights are (head,
// page_cells), the planes (head, cells, dim).
struct EvictingCache::Copied {
  std::vector<int32_t> position, prompt;
  std::vector<float> score, weight;
  std::vector<std::byte> k, v;
};

uint64_t EvictingCache::shape() const {
  uint64_t h = sdk::detail::kFnvStart;
  for (const Layer& l : layers_) {
    for (const uint32_t x : {l.heads, l.k_dim, l.v_dim}) h = sdk::detail::fnv(h, uint64_t{x});
  }
  const Rule& r = policy_.rule;
  for (const uint32_t x : {r.most, r.cut, r.recent, r.observe, r.around}) h = sdk::detail::fnv(h, uint64_t{x});
  return h;
}

EvictingCache::Copied EvictingCache::nothing_of(const Layer& l) const {
  const size_t all = size_t{l.heads} * page_cells_;
  return {.position = std::vector<int32_t>(all, -1),
          .prompt = std::vector<int32_t>(l.heads, 0),
          .score = std::vector<float>(all, 0),
          .weight = std::vector<float>(all, 0),
          .k = std::vector<std::byte>(plane_bytes(l, l.k_dim) / slots_),
          .v = std::vector<std::byte>(plane_bytes(l, l.v_dim) / slots_)};
}

// Copies a layer of a slot to the host or from it, and waits.
void EvictingCache::move(const Layer& l, uint32_t slot, Copied& c, const Move& how) const {
  const auto copy = [&](Store store, uint64_t offset, auto& host) {
    const uint64_t bytes = host.size() * sizeof(host[0]);
    std::byte* const device = stores_[store] + offset + slot * bytes;
    if (how.to_host) {
      slot_cache::copy({.to = host.data(), .from = device, .bytes = bytes}, how.queue);
    } else {
      slot_cache::copy({.to = device, .from = host.data(), .bytes = bytes}, how.queue);
    }
  };
  const uint64_t lines = l.lines * slots_, each = sizeof(int32_t);
  copy(kPositions, lines * page_cells_ * each, c.position);
  if (!how.positions_alone) {
    copy(kWeightsOf, lines * page_cells_ * each, c.weight);
    copy(kScoresOf, lines * page_cells_ * each, c.score);
    copy(kPrompts, lines * each, c.prompt);
    copy(kPlanes, l.planes, c.k);
    copy(kPlanes, l.planes + plane_bytes(l, l.k_dim), c.v);
  }
  slot_cache::finish(how.queue);
}

// Returns the cells in use of a KV head that hold positions below kv_len.
std::vector<int32_t> EvictingCache::cells_in_use(const Copied& c, uint32_t head, uint32_t kv_len) const {
  std::vector<int32_t> used;
  for (uint32_t cell = 0; cell < cells_; ++cell) {
    const int32_t position = c.position[size_t{head} * page_cells_ + cell];
    if (position >= 0 && static_cast<uint32_t>(position) < kv_len) used.push_back(static_cast<int32_t>(cell));
  }
  return used;
}

void EvictingCache::write_line(const Layer& l, const Copied& c, uint32_t head, uint32_t kv_len, std::byte*& out) const {
  const std::vector<int32_t> used = cells_in_use(c, head, kv_len);
  const size_t first = size_t{head} * page_cells_;
  const uint32_t counts[] = {static_cast<uint32_t>(used.size()), c.prompt[head] != 0 ? 1U : 0U};
  put(out, counts, 2);
  put(out, used.data(), used.size());
  for (const int32_t cell : used) put(out, &c.position[first + cell], 1);
  for (const int32_t cell : used) {
    const float score = c.score[first + cell] + c.weight[first + cell];
    put(out, &score, 1);
  }
  const auto rows = [&](const std::vector<std::byte>& plane, uint32_t dim) {
    const uint64_t row = element_bytes() * dim;
    for (const int32_t cell : used) put(out, &plane[(size_t{head} * cells_ + cell) * row], row);
  };
  rows(c.k, l.k_dim);
  rows(c.v, l.v_dim);
}

uint64_t EvictingCache::export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst) const {
  check(slot, kv_len);
  check_kept(slot, kv_len);
  ExportHeader header{{}, format_.k.codec, static_cast<uint32_t>(layers_.size()), kv_len, 0, shape(), sizeof(header)};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  std::byte* out = dst == nullptr ? nullptr : static_cast<std::byte*>(dst) + sizeof(header);
  for (const Layer& l : layers_) {
    Copied c = nothing_of(l);
    move(l, slot, c, {.to_host = true, .positions_alone = dst == nullptr, .queue = queue});
    for (uint32_t head = 0; head < l.heads; ++head) {
      header.bytes += line_bytes(l, cells_in_use(c, head, kv_len).size());
      if (dst != nullptr) write_line(l, c, head, kv_len, out);
    }
    header.heads += l.heads;
  }
  if (dst != nullptr) std::memcpy(dst, &header, sizeof(header));
  return header.bytes;
}

// It throws Refused for numbers that no cache of this rule exports.
EvictingCache::Line EvictingCache::read_line(const Layer& l, uint32_t kv_len, Bytes& rest) const {
  const std::vector<uint32_t> counts = take_numbers<uint32_t>(rest, 2);
  const uint32_t n = counts[0];
  if (counts[1] > 1) throw Refused("the sequence says neither that a prompt is read nor that none is");
  Line line{.prompt = counts[1],
            .cell = take_numbers<int32_t>(rest, n),
            .position = take_numbers<int32_t>(rest, n),
            .score = take_numbers<float>(rest, n),
            .k = take(rest, element_bytes() * l.k_dim * n),
            .v = take(rest, element_bytes() * l.v_dim * n)};
  if (n > 0 && static_cast<uint32_t>(line.cell.back()) >= cells_) {
    throw Refused("the sequence has its tokens in cells up to " + std::to_string(line.cell.back()) +
                  ", and this cache has " + std::to_string(cells_) +
                  "; take steps of as many rows as where it was exported (scheduler.prefill_rows)");
  }
  std::vector<int32_t> sorted = line.position;
  std::ranges::sort(sorted);
  const bool sound =
      n == 0 || (line.cell.front() >= 0 && sorted.front() >= 0 && static_cast<uint32_t>(sorted.back()) < kv_len &&
                 std::ranges::adjacent_find(line.cell, std::greater_equal()) == line.cell.end() &&
                 std::ranges::adjacent_find(sorted) == sorted.end());
  if (!sound) throw Refused("the sequence has a position or a cell twice, or one that it cannot have");
  return line;
}

void EvictingCache::check_import(uint32_t kv_len, Bytes src) const {
  ExportHeader header{};
  if (src.size() < sizeof(header))
    throw Refused("a sequence of " + std::to_string(src.size()) + " bytes has no header");
  std::memcpy(&header, src.data(), sizeof(header));
  if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic)) {
    throw Refused("these bytes are no sequence exported by kv_cache." + policy_.name);
  }
  if (header.codec != format_.k.codec) {
    throw Refused(std::string("the sequence was exported as ") + sdk::kv_codec_name(header.codec) +
                  ", the cache stores " + sdk::kv_codec_name(format_.k.codec));
  }
  uint32_t heads = 0;
  for (const Layer& l : layers_) heads += l.heads;
  if (header.layers != layers_.size() || header.heads != heads || header.shape != shape()) {
    throw Refused(
        "the sequence was exported from a cache with other layers, other head dimensions, or another rule of what it "
        "keeps");
  }
  if (header.kv_len != kv_len || header.bytes != src.size()) {
    throw Refused("the sequence has " + std::to_string(header.kv_len) + " tokens in " + std::to_string(header.bytes) +
                  " bytes, and " + std::to_string(kv_len) + " tokens in " + std::to_string(src.size()) +
                  " bytes are given");
  }
  Bytes rest = src.subspan(sizeof(header));
  for (const Layer& l : layers_) {
    for (uint32_t head = 0; head < l.heads; ++head) static_cast<void>(read_line(l, kv_len, rest));
  }
  if (!rest.empty()) throw Refused("the sequence has " + std::to_string(rest.size()) + " bytes after its last KV head");
}

void EvictingCache::import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes) {
  check(slot, kv_len);
  const Bytes all(static_cast<const std::byte*>(src), bytes);
  check_import(kv_len, all);
  Bytes rest = all.subspan(sizeof(ExportHeader));
  for (const Layer& l : layers_) {
    Copied c = nothing_of(l);
    for (uint32_t head = 0; head < l.heads; ++head) {
      const Line line = read_line(l, kv_len, rest);
      c.prompt[head] = static_cast<int32_t>(line.prompt);
      const auto rows = [&](Bytes from, uint32_t dim, std::vector<std::byte>& plane) {
        const uint64_t row = element_bytes() * dim;
        for (size_t i = 0; i < line.cell.size(); ++i) {
          std::memcpy(&plane[(size_t{head} * cells_ + line.cell[i]) * row], &from[i * row], row);
        }
      };
      rows(line.k, l.k_dim, c.k);
      rows(line.v, l.v_dim, c.v);
      for (size_t i = 0; i < line.cell.size(); ++i) {
        c.position[size_t{head} * page_cells_ + line.cell[i]] = line.position[i];
        c.score[size_t{head} * page_cells_ + line.cell[i]] = line.score[i];
      }
    }
    move(l, slot, c, {.to_host = false, .positions_alone = false, .queue = queue});
  }
  reserved_[slot] = kv_len;
}

}  // namespace tenon::evicting
