// Sequences leave a cache in pages as bytes, and come back to one of the same shape.
#include <algorithm>
#include <cstring>

#include "ops.h"
#include "slot_cache.h"

namespace tenon::slot_cache {
namespace {

using sdk::Refused;

// An exported sequence begins with this; then come the planes of all layers, each (head, token, dim), of the sinks
// and of the positions from `first` on: those that a row after it sees and, as far as the ring has them, its last one
// saw. Where layers with a window keep that window alone, `first` tells the windows, and each has its newest
// positions, as many as it sees; else it is 0.
struct ExportHeader {
  char magic[8];
  uint32_t codec, scale, layers, kv_len;
  uint64_t tail;   // so many tokens are there a second time, in f16
  uint64_t shape;  // it is a hash of the planes and the policy
  uint64_t first;
};
constexpr char kMagic[8] = {'T', 'E', 'N', 'O', 'N', 'K', 'V', '4'};

// "i8 with scales of f16".
std::string plane_text(uint32_t codec, uint32_t scale) {
  const std::string name = sdk::kv_codec_name(codec);
  return scale == TENON_FORMAT_NONE ? name : name + " with scales of " + tenon_format_name(scale);
}

}  // namespace

uint64_t SlotCache::shape() const {
  uint64_t h = sdk::detail::kFnvStart;
  for (const Plane& p : planes_) h = sdk::detail::fnv(h, uint64_t{p.heads} << 32 | p.dim);
  h = sdk::detail::fnv(h, uint64_t{policy_.sinks} << 32 | policy_.window);
  h = sdk::detail::fnv(h, uint64_t{policy_.key_group});
  return sdk::detail::fnv(h, uint64_t{format_.rotated} | (policy_.hadamard ? uint64_t{2} : 0));
}

uint64_t SlotCache::windows() const {
  uint64_t h = sdk::detail::kFnvStart;
  for (const Plane& p : planes_) h = sdk::detail::fnv(h, uint64_t{groups_[p.group].window});
  return h;
}

std::vector<SlotCache::Run> SlotCache::in_export(const Plane& p, uint64_t first, uint32_t kv_len) const {
  if (ring()) return kept(static_cast<uint32_t>(first), kv_len);
  const Group& g = groups_[p.group];
  return run_of(g, first != 0 && g.window != 0 ? begin_of_window(g.window, kv_len) : 0, kv_len);
}

uint64_t SlotCache::export_bytes(uint64_t first, uint32_t kv_len) const {
  uint64_t bytes = sizeof(ExportHeader);
  for (const Plane& p : planes_) {
    for (const Run& run : in_export(p, first, kv_len)) bytes += rows_of(p, run) * row_bytes(p) * p.heads;
  }
  return bytes;
}

uint64_t SlotCache::export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst) const {
  check(slot, kv_len);
  check_kept(slot, kv_len);
  if (has_windows() && kv_len > 0) check_kept(slot, kv_len - 1);
  const uint64_t first = ring()          ? std::max(first_exported(kv_len), std::min(overwritten_[slot], kv_len))
                         : has_windows() ? windows()
                                         : 0;
  const uint64_t bytes = export_bytes(first, kv_len);
  if (dst == nullptr) return bytes;
  ExportHeader header{{}, format_.k.codec, format_.k.scale, layers(), kv_len, policy_.tail, shape(), first};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  auto* out = static_cast<std::byte*>(dst);
  std::memcpy(out, &header, sizeof(header));
  out += sizeof(header);
  for (const Plane& p : planes_) {
    const std::vector<Run> runs = in_export(p, first, kv_len);
    uint64_t rows = 0, at = 0;
    for (const Run& run : runs) rows += rows_of(p, run);
    for (const Run& run : runs) {
      if (run.count == 0) continue;
      copy({.to = out + at * row_bytes(p),
            .from = cell(p, slot, run.cell),
            .bytes = rows_of(p, run) * row_bytes(p),
            .pieces = p.heads,
            .to_pitch = rows * row_bytes(p),
            .from_pitch = head_bytes(p)},
           queue);
      at += rows_of(p, run);
    }
    out += rows * row_bytes(p) * p.heads;
  }
  return bytes;
}

void SlotCache::check_import(uint32_t kv_len, const void* src, uint64_t bytes) const {
  ExportHeader header{};
  if (bytes < sizeof(header)) throw Refused("a sequence of " + std::to_string(bytes) + " bytes has no header");
  std::memcpy(&header, src, sizeof(header));
  if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic)) {
    throw Refused("these bytes are no sequence exported by kv_cache." + name_);
  }
  if (header.codec != format_.k.codec || header.scale != format_.k.scale) {
    throw Refused("the sequence was exported as " + plane_text(header.codec, header.scale) + ", the cache stores " +
                  plane_text(format_.k.codec, format_.k.scale));
  }
  if (header.tail != policy_.tail) {
    throw Refused("the sequence was exported with a tail of " + std::to_string(header.tail) +
                  " tokens, the cache has one of " + std::to_string(policy_.tail));
  }
  if (header.layers != layers() || header.shape != shape()) {
    throw Refused(
        "the sequence was exported from a cache with other layers, head dimensions, sinks or window, another "
        "rotation or other groups of keys");
  }
  const uint32_t least = first_exported(kv_len), most = std::max(least, first_kept(kv_len));
  const bool begins = ring() ? header.first >= least && header.first <= most
                             : header.first == 0 || (has_windows() && header.first == windows());
  if (!begins && !ring() && header.kv_len == kv_len) {
    throw Refused(
        "of layers with a window the sequence has what that window saw, and this cache keeps all of them or has other "
        "windows");
  }
  if (!begins || header.kv_len != kv_len || bytes != export_bytes(header.first, kv_len)) {
    throw Refused("the sequence has " + std::to_string(header.kv_len) + " tokens in " + std::to_string(bytes) +
                  " bytes, " + std::to_string(kv_len) + " tokens are wanted");
  }
}

void SlotCache::import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes) {
  check(slot, kv_len);
  check_import(kv_len, src, bytes);
  ExportHeader header{};
  std::memcpy(&header, src, sizeof(header));
  const auto* in = static_cast<const std::byte*>(src) + sizeof(ExportHeader);
  for (const Plane& p : planes_) {
    uint64_t rows = 0;
    for (const Run& run : in_export(p, header.first, kv_len)) rows += rows_of(p, run);
    // A window takes its own positions of a sequence that has all.
    const std::vector<Run> runs = in_export(p, ring() ? header.first : 1, kv_len);
    uint64_t own = 0;
    for (const Run& run : runs) own += rows_of(p, run);
    uint64_t at = rows - own;
    for (const Run& run : runs) {
      if (run.count == 0) continue;
      copy({.to = cell(p, slot, run.cell),
            .from = in + at * row_bytes(p),
            .bytes = rows_of(p, run) * row_bytes(p),
            .pieces = p.heads,
            .to_pitch = head_bytes(p),
            .from_pitch = rows * row_bytes(p)},
           queue);
      at += rows_of(p, run);
    }
    in += rows * row_bytes(p) * p.heads;
  }
  if (ring()) overwritten_[slot] = std::max(policy_.sinks, static_cast<uint32_t>(header.first));
  for (uint32_t i = 1; i < groups_.size(); ++i) first_position(i, slot) = begin_of_window(groups_[i].window, kv_len);
}

}  // namespace tenon::slot_cache
