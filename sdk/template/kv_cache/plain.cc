// kv_cache.plain has room for the whole context of every sequence, token by token: one page a sequence.
//
// Store 0 holds the planes, for each layer K and then V, each (slot, token, head, dim). Store 1 is the table of pages,
// i32[slots][1]: a sequence's page is its slot's.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/kv_cache.h"
#include "tenon/sdk/live.h"

namespace sdk = tenon::sdk;
namespace cpu = tenon::sdk::cpu;

namespace {

constexpr tenon_kv_format kFormats[] = {sdk::kv_format(TENON_F32), sdk::kv_format(TENON_F16),
                                        sdk::kv_format(TENON_BF16)};
const tenon_kv_format& format_of(uint32_t codec) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats),
                       [&](const tenon_kv_format& f) { return f.k.codec == codec; });
}

struct AppendArgs {
  sdk::KvLayout kv;
  int64_t k_row, v_row;  // bytes
  uint32_t rows, capacity;
};
enum AppendOperand { kRowK, kRowV, kKeys, kValues, kPages, kLive, kPlace, kSlot, kAppendOperands };

// A chunk is a row.
void append(const AppendArgs& a, const sdk::Part& part) {
  const uint32_t end = std::min({part.end(), *part.ptr<const uint32_t>(kLive), a.rows});
  for (uint32_t row = part.begin(); row < end; ++row) {
    const int32_t slot = part.ptr<const int32_t>(kSlot)[row];
    const auto cell = static_cast<uint32_t>(part.ptr<const int32_t>(kPlace)[row]);
    if (slot < 0) continue;
    if (cell >= a.capacity) throw sdk::Failed("cell " + std::to_string(cell) + " is beyond the capacity");
    const auto store = [&](const sdk::KvPlane& plane, int from, int64_t from_row, int to) {
      const sdk::KvMemory memory{.layout = a.kv,
                                 .plane = plane,
                                 .base = part.ptr<void>(static_cast<size_t>(to)),
                                 .scales = nullptr,
                                 .pages = part.ptr<int32_t>(kPages)};
      const auto* x = reinterpret_cast<const float*>(part.ptr<std::byte>(static_cast<size_t>(from)) + row * from_row);
      for (uint32_t h = 0; h < a.kv.heads; ++h) {
        const cpu::KvCells cells(memory, static_cast<uint32_t>(slot), h);
        cells.store(x + size_t{h} * plane.dim, cell);
      }
    };
    store(a.kv.k, kRowK, a.k_row, kKeys);
    store(a.kv.v, kRowV, a.v_row, kValues);
  }
}

struct CopyArgs {
  sdk::KvLayout from, to;
  uint32_t tokens;  // the copy has room for so many
};
enum CopyOperand { kFromK, kFromV, kToK, kToV, kTable, kCopyLive, kSeqSlot, kSeqRow, kKvLen, kCopyOperands };

// A chunk is a sequence: what it held before the step and the step's rows.
void copy(const CopyArgs& a, const sdk::Part& part) {
  const uint32_t end = std::min(part.end(), part.ptr<const uint32_t>(kCopyLive)[sdk::kLiveSeqs]);
  for (uint32_t s = part.begin(); s < end; ++s) {
    const int32_t slot = part.ptr<const int32_t>(kSeqSlot)[s];
    if (slot < 0) continue;
    const int32_t* seq_row = part.ptr<const int32_t>(kSeqRow);
    const int32_t length = part.ptr<const int32_t>(kKvLen)[slot] + seq_row[s + 1] - seq_row[s];
    const uint32_t tokens = std::min(static_cast<uint32_t>(length), a.tokens);
    for (const bool v : {false, true}) {
      const auto* table = part.ptr<int32_t>(kTable);
      const sdk::KvMemory from{.layout = a.from,
                               .plane = v ? a.from.v : a.from.k,
                               .base = part.ptr<void>(v ? kFromV : kFromK),
                               .scales = nullptr,
                               .pages = table};
      const sdk::KvMemory to{.layout = a.to,
                             .plane = v ? a.to.v : a.to.k,
                             .base = part.ptr<void>(v ? kToV : kToK),
                             .scales = nullptr,
                             .pages = table};
      for (uint32_t h = 0; h < a.from.heads; ++h) {
        const cpu::KvCells source(from, static_cast<uint32_t>(slot), h);
        const cpu::KvCells target(to, static_cast<uint32_t>(slot), h);
        auto* line = part.thread_scratch<float>();
        for (uint32_t t = 0; t < tokens; ++t) {
          source.load(t, line);
          target.store(line, t);
        }
      }
    }
  }
}

