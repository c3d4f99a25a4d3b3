#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "ops.h"
#include "plugin.h"

namespace tenon::static_cache {
namespace {

namespace cpu = sdk::cpu;
using sdk::Failed;
using sdk::NoSpace;
using sdk::Recorder;
using sdk::Refused;

constexpr uint64_t kAlignment = 256;
constexpr tenon_kv_format kPlain[] = {cpu::plain_kv_format(TENON_F32), cpu::plain_kv_format(TENON_F16),
                                      cpu::plain_kv_format(TENON_BF16)};

const tenon_kv_format& plain_format(const std::string& name) {
  return name == "fp32" ? kPlain[0] : name == "fp16" ? kPlain[1] : kPlain[2];
}

// What an exported sequence begins with; then come the layers' K and V, each (head, token, dim).
struct ExportHeader {
  char magic[8];
  uint32_t codec, layers, kv_len, reserved;
  uint64_t shape;  // hash of every layer's heads and dimensions
};
constexpr char kMagic[8] = {'T', 'E', 'N', 'O', 'N', 'K', 'V', '1'};

}  // namespace

StaticCache::StaticCache(const sdk::Params& params, const sdk::Env& env)
    : format_(plain_format(params.text("format"))),
      element_(tenon_format_block(format_.k.codec).bytes),
      simd_((env.device().isa & TENON_ISA_AVX2) != 0) {}

tenon_claim StaticCache::claim(const tenon_kv_geometry& g, const tenon_bounds&) const {
  if (g.heads == 0 || g.k_dim == 0 || g.v_dim == 0) throw Refused("a layer without heads or without dimensions");
  return sdk::abi_struct<tenon_claim>();
}

tenon_footprint StaticCache::plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
  if (b.kv_len == 0 || b.slots == 0) throw Failed("a cache without capacity or without slots");
  if (b.kv_len > 1u << 30) throw NoSpace("a capacity of " + std::to_string(b.kv_len) + " tokens; 2^30 is the most");
  slots_ = b.slots, capacity_ = b.kv_len;
  page_tokens_ = (capacity_ + 7) / 8 * 8;
  planes_.clear();
  token_bytes_ = 0;
  uint64_t offset = 0;
  for (const tenon_kv_geometry& g : layers) {
    for (const uint32_t dim : {g.k_dim, g.v_dim}) {
      planes_.push_back({offset, g.heads, dim});
      uint64_t token = 0, bytes = 0;
      if (__builtin_mul_overflow(uint64_t{g.heads} * dim, uint64_t{element_}, &token) ||
          __builtin_mul_overflow(token, uint64_t{slots_} * page_tokens_, &bytes) ||
          __builtin_add_overflow(bytes, offset + kAlignment, &offset) || offset > uint64_t{INT64_MAX}) {
        throw NoSpace("a cache of more than 2^63 bytes");
      }
      offset = offset / kAlignment * kAlignment;
      token_bytes_ += token;
    }
  }
  auto f = sdk::abi_struct<tenon_footprint>();
  f.n_stores = 2;
  f.store_bytes[0] = offset;
  f.store_bytes[1] = uint64_t{slots_} * sizeof(int32_t);
  return f;
}

void StaticCache::attach(void* const* store, void* queue) {
  base_ = static_cast<std::byte*>(store[0]);
  std::vector<int32_t> pages(slots_);
  std::iota(pages.begin(), pages.end(), 0);
  const uint64_t bytes = pages.size() * sizeof(int32_t);
  copy({.to = store[1], .from = pages.data(), .bytes = bytes}, queue);
  finish(queue);
}

const StaticCache::Plane& StaticCache::plane(uint32_t layer, bool values) const {
  const size_t i = size_t{layer} * 2 + (values ? 1 : 0);
  if (i >= planes_.size()) {
    throw Failed("layer " + std::to_string(layer) + " of a cache of " + std::to_string(planes_.size() / 2) + " layers");
  }
  return planes_[i];
}

std::byte* StaticCache::page(const Plane& p, uint32_t slot) const {
  return base_ + p.offset + slot * head_bytes(p) * p.heads;
}

