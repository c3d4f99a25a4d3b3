// This makes a case and drives one layer of attention over it as a host does. What no row may see is NaN, so that whoever
// reads it is found out. attention_expected.cc has the answer that is right.
#include "conformance/attention_host.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "conformance/attention_heads.h"
#include "tenon/core/linked_values.h"
#include "tenon/sdk/attention_sinks.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/linked_rows.h"
#include "tenon/sdk/recorder.h"

namespace tenon::conformance {
namespace {

constexpr int64_t kGap = 4;  // floats between rows of x and out
constexpr float kEps = 1e-5F;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> randoms(std::mt19937_64& random, size_t n, float scale) {
  std::vector<float> values(n);
  for (float& v : values) v = scale * (static_cast<float>(random() % 20001) / 10000.0f - 1.0f);
  return values;
}

// A format's scales are fp16 where its codec has any.
tenon_kv_format format_of(tenon_format codec) {
  return sdk::kv_format(codec, sdk::is_scaled_codec(codec) ? TENON_F16 : TENON_FORMAT_NONE);
}
tenon_tensor rows_of_pitch(int64_t rows, int64_t columns, int64_t pitch) {
  tenon_tensor t = sdk::tensor(TENON_F32, {rows, columns});
  t.stride[0] = pitch * 4;
  return t;
}

}  // namespace

std::string to_string(const AttentionCase& c) {
  std::string text = c.name.empty() ? "" : c.name + ": ";
  text += std::to_string(c.q_heads) + "/" + std::to_string(c.kv_heads) + " heads of " + std::to_string(c.k_dim) + "/" +
          std::to_string(c.v_dim) + " " + tenon_format_name(c.codec);
  if (c.window != 0) text += " window " + std::to_string(c.window);
  if (c.softcap != 0) text += " softcap";
  if (c.sinks) text += " sinks";
  if (c.hadamard) text += " hadamard";
  if (c.append) text += " append, rotated " + std::to_string(c.rotated) + (c.norm ? ", norm" : "");
  for (const auto& s : c.sequences) text += " [" + std::to_string(s.before) + "+" + std::to_string(s.rows) + "]";
  return text;
}

AttentionHost::AttentionHost(const AttentionCase& c, uint64_t seed) : case_(c) {
  std::mt19937_64 random(seed);
  cell_major_ = random() % 2 != 0 && c.page_tokens != 0;
  make_rows();
  make_prologue(random);
  make_cached(random);
  make_pages(random);
  q_ = randoms(random, size_t{rows()} * c.q_heads * c.k_dim, 3);
  sinks_ = randoms(random, c.q_heads, 4);
}

void AttentionHost::make_rows() {
  for (uint32_t s = 0; s < case_.sequences.size(); ++s) {
    const auto& sequence = case_.sequences[s];
    const auto first = static_cast<int32_t>(rows_.size());
    for (uint32_t i = 0; i < sequence.rows; ++i) {
      int32_t parent = i == 0 ? -1 : first + static_cast<int32_t>(i) - 1;
      if (!sequence.parents.empty()) parent = sequence.parents[i] < 0 ? -1 : first + sequence.parents[i];
      const int32_t position = parent < 0 ? static_cast<int32_t>(sequence.before) : rows_[parent].position + 1;
      rows_.push_back({s, sequence.before + i, position, parent});
    }
    longest_ = std::max(longest_, sequence.before + sequence.rows);
  }
}

void AttentionHost::make_prologue(std::mt19937_64& random) {
  q_weight_ = randoms(random, case_.k_dim, 1);
  k_weight_ = randoms(random, case_.k_dim, 1);
  for (uint32_t p = 0; p < longest_; ++p) {
    for (int32_t i = 0; i < case_.rotated / 2; ++i) {
      const double angle = p * std::pow(100.0, -2.0 * i / case_.rotated);
      rope_.push_back(static_cast<float>(std::cos(angle)));
      rope_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void AttentionHost::make_cached(std::mt19937_64& random) {
  const AttentionCase& c = case_;
  for (const auto& sequence : c.sequences) {
    const size_t cells = sequence.before + sequence.rows;
    Cached& cached = cached_.emplace_back();
    cached.stored_k = cached.k = randoms(random, cells * c.kv_heads * c.k_dim, 2);
    cached.stored_v = cached.v = randoms(random, cells * c.kv_heads * c.v_dim, 1);
  }
  // Cells from before the step hold keys as they are; those of the step's rows are prepared.
  for (const Row& row : rows_) {
    for (uint32_t h = 0; h < c.kv_heads; ++h) {
      prepare(&cached_[row.sequence].stored_k[(size_t{row.place} * c.kv_heads + h) * c.k_dim], row.position, k_weight_);
    }
  }
  for (Cached& cached : cached_) {
    if (c.hadamard) {
      rotate(c.k_dim, cached.stored_k);
      rotate(c.v_dim, cached.stored_v);
    }
    round_to(c.codec, c.k_dim, cached.stored_k);
    round_to(c.codec, c.v_dim, cached.stored_v);
  }
}

void AttentionHost::make_pages(std::mt19937_64& random) {
  slot_.resize(case_.sequences.size() + 1);
  std::iota(slot_.begin(), slot_.end(), 0);
  std::shuffle(slot_.begin(), slot_.end(), random);
  const uint32_t cells = case_.page_tokens == 0 ? std::bit_ceil(longest_) : case_.page_tokens;
  columns_ = case_.page_tokens == 0 ? 1 : longest_ / cells + 2;
  n_pages_ = columns_ * static_cast<uint32_t>(slot_.size());
  std::vector<int32_t> free(n_pages_);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  pages_.assign(n_pages_, -1);
  for (uint32_t s = 0; s < case_.sequences.size(); ++s) {
    for (uint32_t t = 0; t < case_.sequences[s].before + case_.sequences[s].rows; t += cells) {
      pages_[slot_[s] * columns_ + t / cells] = free.back();
      free.pop_back();
    }
  }
}

// Applies norm and rope to one head, where attention does them.
void AttentionHost::prepare(float* x, int32_t position, const std::vector<float>& weight) const {
  if (!case_.append) return;
  if (case_.norm) {
    double sum = 0;
    for (uint32_t d = 0; d < case_.k_dim; ++d) sum += double{x[d]} * x[d];
    const double scale = 1 / std::sqrt(sum / case_.k_dim + double{kEps});
    for (uint32_t d = 0; d < case_.k_dim; ++d) x[d] = static_cast<float>(x[d] * scale * weight[d]);
  }
  const int32_t half = case_.rotated / 2;
  for (int32_t i = 0; i < half; ++i) {
    const int32_t u = case_.pairing == 0 ? i : 2 * i, v = case_.pairing == 0 ? i + half : 2 * i + 1;
    const float* turn = &rope_[(static_cast<size_t>(position) * half + i) * 2];
    const double first = x[u], second = x[v], c = turn[0], s = turn[1];
    x[u] = static_cast<float>(first * c - second * s);
    x[v] = static_cast<float>(first * s + second * c);
  }
}

tenon_attn AttentionHost::layer() const {
  auto a = sdk::abi_struct<tenon_attn>();
  a.q_heads = case_.q_heads;
  a.kv_heads = case_.kv_heads;
  a.k_dim = case_.k_dim;
  a.v_dim = case_.v_dim;
  a.window = case_.window;
  a.scale = 1 / std::sqrt(static_cast<float>(case_.k_dim));
  a.softcap = case_.softcap;
  return a;
}

tenon_kv_view AttentionHost::prototype(const tenon_kv_format& format) const {
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.format = &format;
  view.heads = case_.kv_heads;
  view.k_dim = case_.k_dim;
  view.v_dim = case_.v_dim;
  view.page_cells = case_.page_tokens == 0 ? std::bit_ceil(longest_) : case_.page_tokens;
  view.columns = columns_;
  view.pos_rule = TENON_POS_LINEAR;
  view.flags = case_.hadamard ? sdk::kKvHadamard : 0;
  return view;
}

// These ops are left to attention. They have their tensors once there is a host.
struct AttentionHost::Prologue {
  explicit Prologue(const AttentionHost& of, OpRunner* host) {
    const AttentionCase& c = of.case_;
    const auto add = [&](tenon_id id) -> tenon_fop& {
      ops.push_back(sdk::abi_struct<tenon_fop>());
      tenon_fop& op = ops.back();
      op.id = id;
      sdk::Heads(static_cast<int32_t>(c.q_heads), static_cast<int32_t>(c.kv_heads), static_cast<int32_t>(c.k_dim),
                 static_cast<int32_t>(c.v_dim))
          .store(op);
      return op;
    };
    const auto input = [&](std::initializer_list<int64_t> dims, const std::vector<float>& values) {
      return host == nullptr ? 0 : host->input(TENON_F32, dims, values);
    };
    if (c.append && c.norm) {
      tenon_fop& op = add(TENON_F_QK_NORM);
      op.t[0] = input({c.k_dim}, of.q_weight_);
      op.t[1] = input({c.k_dim}, of.k_weight_);
      op.f[0] = kEps;
    }
    if (c.append && c.rotated != 0) {
      tenon_fop& op = add(TENON_F_ROPE);
      op.t[0] = input({of.longest_, c.rotated}, of.rope_);
      op.i[0] = c.rotated;
      op.i[1] = c.pairing;
    }
    if (c.append) add(TENON_F_KV_APPEND);
    if (c.sinks) add(sdk::kAttentionSinks).t[0] = input({c.q_heads}, of.sinks_);
  }
  const tenon_chain* chain() {
    pointers.clear();
    for (const tenon_fop& op : ops) pointers.push_back(&op);
    raw.n = static_cast<uint32_t>(ops.size());
    raw.op = pointers.data();
    return &raw;
  }
  std::vector<tenon_fop> ops;
  std::vector<const tenon_fop*> pointers;
  tenon_chain raw = sdk::abi_struct<tenon_chain>();
};

tenon_status AttentionHost::claim(const Component& attention, std::string* why) const {
  Prologue prologue(*this, nullptr);
  tenon_attn a = layer();
  a.pro = prologue.chain();
  const tenon_kv_format format = format_of(case_.codec);
  const tenon_kv_view view = prototype(format);
  const tenon_bounds b = OpRunner::bounds({.rows = rows(), .kv_len = longest_, .trees = case_.tree});
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[256] = "";
  tenon_reason reason{text, sizeof(text)};
  const tenon_status status =
      attention.table<tenon_attention>().claim(attention.self(), &a, &view, &b, &claim, &reason);
  *why = text;
  if (status == TENON_OK && case_.sinks && claim.pro == 0) {
    *why = "learned sinks are not claimed";
    return TENON_REFUSED;
  }
  return status;
}

// This holds the cache in a runner's memory.
struct AttentionHost::Placed {
  tenon_kv_format format;
  tenon_kv_view view;
};

AttentionHost::Placed AttentionHost::place(OpRunner& host, const How& how) const {
  const AttentionCase& c = case_;
  const auto slots = static_cast<int64_t>(slot_.size());
  Placed placed{format_of(c.codec), {}};
  tenon_kv_view& view = placed.view;
  view = prototype(placed.format);
  view.pages = host.input(TENON_I32, {slots, columns_}, pages_);
  view.place = host.recorder()->step(host.recorder()->ctx, TENON_STEP_PLACE);
  const uint32_t room =
      c.page_tokens == 0 ? (longest_ + 7) / 8 * 8 : c.page_tokens;  // cells that a page has memory for
  struct PlaneRows {
    tenon_format codec;
    int64_t stored;                      // elements of the codec in a row
    uint32_t dim;                        // floats of a head in `values`
    std::vector<float> Cached::*values;  // (cells, kv_heads, dim)
  };
  // Makes a plane of rows by store(where, row), which gets a head of `values`. The rest is NaN.
  const auto fill = [&](const PlaneRows& rows, int64_t(&stride)[3], const auto& store) {
    const auto& [codec, stored, dim, values] = rows;
    const tenon_tensor t = cell_major_ ? sdk::tensor(codec, {n_pages_, room, c.kv_heads, stored})
                                       : sdk::tensor(codec, {n_pages_, c.kv_heads, room, stored});
    stride[0] = t.stride[0];
    stride[1] = t.stride[cell_major_ ? 1 : 2];
    stride[2] = t.stride[cell_major_ ? 2 : 1];
    std::vector<std::byte> bytes(tensor_extent(t), std::byte{0xff});
    for (uint32_t s = 0; s < c.sequences.size(); ++s) {
      // Rows of earlier steps have been appended; this step's too unless attention does it.
      uint32_t cells = c.sequences[s].before;
      for (uint32_t i = 0; i < (c.append ? how.begin : how.end); ++i) cells += rows_[i].sequence == s ? 1 : 0;
      for (uint32_t i = 0; i < cells * c.kv_heads; ++i) {
        const uint32_t cell = i / c.kv_heads, head = i % c.kv_heads;
        const int64_t page = pages_[slot_[s] * columns_ + cell / view.page_cells];
        store(bytes.data() + page * stride[0] + cell % view.page_cells * stride[1] + head * stride[2],
              (cached_[s].*values).data() + size_t{i} * dim);
      }
    }
    return host.strided_input(t, bytes.data());
  };
  const auto plane = [&](uint32_t dim, std::vector<float> Cached::*values, int64_t(&stride)[3]) {
    return fill({c.codec, sdk::kv_row_stored(c.codec, dim), dim, values}, stride, [&](std::byte* to, const float* row) {
      sdk::cpu::store_row(c.codec, row, dim, to, scale_of(c.codec, row, dim));
    });
  };
  const auto scales = [&](uint32_t dim, std::vector<float> Cached::*values, int64_t(&stride)[3]) {
    return fill({TENON_F16, 1, dim, values}, stride, [&](std::byte* to, const float* row) {
      sdk::store_kv_scale(TENON_F16, scale_of(c.codec, row, dim), to);
    });
  };
  view.k = plane(c.k_dim, &Cached::stored_k, view.k_stride);
  view.v = plane(c.v_dim, &Cached::stored_v, view.v_stride);
  if (sdk::is_scaled_codec(c.codec)) {
    view.k_scale = scales(c.k_dim, &Cached::stored_k, view.ks_stride);
    view.v_scale = scales(c.v_dim, &Cached::stored_v, view.vs_stride);
  }
  return placed;
}

// Makes the step's rows: queries, and the keys and values beside them where attention appends. Padding is NaN.
tenon_tid AttentionHost::queries(OpRunner& host, const How& how) const {
  const AttentionCase& c = case_;
  const int64_t q_columns = int64_t{c.q_heads} * c.k_dim, k_columns = int64_t{c.kv_heads} * c.k_dim;
  const int64_t v_columns = int64_t{c.kv_heads} * c.v_dim;
  const int64_t columns = q_columns + (c.append ? k_columns + v_columns : 0), pitch = columns + kGap;
  const int64_t n = int64_t{how.end} - how.begin + how.padding;
  std::vector<float> x(static_cast<size_t>(n * pitch), kNan);
  for (uint32_t i = how.begin; i < how.end; ++i) {
    const Row& row = rows_[i];
    float* to = x.data() + (i - how.begin) * pitch;
    to = std::copy_n(q_.data() + i * q_columns, q_columns, to);
    if (!c.append) continue;
    to = std::copy_n(cached_[row.sequence].k.data() + row.place * k_columns, k_columns, to);
    std::copy_n(cached_[row.sequence].v.data() + row.place * v_columns, v_columns, to);
  }
  const tenon_tid all = host.strided_input(rows_of_pitch(n, columns, pitch), x.data());
  return columns == q_columns ? all : host.slice(all, rows_of_pitch(n, q_columns, pitch), 0);
}

void AttentionHost::write_step(OpRunner& host, const How& how) const {
  const auto seqs = static_cast<uint32_t>(case_.sequences.size());
  std::vector<int32_t> count(seqs);
  for (uint32_t i = 0; i < how.end - how.begin + how.padding; ++i) {
    const bool padded = how.begin + i >= how.end;
    const Row row = padded ? Row{0, 0, 0, -1} : rows_[how.begin + i];
    host.step_i32(TENON_STEP_SLOT)[i] = padded ? -1 : slot_[row.sequence];
    host.step_i32(TENON_STEP_POS)[i] = row.position;
    host.step_i32(TENON_STEP_PLACE)[i] = static_cast<int32_t>(row.place);
    const auto first = static_cast<int32_t>(how.begin);
    host.step_i32(TENON_STEP_PARENT)[i] = row.parent < first ? -1 : row.parent - first;
    if (!padded) ++count[row.sequence];
  }
  host.set_live(how.end - how.begin, seqs, static_cast<uint32_t>(how.wanted.size()));
  std::copy(how.wanted.begin(), how.wanted.end(), host.step_i32(TENON_STEP_OUT_ROW).begin());
  int32_t first = 0;
  for (uint32_t s = 0; s < seqs; ++s) {
    // The cache already has the rows of the step that run earlier.
    uint32_t before = case_.sequences[s].before;
    for (uint32_t i = 0; i < how.begin; ++i) before += rows_[i].sequence == s ? 1 : 0;
    host.step_i32(TENON_STEP_KV_LEN)[slot_[s]] = static_cast<int32_t>(before);
    host.step_i32(TENON_STEP_SEQ_SLOT)[s] = slot_[s];
    host.step_i32(TENON_STEP_SEQ_ROW)[s] = first;
    first += count[s];
  }
  host.step_i32(TENON_STEP_SEQ_ROW)[seqs] = first;
}

AttentionHost::Answer AttentionHost::run(const Component& attention, const How& asked) const {
  const AttentionCase& c = case_;
  How how = asked;
  how.end = std::min(how.end, rows());
  const uint32_t live = how.end - how.begin, n = live + how.padding;
  std::vector<uint32_t> count(c.sequences.size(), 1);
  for (uint32_t i = how.begin + 1; i < how.end; ++i) {
    if (rows_[i].sequence == rows_[i - 1].sequence) ++count[rows_[i].sequence];
  }
  OpRunner host(OpRunner::bounds({.rows = n,
                                  .seqs = static_cast<uint32_t>(c.sequences.size()),
                                  .out_rows = static_cast<uint32_t>(how.wanted.size()),
                                  .kv_len = how.kv_len != 0 ? how.kv_len : longest_,
                                  .slots = static_cast<uint32_t>(slot_.size()),
                                  .rows_per_seq = how.rows_per_seq != 0 ? how.rows_per_seq
                                                                        : *std::max_element(count.begin(), count.end()),
                                  .trees = c.tree}),
                attention.device());
  write_step(host, how);
  Prologue prologue(*this, &host);
  tenon_attn a = layer();
  auto call = sdk::abi_struct<tenon_attn_call>();
  a.pro = call.pro = prologue.chain();
  a.out_format = how.out_format;
  call.only_out_rows = how.wanted.empty() ? 0 : 1;
  call.q = queries(host, how);
  const int64_t out_columns = int64_t{c.q_heads} * c.v_dim;

  const auto& table = attention.table<tenon_attention>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  auto claim = sdk::abi_struct<tenon_claim>();
  const tenon_kv_format format = format_of(c.codec);
  const tenon_kv_view view = prototype(format);
  const tenon_status status = table.claim(attention.self(), &a, &view, host.recorder()->bounds, &claim, &why);
  if (status != TENON_OK) return {.fault = text, .refused = status == TENON_REFUSED};
  if (claim.pro != prologue.ops.size()) return {.fault = "claims " + std::to_string(claim.pro) + " ops"};
  call.claim = &claim;
  std::vector<std::unique_ptr<Placed>> placed;
  for (uint32_t i = 0; i < how.repeats; ++i) {
    placed.push_back(std::make_unique<Placed>(place(host, how)));
    placed.back()->view.format = &placed.back()->format;
    call.kv = &placed.back()->view;
    call.out = host.strided_output(how.out_format == TENON_F32 ? rows_of_pitch(n, out_columns, out_columns + kGap)
                                                               : sdk::linked_rows(how.out_format, n, out_columns));
    if (table.record(attention.self(), &a, &call, host.recorder(), &why) != TENON_OK) return {.fault = text};
  }
  Answer answer;
  answer.fault = host.run(how.seed);
  if (answer.fault.empty()) read_answer(host, call, {how.out_format, live, n}, answer);
  return answer;
}

void AttentionHost::read_answer(OpRunner& host, const tenon_attn_call& call, const Left& left, Answer& answer) const {
  const int64_t columns = int64_t{case_.q_heads} * case_.v_dim;
  if (left.format == TENON_F32) {
    answer.out = host.f32(call.out);
    answer.out.resize(static_cast<size_t>(left.live * columns));
  } else {
    const auto bytes = host.read<std::byte>(call.out);
    const tenon_tensor tensor = sdk::linked_rows(left.format, left.rows, columns);
    const LinkedValues values(tensor, bytes.data());
    for (int64_t i = 0; i < left.live * columns; ++i) answer.out.push_back(values.at(i / columns, i % columns));
  }
  for (const tenon_tid plane : {call.kv->k, call.kv->v, call.kv->k_scale, call.kv->v_scale}) {
    if (plane == 0) continue;
    const auto bytes = host.read<uint8_t>(plane);
    answer.cache.insert(answer.cache.end(), bytes.begin(), bytes.end());
  }
}

}  // namespace tenon::conformance
