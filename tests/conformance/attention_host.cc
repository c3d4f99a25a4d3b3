#include "attention_host.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tenon/sdk/cpu/kv_reader.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

constexpr uint32_t kGap = 3;  // floats between rows of q and out

std::vector<float> randoms(std::mt19937_64& random, size_t n, float scale) {
  std::vector<float> values(n);
  for (float& v : values) v = scale * (static_cast<float>(random() % 20001) / 10000.0f - 1.0f);
  return values;
}

void round_to(tenon_format codec, std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  const auto n = static_cast<uint32_t>(values.size());
  sdk::cpu::store_row(codec, values.data(), n, bytes.data());
  sdk::cpu::load_row(codec, bytes.data(), n, values.data());
}

tenon_tensor rows_with_gap(int64_t rows, int64_t columns) {
  tenon_tensor t = sdk::tensor(TENON_F32, {rows, columns});
  t.stride[0] = (columns + kGap) * 4;
  return t;
}

}  // namespace

AttentionHost::AttentionHost(const AttentionCase& c, uint64_t seed) : case_(c) {
  std::mt19937_64 random(seed);
  token_major_ = random() % 2 != 0;
  for (uint32_t s = 0; s < c.sequences.size(); ++s) {
    const auto& sequence = c.sequences[s];
    const auto first = static_cast<int32_t>(rows_.size());
    for (uint32_t i = 0; i < sequence.rows; ++i) {
      int32_t parent = i == 0 ? -1 : first + static_cast<int32_t>(i) - 1;
      if (!sequence.parents.empty()) parent = sequence.parents[i] < 0 ? -1 : first + sequence.parents[i];
      rows_.push_back({s, static_cast<int32_t>(sequence.before + i), parent});
    }
    const uint32_t tokens = sequence.before + sequence.rows;
    longest_ = std::max(longest_, tokens);
    Cached& cached = cached_.emplace_back();
    cached.k = randoms(random, size_t{tokens} * c.kv_heads * c.k_dim, 2);
    cached.v = randoms(random, size_t{tokens} * c.kv_heads * c.v_dim, 1);
    round_to(c.codec, cached.k), round_to(c.codec, cached.v);
  }
  columns_ = longest_ / c.page_tokens + 2;
  n_pages_ = columns_ * static_cast<uint32_t>(c.sequences.size());
  std::vector<int32_t> free(n_pages_);
  std::iota(free.begin(), free.end(), 0);
  std::shuffle(free.begin(), free.end(), random);
  for (const auto& sequence : c.sequences) {
    auto& table = pages_.emplace_back(columns_, -1);
    for (uint32_t t = 0; t < sequence.before + sequence.rows; t += c.page_tokens) {
      table[t / c.page_tokens] = free.back();
      free.pop_back();
    }
  }
  q_ = randoms(random, size_t{rows()} * c.q_heads * c.k_dim, 3);
  sink_ = randoms(random, c.q_heads, 2);
}

tenon_attn AttentionHost::layer() const {
  auto a = sdk::abi_struct<tenon_attn>();
  a.q_heads = case_.q_heads, a.kv_heads = case_.kv_heads, a.k_dim = case_.k_dim, a.v_dim = case_.v_dim;
  a.window = case_.window, a.mask = case_.tree ? TENON_MASK_PARENT : TENON_MASK_CAUSAL, a.q_format = TENON_F32;
  a.scale = 1 / std::sqrt(static_cast<float>(case_.k_dim)), a.softcap = case_.softcap;
  a.has_sink = case_.sink, a.want_lse = case_.lse;
  return a;
}

tenon_status AttentionHost::claim(const Component& attention, std::string* why) const {
  const tenon_attn a = layer();
  const tenon_kv_format format = sdk::cpu::plain_kv_format(case_.codec);
  const tenon_bounds b = OpRunner::bounds({.rows = rows(), .kv_len = longest_});
  auto claim = sdk::abi_struct<tenon_claim>();
  char text[256] = "";
  tenon_reason reason{text, sizeof(text)};
  const tenon_status status =
      attention.table<tenon_attention>().claim(attention.self(), &a, &format, &b, &claim, &reason);
  *why = text;
  return status;
}

// The cache in a runner's memory.
struct AttentionHost::Placed {
  tenon_kv_format format;
  tenon_kv_view view;
};