void StaticCache::check(uint32_t slot, uint32_t kv_len) const {
  if (slot >= slots_) {
    throw NoSpace("slot " + std::to_string(slot) + ", but the cache has " + std::to_string(slots_) + " slots");
  }
  if (kv_len > capacity_) {
    throw NoSpace("a sequence of " + std::to_string(kv_len) + " tokens, but the cache has a capacity of " +
                  std::to_string(capacity_) + " tokens a sequence");
  }
}

tenon_kv_view StaticCache::empty_view(uint32_t layer, const tenon_tid* store) const {
  const Plane &k = plane(layer, false), &v = plane(layer, true);
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.heads = k.heads, view.k_dim = k.dim, view.v_dim = v.dim;
  view.page_tokens = std::bit_ceil(capacity_);
  view.pos_rule = TENON_POS_LINEAR;
  view.sink_page = TENON_NO_PAGE;
  view.columns = 1;
  view.pages = store[1];
  view.group = 1;
  return view;
}

namespace {

// A plane of pages as a tensor (page, head, token, dim), and its strides in the order of a view.
tenon_tensor plane_tensor(tenon_format codec, uint32_t pages, uint32_t heads, uint32_t tokens, uint32_t dim) {
  return sdk::tensor(codec, {pages, heads, tokens, dim});
}
void set_strides(const tenon_tensor& t, int64_t (&stride)[3]) {
  stride[0] = t.stride[0], stride[1] = t.stride[2], stride[2] = t.stride[1];
}

}  // namespace

tenon_kv_view StaticCache::view(uint32_t layer, const tenon_tid* store, Recorder& r) const {
  tenon_kv_view view = empty_view(layer, store);
  const Plane &k = plane(layer, false), &v = plane(layer, true);
  const tenon_tensor kt = plane_tensor(format_.k.codec, slots_, k.heads, page_tokens_, k.dim);
  const tenon_tensor vt = plane_tensor(format_.v.codec, slots_, v.heads, page_tokens_, v.dim);
  view.format = &format_;
  view.k = r.slice(store[0], kt, k.offset), view.v = r.slice(store[0], vt, v.offset);
  set_strides(kt, view.k_stride), set_strides(vt, view.v_stride);
  return view;
}

void StaticCache::record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, Recorder& r) const {
  const tenon_kv_view to = view(layer, store, r);
  const AppendArgs args{cpu::kv_layout(to), r.describe(k).stride[0], r.describe(v).stride[0], capacity_, simd_,
                        r.bounds().rows};
  const tenon_operand operands[] = {{k, TENON_READ},
                                    {v, TENON_READ},
                                    {to.k, TENON_WRITE_NEW},
                                    {to.v, TENON_WRITE_NEW},
                                    {to.pages, TENON_READ},
                                    {r.step(TENON_STEP_LIVE), TENON_READ},
                                    {r.step(TENON_STEP_POS), TENON_READ},
                                    {r.step(TENON_STEP_SLOT), TENON_READ}};
  const auto columns = static_cast<double>(to.heads) * (to.k_dim + to.v_dim);
  tenon_cost cost{};
  cost.read[1] = columns * sizeof(float), cost.written[1] = columns * element_;
  emit_append(r, operands, cost, args);
}