class Plain : public sdk::KvCache<Plain> {
 public:
  static constexpr const char* kName = "plain";
  static constexpr const char* kDoc = "All of the context for every sequence, token by token";
  static constexpr auto kParams = sdk::params(
      sdk::text({.name = "format", .doc = "How an element is stored", .value = "fp16", .choices = "fp16|bf16|fp32"}));

  Plain(const sdk::Params& params, const sdk::Env&)
      : format_(format_of(params.text("format") == "fp32"   ? TENON_F32
                          : params.text("format") == "fp16" ? TENON_F16
                                                            : TENON_BF16)) {}

  // Survivors of a tree of drafts would have to be moved together: record_commit of kv_cache.static does it.
  tenon_kv_view claim(const tenon_kv_geometry& g, const tenon_bounds& b) const {
    if (g.heads == 0 || g.k_dim == 0 || g.v_dim == 0) throw sdk::Refused("a layer without heads or dimensions");
    if (b.trees != 0) throw sdk::Refused("trees of drafts");
    return prototype(format_, g.heads, g.k_dim, g.v_dim, b.kv_len);
  }

  // This is checked against overflow: the geometry comes from a model's file.
  tenon_footprint plan(std::span<const tenon_kv_geometry> layers, const tenon_bounds& b) {
    if (b.kv_len > 1u << 30) throw sdk::NoSpace("2^30 tokens a sequence are the most");
    slots_ = b.slots;
    capacity_ = b.kv_len;
    uint64_t end = 0;
    for (const tenon_kv_geometry& g : layers) {
      for (const uint32_t dim : {g.k_dim, g.v_dim}) {
        planes_.push_back({end, g.heads, dim});
        uint64_t elements = 0, bytes = 0;
        if (__builtin_mul_overflow(uint64_t{g.heads} * dim, uint64_t{slots_} * capacity_, &elements) ||
            __builtin_mul_overflow(elements, uint64_t{tenon_format_block(format_.k.codec).bytes}, &bytes) ||
            __builtin_add_overflow(end, bytes, &end) || end >= uint64_t{INT64_MAX}) {
          throw sdk::NoSpace("a cache of more than 2^63 bytes");
        }
        end = (end + 63) / 64 * 64;
      }
    }
    auto f = sdk::abi_struct<tenon_footprint>();
    f.n_stores = 2;
    f.store_bytes[0] = end;
    f.store_bytes[1] = uint64_t{slots_} * sizeof(int32_t);
    return f;
  }

  void attach(void* const* store, void*) {
    base_ = static_cast<std::byte*>(store[0]);
    for (uint32_t slot = 0; slot < slots_; ++slot) static_cast<int32_t*>(store[1])[slot] = static_cast<int32_t>(slot);
  }

  tenon_kv_view view(uint32_t layer, const tenon_tid* store, sdk::Recorder& r) const {
    const tenon_tensor k = plane_tensor(layer, false, format_, capacity_),
                       v = plane_tensor(layer, true, format_, capacity_);
    return view_of(format_, {k, r.slice(store[0], k, plane(layer, false).offset)},
                   {v, r.slice(store[0], v, plane(layer, true).offset)}, store[1], r.step(TENON_STEP_PLACE));
  }