AttentionHost::Placed AttentionHost::place(OpRunner& host) const {
  const uint32_t slots = static_cast<uint32_t>(case_.sequences.size());
  Placed placed{sdk::cpu::plain_kv_format(case_.codec), sdk::abi_struct<tenon_kv_view>()};
  tenon_kv_view& view = placed.view;
  view.heads = case_.kv_heads, view.k_dim = case_.k_dim, view.v_dim = case_.v_dim;
  view.page_tokens = case_.page_tokens, view.pos_rule = TENON_POS_LINEAR, view.sink_page = TENON_NO_PAGE;
  view.columns = columns_;
  const auto plane = [&](uint32_t dim, int64_t(&stride)[3]) {
    tenon_tensor t = token_major_ ? sdk::tensor(case_.codec, {n_pages_, case_.page_tokens, case_.kv_heads, dim})
                                  : sdk::tensor(case_.codec, {n_pages_, case_.kv_heads, case_.page_tokens, dim});
    stride[0] = t.stride[0], stride[1] = t.stride[token_major_ ? 1 : 2], stride[2] = t.stride[token_major_ ? 2 : 1];
    const tenon_tid id = host.strided_input(t, nullptr);
    std::fill_n(static_cast<uint8_t*>(host.data(id)), host.extent(id), uint8_t{0xff});
    return id;
  };
  view.k = plane(case_.k_dim, view.k_stride), view.v = plane(case_.v_dim, view.v_stride);
  std::vector<int32_t> table;
  for (const auto& pages : pages_) table.insert(table.end(), pages.begin(), pages.end());
  view.pages = host.input(TENON_I32, {slots, columns_}, table);
  view.format = &placed.format;
  const sdk::cpu::KvLayout layout = sdk::cpu::kv_layout(view);
  for (uint32_t s = 0; s < slots; ++s) {
    for (uint32_t h = 0; h < case_.kv_heads; ++h) {
      const auto* pages = static_cast<const int32_t*>(host.data(view.pages));
      const sdk::cpu::KvRows k(layout, layout.k, host.data(view.k), pages, s, h);
      const sdk::cpu::KvRows v(layout, layout.v, host.data(view.v), pages, s, h);
      for (uint32_t t = 0; t < case_.sequences[s].before + case_.sequences[s].rows; ++t) {
        const size_t at = size_t{t} * case_.kv_heads + h;
        sdk::cpu::store_row(case_.codec, cached_[s].k.data() + at * case_.k_dim, case_.k_dim, k.at(t));
        sdk::cpu::store_row(case_.codec, cached_[s].v.data() + at * case_.v_dim, case_.v_dim, v.at(t));
      }
    }
  }
  return placed;
}

AttentionHost::Answer AttentionHost::run(const Component& attention, uint32_t begin, uint32_t end, uint32_t padding,
                                         uint32_t kv_len, uint64_t seed) const {
  const uint32_t live = end - begin, n = live + padding;
  const auto slots = static_cast<uint32_t>(case_.sequences.size());
  OpRunner host(OpRunner::bounds({.rows = n, .seqs = slots, .kv_len = kv_len, .slots = slots}));
  Placed placed = place(host);
  placed.view.format = &placed.format;
  const int64_t q_columns = int64_t{case_.q_heads} * case_.k_dim, out_columns = int64_t{case_.q_heads} * case_.v_dim;
  auto call = sdk::abi_struct<tenon_attn_call>();
  call.q = host.strided_input(rows_with_gap(n, q_columns), nullptr);
  call.out = host.strided_output(rows_with_gap(n, out_columns));
  if (case_.lse) call.lse = host.strided_output(rows_with_gap(n, case_.q_heads));
  if (case_.sink) call.sink = host.input(TENON_F32, {case_.q_heads}, sink_);
  call.kv = &placed.view;
  const auto claim = sdk::abi_struct<tenon_claim>();
  call.claim = &claim;
  auto* q = static_cast<float*>(host.data(call.q));
  for (uint32_t i = 0; i < n; ++i) {
    const bool padded = i >= live;
    const Row row = padded ? Row{0, 0, -1} : rows_[begin + i];
    host.step_i32(TENON_STEP_SLOT)[i] = padded ? -1 : static_cast<int32_t>(row.sequence);
    host.step_i32(TENON_STEP_POS)[i] = row.position;
    host.step_i32(TENON_STEP_PARENT)[i] =
        row.parent < static_cast<int32_t>(begin) ? -1 : row.parent - static_cast<int32_t>(begin);
    for (int64_t d = 0; d < q_columns; ++d) {
      q[i * (q_columns + kGap) + d] =
          padded ? std::numeric_limits<float>::quiet_NaN() : q_[size_t{begin + i} * q_columns + d];
    }
  }
  host.set_live(live, slots);
  for (uint32_t s = 0; s < slots; ++s) {
    // Rows of the step that run earlier are in the cache by then.
    uint32_t before = case_.sequences[s].before;
    for (uint32_t i = 0; i < begin; ++i) before += rows_[i].sequence == s ? 1 : 0;
    host.step_i32(TENON_STEP_KV_LEN)[s] = static_cast<int32_t>(before);
    host.step_i32(TENON_STEP_SEQ_SLOT)[s] = static_cast<int32_t>(s);
    const auto first =
        std::find_if(rows_.begin() + begin, rows_.begin() + end, [&](const Row& r) { return r.sequence >= s; });
    host.step_i32(TENON_STEP_SEQ_ROW)[s] = static_cast<int32_t>(first - rows_.begin()) - static_cast<int32_t>(begin);
  }
  host.step_i32(TENON_STEP_SEQ_ROW)[slots] = static_cast<int32_t>(live);

  const tenon_attn a = layer();
  const auto& table = attention.table<tenon_attention>();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  Answer answer;
  if (table.record_plan != nullptr &&
      table.record_plan(attention.self(), &a, &placed.view, host.recorder(), &call.plan, &why) != TENON_OK) {
    answer.fault = text;
    return answer;
  }
  if (table.record(attention.self(), &a, &call, host.recorder(), &why) != TENON_OK) {
    answer.fault = text;
    return answer;
  }
  answer.fault = host.run(seed);
  answer.out = host.f32(call.out);
  answer.out.resize(live * out_columns);
  if (case_.lse) {
    answer.lse = host.f32(call.lse);
    answer.lse.resize(size_t{live} * case_.q_heads);
  }
  return answer;
}