tenon_kv_view StaticCache::record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                                          Recorder& r) const {
  if (const char* why = cpu::not_plain(want))
    throw Refused(std::string("a copy is made in plain formats only: ") + why);
  if (want.k.codec != want.v.codec) throw Refused("a copy has one codec for keys and values");
  const tenon_kv_view from = view(layer, store, r);
  tenon_kv_view to = empty_view(layer, store);
  const uint32_t tokens = std::min(capacity_, r.bounds().kv_len);
  const tenon_tensor kt = plane_tensor(want.k.codec, slots_, to.heads, tokens, to.k_dim);
  const tenon_tensor vt = plane_tensor(want.v.codec, slots_, to.heads, tokens, to.v_dim);
  to.format = std::find_if(std::begin(kPlain), std::end(kPlain),
                           [&](const tenon_kv_format& f) { return f.k.codec == want.k.codec; });
  to.k = r.temp(kt), to.v = r.temp(vt);
  set_strides(kt, to.k_stride), set_strides(vt, to.v_stride);
  const DequantArgs args{cpu::kv_layout(from), cpu::kv_layout(to), tokens, r.bounds().seqs, simd_};
  const tenon_operand operands[] = {{from.k, TENON_READ},
                                    {from.v, TENON_READ},
                                    {to.k, TENON_WRITE},
                                    {to.v, TENON_WRITE},
                                    {from.pages, TENON_READ},
                                    {r.step(TENON_STEP_LIVE), TENON_READ},
                                    {r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                    {r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                    {r.step(TENON_STEP_KV_LEN), TENON_READ}};
  const auto columns = static_cast<double>(to.heads) * (to.k_dim + to.v_dim);
  const double shared = std::max<uint32_t>(1, r.bounds().rows_per_seq);  // rows that one copy serves
  tenon_cost cost{};
  cost.read[2] = columns * element_ / shared;
  cost.written[2] = columns * tenon_format_block(want.k.codec).bytes / shared;
  emit_dequant(r, operands, cost, args);
  return to;
}

void StaticCache::fork(uint32_t from, uint32_t to, uint32_t kv_len, void* queue) {
  check(from, kv_len), check(to, kv_len);
  if (from == to || kv_len == 0) return;
  for (const Plane& p : planes_) {
    copy({.to = page(p, to),
          .from = page(p, from),
          .bytes = kv_len * row_bytes(p),
          .pieces = p.heads,
          .to_pitch = head_bytes(p),
          .from_pitch = head_bytes(p)},
         queue);
  }
}

uint64_t StaticCache::shape() const {
  uint64_t h = sdk::detail::kFnvStart;
  for (const Plane& p : planes_) h = sdk::detail::fnv(h, uint64_t{p.heads} << 32 | p.dim);
  return h;
}

uint64_t StaticCache::export_sequence(uint32_t slot, uint32_t kv_len, void* queue, void* dst) const {
  check(slot, kv_len);
  const uint64_t bytes = sizeof(ExportHeader) + used_bytes(kv_len);
  if (dst == nullptr) return bytes;
  ExportHeader header{{}, format_.k.codec, static_cast<uint32_t>(planes_.size() / 2), kv_len, 0, shape()};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  auto* out = static_cast<std::byte*>(dst);
  std::memcpy(out, &header, sizeof(header));
  out += sizeof(header);
  if (kv_len == 0) return bytes;
  for (const Plane& p : planes_) {
    const uint64_t piece = kv_len * row_bytes(p);
    copy({.to = out,
          .from = page(p, slot),
          .bytes = piece,
          .pieces = p.heads,
          .to_pitch = piece,
          .from_pitch = head_bytes(p)},
         queue);
    out += piece * p.heads;
  }
  return bytes;
}

void StaticCache::import_sequence(uint32_t slot, uint32_t kv_len, void* queue, const void* src, uint64_t bytes) {
  check(slot, kv_len);
  ExportHeader header{};
  if (bytes < sizeof(header)) throw Refused("a sequence of " + std::to_string(bytes) + " bytes has no header");
  std::memcpy(&header, src, sizeof(header));
  if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic)) {
    throw Refused("these bytes are no sequence exported by kv_cache.static");
  }
  if (header.codec != format_.k.codec) {
    throw Refused(std::string("the sequence was exported as ") + tenon_format_name(header.codec) +
                  ", the cache stores " + tenon_format_name(format_.k.codec));
  }
  if (header.layers != planes_.size() / 2 || header.shape != shape()) {
    throw Refused("the sequence was exported from a cache with other layers or head dimensions");
  }
  if (header.kv_len != kv_len || bytes != sizeof(header) + used_bytes(kv_len)) {
    throw Refused("the sequence has " + std::to_string(header.kv_len) + " tokens in " + std::to_string(bytes) +
                  " bytes, " + std::to_string(kv_len) + " tokens are wanted");
  }
  if (kv_len == 0) return;
  const auto* in = static_cast<const std::byte*>(src) + sizeof(header);
  for (const Plane& p : planes_) {
    const uint64_t piece = kv_len * row_bytes(p);
    copy({.to = page(p, slot),
          .from = in,
          .bytes = piece,
          .pieces = p.heads,
          .to_pitch = head_bytes(p),
          .from_pitch = piece},
         queue);
    in += piece * p.heads;
  }
}

}  // namespace tenon::static_cache