  void record_append(uint32_t layer, const tenon_tid* store, tenon_tid k, tenon_tid v, sdk::Recorder& r) const {
    const tenon_kv_view to = view(layer, store, r);
    const AppendArgs args{sdk::kv_layout(to), r.describe(k).stride[0], r.describe(v).stride[0], r.bounds().rows,
                          capacity_};
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kAppendOperands, {{kRowK, k, TENON_READ},
                                           {kRowV, v, TENON_READ},
                                           {kKeys, to.k, TENON_WRITE_NEW},
                                           {kValues, to.v, TENON_WRITE_NEW},
                                           {kPages, to.pages, TENON_READ},
                                           {kLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                           {kPlace, to.place, TENON_READ},
                                           {kSlot, r.step(TENON_STEP_SLOT), TENON_READ}});
    tenon_cost cost{};
    cost.read[sdk::kCostPerRow] = static_cast<double>(to.heads) * (to.k_dim + to.v_dim) * sizeof(float);
    cost.written[sdk::kCostPerRow] =
        cost.read[sdk::kCostPerRow] / sizeof(float) * tenon_format_block(format_.k.codec).bytes;
    r.emit<append>({.name = "append", .operands = operands, .chunks = {args.rows}, .cost = cost}, args);
  }

  tenon_kv_view record_dequant(uint32_t layer, const tenon_tid* store, const tenon_kv_format& want,
                               sdk::Recorder& r) const {
    if (want.k.codec != want.v.codec || want.k.scale != 0 || want.rotated == 0 || want.k.codec == TENON_I8) {
      throw sdk::Refused("a copy has one plain codec for keys and values");
    }
    const tenon_kv_view from = view(layer, store, r);
    const uint32_t tokens = std::min(capacity_, r.bounds().kv_len);
    const tenon_tensor k = plane_tensor(layer, false, want, tokens), v = plane_tensor(layer, true, want, tokens);
    const tenon_kv_view to = view_of(format_of(want.k.codec), {k, r.temp(k)}, {v, r.temp(v)}, store[1], from.place);
    const CopyArgs args{sdk::kv_layout(from), sdk::kv_layout(to), tokens};
    const std::vector<tenon_operand> operands =
        sdk::operands_by(kCopyOperands, {{kFromK, from.k, TENON_READ},
                                         {kFromV, from.v, TENON_READ},
                                         {kToK, to.k, TENON_WRITE},
                                         {kToV, to.v, TENON_WRITE},
                                         {kTable, from.pages, TENON_READ},
                                         {kCopyLive, r.step(TENON_STEP_LIVE), TENON_READ},
                                         {kSeqSlot, r.step(TENON_STEP_SEQ_SLOT), TENON_READ},
                                         {kSeqRow, r.step(TENON_STEP_SEQ_ROW), TENON_READ},
                                         {kKvLen, r.step(TENON_STEP_KV_LEN), TENON_READ}});
    // A copy serves all rows of its sequence.
    const double elements =
        static_cast<double>(to.heads) * (to.k_dim + to.v_dim) / std::max<uint32_t>(1, r.bounds().rows_per_seq);
    tenon_cost cost{};
    cost.read[sdk::kCostPerToken] = elements * tenon_format_block(format_.k.codec).bytes;
    cost.written[sdk::kCostPerToken] = elements * tenon_format_block(want.k.codec).bytes;
    r.emit<copy>({.name = "copy",
                  .operands = operands,
                  .chunks = {r.bounds().seqs},
                  .cost = cost,
                  .thread_scratch_bytes = std::max(to.k_dim, to.v_dim) * sizeof(float)},
                 args);
    return to;
  }

  // Rows that verification rejects lie past the sequence's length, where nobody looks; pages never change.
  void record_commit(const tenon_tid*, sdk::Recorder&) const {}
  void publish(void*) const {}
  void reserve(uint32_t slot, uint32_t kv_len) const { check(slot, kv_len); }
  void truncate(uint32_t slot, uint32_t kv_len) const { check(slot, kv_len); }

  void fork(uint32_t from, uint32_t to, uint32_t kv_len, void*) const {
    check(from, kv_len);
    check(to, kv_len);
    if (from == to) return;
    for (const Plane& p : planes_) std::memcpy(sequence(p, to), sequence(p, from), kv_len * token_bytes(p));
  }

  // Writes a header, then each plane's tokens.
  uint64_t export_sequence(uint32_t slot, uint32_t kv_len, void*, void* dst) const {
    check(slot, kv_len);
    const Header header = header_of(kv_len);
    auto* out = static_cast<std::byte*>(dst);
    if (out != nullptr) {
      std::memcpy(out, &header, sizeof(header));
      out += sizeof(header);
      for (const Plane& p : planes_) out = std::copy_n(sequence(p, slot), kv_len * token_bytes(p), out);
    }
    return sizeof(Header) + used_bytes(kv_len);
  }