std::vector<bool> AttentionHost::visible(uint32_t row) const {
  const auto& sequence = case_.sequences[rows_[row].sequence];
  std::vector<bool> seen(sequence.before + sequence.rows);
  const int32_t position = rows_[row].position;
  if (case_.tree) {
    std::fill_n(seen.begin(), sequence.before, true);
    for (auto i = static_cast<int32_t>(row); i >= 0; i = rows_[i].parent) seen[rows_[i].position] = true;
  } else {
    std::fill_n(seen.begin(), position + 1, true);
  }
  if (case_.window != 0) {
    for (int32_t t = 0; t <= position - static_cast<int32_t>(case_.window); ++t) seen[t] = false;
  }
  return seen;
}

AttentionHost::Expected AttentionHost::expected() const {
  Expected e;
  const AttentionCase& c = case_;
  const double scale = 1 / std::sqrt(static_cast<float>(c.k_dim));
  for (uint32_t row = 0; row < rows(); ++row) {
    const Cached& cached = cached_[rows_[row].sequence];
    const std::vector<bool> seen = visible(row);
    for (uint32_t head = 0; head < c.q_heads; ++head) {
      const uint32_t kv_head = head / (c.q_heads / c.kv_heads);
      const float* q = q_.data() + (size_t{row} * c.q_heads + head) * c.k_dim;
      std::vector<double> score(seen.size());
      double top = c.sink ? double{sink_[head]} : -std::numeric_limits<double>::infinity();
      for (size_t t = 0; t < seen.size(); ++t) {
        if (!seen[t]) continue;
        for (uint32_t d = 0; d < c.k_dim; ++d) {
          score[t] += double{q[d]} * cached.k[(t * c.kv_heads + kv_head) * c.k_dim + d];
        }
        score[t] *= scale;
        if (c.softcap != 0) score[t] = c.softcap * std::tanh(score[t] / c.softcap);
        top = std::max(top, score[t]);
      }
      double sum = c.sink ? std::exp(sink_[head] - top) : 0;
      std::vector<double> out(c.v_dim);
      for (size_t t = 0; t < seen.size(); ++t) {
        if (!seen[t]) continue;
        const double p = std::exp(score[t] - top);
        sum += p;
        for (uint32_t d = 0; d < c.v_dim; ++d) out[d] += p * cached.v[(t * c.kv_heads + kv_head) * c.v_dim + d];
      }
      for (const double x : out) e.out.push_back(x / sum);
      e.lse.push_back(top + std::log(sum));
    }
  }
  return e;
}

}  // namespace tenon::test
