// One layer of attention on a GPU over a hand-made paged cache, and what it should answer in float64.
#pragma once

#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "attention_plugin.h"
#include "recorder.h"
#include "tenon/abi/attention.h"
#include "tenon/sdk/cpu/kv_reader.h"

namespace tenon::test {

struct AttentionCase {
  struct Sequence {
    uint32_t before, rows;              // tokens in the cache before the step; rows of the step
    std::vector<int32_t> parents = {};  // of the rows, counted from the sequence's first; empty: a chain
  };
  uint32_t q_heads = 1, kv_heads = 1, k_dim = 64, v_dim = 64;
  std::vector<Sequence> sequences = {};
  tenon_format codec = TENON_F16;
  uint32_t window = 0;
  float softcap = 0;
  bool sink = false, lse = false, tree = false;
  uint32_t page_tokens = 64;  // 0: one page for everything, without gaps between tokens
  // Left to attention: the append, and before it rope of so many dimensions and a norm.
  bool append = false, norm = false;
  int32_t rotated = 0, pairing = 0;
};

inline std::string to_string(const AttentionCase& c) {
  std::string text = std::to_string(c.q_heads) + "/" + std::to_string(c.kv_heads) + " heads of " +
                     std::to_string(c.k_dim) + "/" + std::to_string(c.v_dim) + " " + tenon_format_name(c.codec);
  if (c.window != 0) text += " window " + std::to_string(c.window);
  if (c.softcap != 0) text += " softcap";
  if (c.append) text += " append, rotated " + std::to_string(c.rotated) + (c.norm ? ", norm" : "");
  for (const auto& s : c.sequences) text += " [" + std::to_string(s.before) + "+" + std::to_string(s.rows) + "]";
  return text;
}

inline float rounded(float value, tenon_format format) {
  if (format == TENON_F16) return __half2float(__float2half_rn(value));
  return format == TENON_BF16 ? __bfloat162float(__float2bfloat16_rn(value)) : value;
}

class AttentionHost {
 public:
  AttentionHost(const AttentionCase& c, uint32_t seed) : case_(c), random_(seed) {
    for (uint32_t s = 0; s < c.sequences.size(); ++s) {
      const auto& sequence = c.sequences[s];
      const auto first = static_cast<int32_t>(rows_.size());
      for (uint32_t i = 0; i < sequence.rows; ++i) {
        int32_t parent = i == 0 ? -1 : first + static_cast<int32_t>(i) - 1;
        if (!sequence.parents.empty()) parent = sequence.parents[i] < 0 ? -1 : first + sequence.parents[i];
        rows_.push_back({s, sequence.before + i, parent});
      }
      const uint32_t tokens = sequence.before + sequence.rows;
      longest_ = std::max(longest_, tokens);
      tokens_.push_back(tokens);
      k_.push_back(randoms(size_t{tokens} * c.kv_heads * c.k_dim, 2));
      v_.push_back(randoms(size_t{tokens} * c.kv_heads * c.v_dim, 1));
    }
    q_ = randoms(rows_.size() * c.q_heads * c.k_dim, 3);
    sink_ = randoms(c.q_heads, 2), q_weight_ = randoms(c.k_dim, 1), k_weight_ = randoms(c.k_dim, 1);
    slots_.resize(c.sequences.size() + 1);  // one is nobody's
    std::iota(slots_.begin(), slots_.end(), 0);
    std::shuffle(slots_.begin(), slots_.end(), random_);
    for (uint32_t t = 0; t < longest_; ++t) {
      for (int32_t i = 0; i < c.rotated / 2; ++i) {
        const double angle = t * std::pow(100.0, -2.0 * i / c.rotated);
        rope_.push_back(static_cast<float>(std::cos(angle))), rope_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
    // Tokens of before the step are in the cache as they are stored; the step's rows are still to be prepared.
    for (uint32_t s = 0; s < k_.size(); ++s) {
      stored_k_.push_back(k_[s]), stored_v_.push_back(v_[s]);
      for (uint32_t t = c.sequences[s].before; t < tokens_[s]; ++t) {
        for (uint32_t h = 0; h < c.kv_heads; ++h) {
          prepare(stored_k_[s].data() + (size_t{t} * c.kv_heads + h) * c.k_dim, t, k_weight_);
        }
      }
      for (float& x : stored_k_[s]) x = rounded(x, c.codec);
      for (float& x : stored_v_[s]) x = rounded(x, c.codec);
    }
  }

  uint32_t rows() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t longest() const { return longest_; }

  tenon_attn layer() const {
    auto a = sdk::abi_struct<tenon_attn>();
    a.q_heads = case_.q_heads, a.kv_heads = case_.kv_heads, a.k_dim = case_.k_dim, a.v_dim = case_.v_dim;
    a.window = case_.window, a.mask = case_.tree ? TENON_MASK_PARENT : TENON_MASK_CAUSAL, a.q_format = TENON_F32;
    a.scale = 1 / std::sqrt(static_cast<float>(case_.k_dim)), a.softcap = case_.softcap;
    a.has_sink = case_.sink, a.want_lse = case_.lse;
    return a;
  }

  struct Answer {
    std::string fault = {};           // of the run, or "" and then
    std::vector<float> out = {};      // (rows, q_heads, v_dim)
    std::vector<float> lse = {};      // (rows, q_heads)
    std::vector<uint8_t> cache = {};  // keys and values, every byte
  };
  struct How {
    uint32_t begin = 0, end = UINT32_MAX;  // of the rows, as one step
    uint32_t padding = 2;
    uint32_t kv_len = 0;        // of the program, 0: the longest
    uint32_t rows_per_seq = 0;  // of the program, 0: the step's
    CudaRecorder::Mode mode = CudaRecorder::Mode::kGraph;
    uint32_t repeats = 1;  // of the layer in one program, each over a cache of its own
  };
  Answer run(const CudaComponent& attention, const How& how) const;
  Answer run(const CudaComponent& attention) const { return run(attention, How{}); }

  // What the rows [begin, end) should be, in float64 over what the cache stores.
  struct Expected {
    std::vector<double> out, lse;
  };
  Expected expected() const;

 private:
  struct Row {
    uint32_t sequence, position;
    int32_t parent;
  };

  std::vector<float> randoms(size_t n, float scale) {
    std::vector<float> values(n);
    for (float& v : values) v = scale * (static_cast<float>(random_()) * 0x1p-31f - 1);
    return values;
  }
  // Norm and rope of one head.
  void prepare(float* x, uint32_t position, const std::vector<float>& weight) const {
    if (!case_.append) return;
    if (case_.norm) {
      double sum = 0;
      for (uint32_t d = 0; d < case_.k_dim; ++d) sum += double{x[d]} * x[d];
      const double scale = 1 / std::sqrt(sum / case_.k_dim + kEps);
      for (uint32_t d = 0; d < case_.k_dim; ++d) x[d] = static_cast<float>(x[d] * scale * weight[d]);
    }
    const int32_t half = case_.rotated / 2;
    for (int32_t i = 0; i < half; ++i) {
      const int32_t u = case_.pairing == 0 ? i : 2 * i, v = case_.pairing == 0 ? i + half : 2 * i + 1;
      const double c = rope_[(size_t{position} * half + i) * 2], s = rope_[(size_t{position} * half + i) * 2 + 1];
      const double first = x[u], second = x[v];
      x[u] = static_cast<float>(first * c - second * s), x[v] = static_cast<float>(first * s + second * c);
    }
  }
  bool sees(uint32_t row, uint32_t t) const {
    const Row& r = rows_[row];
    if (case_.window != 0 && t + case_.window <= r.position) return false;
    if (!case_.tree || t < case_.sequences[r.sequence].before) return t <= r.position;
    for (auto i = static_cast<int32_t>(row); i >= 0; i = rows_[i].parent) {
      if (rows_[i].position == t) return true;
    }
    return false;
  }
  struct Placed;
  Placed place(CudaRecorder& host, uint32_t begin, uint32_t end) const;

  static constexpr float kEps = 1e-5f;
  AttentionCase case_;
  std::mt19937 random_;
  uint32_t longest_ = 0;
  std::vector<Row> rows_;
  std::vector<uint32_t> tokens_;                                 // by sequence
  std::vector<std::vector<float>> k_, v_, stored_k_, stored_v_;  // by sequence: (token, head, dim)
  std::vector<float> q_, sink_, q_weight_, k_weight_, rope_;
  std::vector<int32_t> slots_;  // by sequence
};

// The cache in a recorder's memory. Whatever no row may read is NaN.
struct AttentionHost::Placed {
  tenon_kv_format format;
  tenon_kv_view view = sdk::abi_struct<tenon_kv_view>();
};

inline AttentionHost::Placed AttentionHost::place(CudaRecorder& host, uint32_t begin, uint32_t end) const {
  const AttentionCase& c = case_;
  const auto slots = static_cast<uint32_t>(slots_.size());
  Placed placed{sdk::cpu::plain_kv_format(c.codec)};
  tenon_kv_view& view = placed.view;
  const bool whole = c.page_tokens == 0;
  const uint32_t tokens = whole ? (longest_ + 7) / 8 * 8 : c.page_tokens;  // that a page has room for
  view.page_tokens = whole ? std::bit_ceil(longest_) : c.page_tokens;
  view.columns = whole ? 1 : longest_ / c.page_tokens + 2;
  const uint32_t n_pages = view.columns * slots;
  view.heads = c.kv_heads, view.k_dim = c.k_dim, view.v_dim = c.v_dim;
  view.pos_rule = TENON_POS_LINEAR, view.sink_page = TENON_NO_PAGE;
  std::mt19937 random(n_pages);
  std::vector<int32_t> free(n_pages), table(size_t{slots} * view.columns, -1);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  for (uint32_t s = 0; s < tokens_.size(); ++s) {
    for (uint32_t t = 0; t < tokens_[s]; t += view.page_tokens) {
      table[slots_[s] * view.columns + t / view.page_tokens] = free.back();
      free.pop_back();
    }
  }
  view.pages = host.input(TENON_I32, {slots, view.columns}, table);
  const auto fill = [&](uint32_t dim, const std::vector<std::vector<float>>& values, int64_t(&stride)[3]) {
    const tenon_tensor t = whole ? sdk::tensor(c.codec, {n_pages, c.kv_heads, tokens, dim})
                                 : sdk::tensor(c.codec, {n_pages, tokens, c.kv_heads, dim});
    stride[0] = t.stride[0], stride[1] = t.stride[whole ? 2 : 1], stride[2] = t.stride[whole ? 1 : 2];
    const tenon_tid id = host.input(t, nullptr);
    std::vector<std::byte> bytes(host.extent(id), std::byte{0xff});
    for (uint32_t s = 0; s < tokens_.size(); ++s) {
      // Rows of earlier steps have been appended; this step's too unless attention does it.
      uint32_t there = c.sequences[s].before;
      for (uint32_t i = 0; i < (c.append ? begin : end); ++i) there += rows_[i].sequence == s ? 1 : 0;
      for (uint32_t i = 0; i < there * c.kv_heads; ++i) {
        const uint32_t token = i / c.kv_heads, head = i % c.kv_heads;
        const int64_t page = table[slots_[s] * view.columns + token / view.page_tokens];
        sdk::cpu::store_row(c.codec, values[s].data() + size_t{i} * dim, dim,
                            bytes.data() + page * stride[0] + token % view.page_tokens * stride[1] + head * stride[2]);
      }
    }
    host.upload(id, bytes.data());
    return id;
  };
  view.k = fill(c.k_dim, stored_k_, view.k_stride), view.v = fill(c.v_dim, stored_v_, view.v_stride);
  return placed;
}

inline AttentionHost::Answer AttentionHost::run(const CudaComponent& attention, const How& how) const {
  constexpr int64_t kGap = 4;  // floats between rows
  const AttentionCase& c = case_;
  const uint32_t end = std::min(how.end, rows()), live = end - how.begin, n = live + how.padding;
  const auto slots = static_cast<uint32_t>(slots_.size()), seqs = static_cast<uint32_t>(c.sequences.size());
  uint32_t longest_run = 1;
  std::vector<uint32_t> count(seqs);
  for (uint32_t i = how.begin; i < end; ++i) longest_run = std::max(longest_run, ++count[rows_[i].sequence]);
  tenon_bounds b = CudaRecorder::bounds(n, seqs, how.kv_len != 0 ? how.kv_len : longest_, slots);
  b.rows_per_seq = how.rows_per_seq != 0 ? how.rows_per_seq : longest_run;
  CudaRecorder host(b);
  const int64_t kv_columns = c.append ? int64_t{c.kv_heads} * (c.k_dim + c.v_dim) : 0;
  const int64_t q_columns = int64_t{c.q_heads} * c.k_dim, out_columns = int64_t{c.q_heads} * c.v_dim;
  const int64_t row = q_columns + kv_columns + kGap;
  std::vector<float> x(static_cast<size_t>(n * row), std::numeric_limits<float>::quiet_NaN());
  for (uint32_t i = 0; i < n; ++i) {
    const bool padded = i >= live;
    const Row r = padded ? Row{0, 0, -1} : rows_[how.begin + i];
    host.step_i32(TENON_STEP_SLOT)[i] = padded ? -1 : slots_[r.sequence];
    host.step_i32(TENON_STEP_POS)[i] = static_cast<int32_t>(r.position);
    host.step_i32(TENON_STEP_PARENT)[i] =
        r.parent < static_cast<int32_t>(how.begin) ? -1 : r.parent - static_cast<int32_t>(how.begin);
    if (padded) continue;
    float* to = x.data() + i * row;
    to = std::copy_n(q_.data() + size_t{how.begin + i} * q_columns, q_columns, to);
    if (!c.append) continue;
    to = std::copy_n(k_[r.sequence].data() + size_t{r.position} * c.kv_heads * c.k_dim, c.kv_heads * c.k_dim, to);
    std::copy_n(v_[r.sequence].data() + size_t{r.position} * c.kv_heads * c.v_dim, c.kv_heads * c.v_dim, to);
  }
  host.set_live(live, seqs);
  uint32_t first = 0;
  for (uint32_t s = 0; s < seqs; ++s) {
    uint32_t before = c.sequences[s].before;
    for (uint32_t i = 0; i < how.begin; ++i) before += rows_[i].sequence == s ? 1 : 0;
    host.step_i32(TENON_STEP_KV_LEN)[slots_[s]] = static_cast<int32_t>(before);
    host.step_i32(TENON_STEP_SEQ_SLOT)[s] = slots_[s];
    host.step_i32(TENON_STEP_SEQ_ROW)[s] = static_cast<int32_t>(first);
    first += count[s];
  }
  host.step_i32(TENON_STEP_SEQ_ROW)[seqs] = static_cast<int32_t>(live);

  tenon_tensor all = sdk::tensor(TENON_F32, {n, q_columns + kv_columns}),
               queries = sdk::tensor(TENON_F32, {n, q_columns});
  tenon_tensor results = sdk::tensor(TENON_F32, {n, out_columns});
  all.stride[0] = queries.stride[0] = row * 4, results.stride[0] = (out_columns + kGap) * 4;
  x.resize(x.size() - kGap);
  auto call = sdk::abi_struct<tenon_attn_call>();
  call.q = host.slice(host.input(all, x.data()), queries, 0);
  call.out = host.output(results);
  if (c.lse) call.lse = host.output(TENON_F32, {n, c.q_heads});
  if (c.sink) call.sink = host.input(TENON_F32, {c.q_heads}, sink_);

  tenon_attn a = layer();
  std::vector<tenon_fop> ops;
  const auto add = [&](tenon_id id) -> tenon_fop& {
    ops.push_back(sdk::abi_struct<tenon_fop>());
    ops.back().id = id;
    ops.back().i[2] = static_cast<int32_t>(c.q_heads), ops.back().i[3] = static_cast<int32_t>(c.kv_heads);
    return ops.back();
  };
  if (c.append && c.norm) {
    tenon_fop& op = add(TENON_F_QK_NORM);
    op.t[0] = host.input(TENON_F32, {c.k_dim}, q_weight_), op.t[1] = host.input(TENON_F32, {c.k_dim}, k_weight_);
    op.f[0] = kEps;
  }
  if (c.append && c.rotated != 0) {
    tenon_fop& op = add(TENON_F_ROPE);
    op.t[0] = host.input(TENON_F32, {longest_, c.rotated}, rope_), op.i[0] = c.rotated, op.i[1] = c.pairing;
  }
  if (c.append) add(TENON_F_KV_APPEND);
  std::vector<const tenon_fop*> pointers;
  for (const tenon_fop& op : ops) pointers.push_back(&op);
  auto chain = sdk::abi_struct<tenon_chain>();
  chain.n = static_cast<uint32_t>(ops.size()), chain.op = pointers.data();
  a.pro = call.pro = &chain;

  const auto& table = attention.table<tenon_attention>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  auto claim = sdk::abi_struct<tenon_claim>();
  const tenon_kv_format format = sdk::cpu::plain_kv_format(c.codec);
  Answer answer;
  if (table.claim(attention.self(), &a, &format, &b, &claim, &why) != TENON_OK) return {.fault = text};
  if (claim.pro != ops.size()) return {.fault = "claims " + std::to_string(claim.pro) + " ops"};
  call.claim = &claim;
  std::vector<std::unique_ptr<Placed>> placed;
  for (uint32_t i = 0; i < how.repeats; ++i) {
    placed.push_back(std::make_unique<Placed>(place(host, how.begin, end)));
    placed.back()->view.format = &placed.back()->format;
    call.kv = &placed.back()->view;
    if (table.record(attention.self(), &a, &call, host.recorder(), &why) != TENON_OK) return {.fault = text};
  }
  answer.fault = host.run(how.mode);
  if (!answer.fault.empty()) return answer;
  answer.out = host.f32(call.out);
  answer.out.resize(size_t{live} * out_columns);
  if (c.lse) {
    answer.lse = host.f32(call.lse);
    answer.lse.resize(size_t{live} * c.q_heads);
  }
  for (const tenon_tid plane : {call.kv->k, call.kv->v}) {
    const auto bytes = host.download<uint8_t>(plane);
    answer.cache.insert(answer.cache.end(), bytes.begin(), bytes.end());
  }
  return answer;
}

inline AttentionHost::Expected AttentionHost::expected() const {
  const AttentionCase& c = case_;
  const double scale = 1 / std::sqrt(static_cast<float>(c.k_dim));
  Expected e;
  for (uint32_t row = 0; row < rows(); ++row) {
    const Row& r = rows_[row];
    for (uint32_t head = 0; head < c.q_heads; ++head) {
      const uint32_t kv_head = head / (c.q_heads / c.kv_heads);
      std::vector<float> q(q_.begin() + (size_t{row} * c.q_heads + head) * c.k_dim,
                           q_.begin() + (size_t{row} * c.q_heads + head + 1) * c.k_dim);
      prepare(q.data(), r.position, q_weight_);
      for (float& x : q) x = rounded(x, c.codec);
      std::vector<double> score(r.position + 1), out(c.v_dim);
      double top = c.sink ? double{sink_[head]} : -std::numeric_limits<double>::infinity();
      for (uint32_t t = 0; t <= r.position; ++t) {
        if (!sees(row, t)) continue;
        const float* key = stored_k_[r.sequence].data() + (size_t{t} * c.kv_heads + kv_head) * c.k_dim;
        for (uint32_t d = 0; d < c.k_dim; ++d) score[t] += double{q[d]} * key[d];
        score[t] *= scale;
        if (c.softcap != 0) score[t] = c.softcap * std::tanh(score[t] / c.softcap);
        top = std::max(top, score[t]);
      }
      double sum = c.sink ? std::exp(sink_[head] - top) : 0;
      for (uint32_t t = 0; t <= r.position; ++t) {
        if (!sees(row, t)) continue;
        const double p = std::exp(score[t] - top);
        const float* value = stored_v_[r.sequence].data() + (size_t{t} * c.kv_heads + kv_head) * c.v_dim;
        sum += p;
        for (uint32_t d = 0; d < c.v_dim; ++d) out[d] += p * value[d];
      }
      for (const double x : out) e.out.push_back(x / sum);
      e.lse.push_back(top + std::log(sum));
    }
  }
  return e;
}

}  // namespace tenon::test