  void import_sequence(uint32_t slot, uint32_t kv_len, void*, const void* src, uint64_t bytes) const {
    check(slot, kv_len);
    const Header wanted = header_of(kv_len);
    if (bytes != sizeof(Header) + used_bytes(kv_len) || std::memcmp(src, &wanted, sizeof(wanted)) != 0) {
      throw sdk::Refused("these are no " + std::to_string(kv_len) + " tokens of this model from a kv_cache.plain of " +
                         tenon_format_name(format_.k.codec));
    }
    const auto* in = static_cast<const std::byte*>(src) + sizeof(Header);
    for (const Plane& p : planes_) {
      std::copy_n(in, kv_len * token_bytes(p), sequence(p, slot));
      in += kv_len * token_bytes(p);
    }
  }

  uint64_t used_bytes(uint32_t kv_len) const {
    uint64_t bytes = 0;
    for (const Plane& p : planes_) bytes += kv_len * token_bytes(p);
    return bytes;
  }

 private:
  struct Plane {
    uint64_t offset;  // in store 0
    uint32_t heads, dim;
  };
  struct Header {
    char name[8];
    uint32_t codec, kv_len;
    uint64_t shape;
  };

  const Plane& plane(uint32_t layer, bool values) const { return planes_.at(size_t{layer} * 2 + (values ? 1 : 0)); }
  uint64_t token_bytes(const Plane& p) const {
    return uint64_t{p.heads} * p.dim * tenon_format_block(format_.k.codec).bytes;
  }
  std::byte* sequence(const Plane& p, uint32_t slot) const {
    return base_ + p.offset + slot * (capacity_ * token_bytes(p));
  }
  Header header_of(uint32_t kv_len) const {
    Header h{{'p', 'l', 'a', 'i', 'n', ' ', 'k', 'v'}, format_.k.codec, kv_len, planes_.size()};
    for (const Plane& p : planes_) h.shape = (h.shape * 31 + p.heads) * 31 + p.dim;
    return h;
  }
  void check(uint32_t slot, uint32_t kv_len) const {
    if (slot >= slots_) throw sdk::NoSpace("the cache has " + std::to_string(slots_) + " slots");
    if (kv_len > capacity_) throw sdk::NoSpace("the capacity is " + std::to_string(capacity_) + " tokens");
  }

  tenon_tensor plane_tensor(uint32_t layer, bool values, const tenon_kv_format& format, uint32_t tokens) const {
    const Plane& p = plane(layer, values);
    return sdk::tensor(format.k.codec, {slots_, tokens, p.heads, p.dim});
  }
  static tenon_kv_view prototype(const tenon_kv_format& format, uint32_t heads, uint32_t k_dim, uint32_t v_dim,
                                 uint32_t cells) {
    auto view = sdk::abi_struct<tenon_kv_view>();
    view.format = &format;
    view.heads = heads;
    view.k_dim = k_dim;
    view.v_dim = v_dim;
    view.page_cells = std::bit_ceil(cells);
    view.columns = 1;
    view.pos_rule = TENON_POS_LINEAR;
    view.group = 1;
    return view;
  }
  struct NamedTensor {
    const tenon_tensor& tensor;
    tenon_tid id;
  };
  static tenon_kv_view view_of(const tenon_kv_format& format, const NamedTensor& keys, const NamedTensor& values,
                               tenon_tid pages, tenon_tid place) {
    const tenon_tensor &k = keys.tensor, &v = values.tensor;
    tenon_kv_view view = prototype(format, static_cast<uint32_t>(k.dim[2]), static_cast<uint32_t>(k.dim[3]),
                                   static_cast<uint32_t>(v.dim[3]), static_cast<uint32_t>(k.dim[1]));
    view.k = keys.id;
    view.v = values.id;
    view.pages = pages;
    view.place = place;
    std::copy_n(k.stride, 3, view.k_stride);
    std::copy_n(v.stride, 3, view.v_stride);
    return view;
  }

  const tenon_kv_format& format_;
  std::vector<Plane> planes_;
  uint32_t slots_ = 0, capacity_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace

TENON_PLUGIN(Plain);
