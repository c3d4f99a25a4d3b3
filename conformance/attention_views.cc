// This drives attention over the other views, and computes the answer in float64. What a row sees follows from the
// rules of tenon/abi/kv_cache.h alone, without code of any cache or attention.
#include "conformance/attention_views.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "conformance/rotation.h"
#include "conformance/suite.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/recorder.h"

namespace tenon::conformance {
namespace {

constexpr float kScale = 0.25f;

}  // namespace

std::vector<ViewCase> view_cases() {
  constexpr uint32_t kCells = ViewHost::kCells;
  constexpr uint32_t kApart = TENON_KV_HEADS_APART, kRenumbered = TENON_KV_RENUMBERED, kHadamard = sdk::kKvHadamard;
  return {
      {.name = "window_of_the_policy", .sinks = 4, .window = 20},
      {.name = "ring_with_sinks", .rule = TENON_POS_RING, .sinks = 4, .ring = 28, .window = 20},
      {.name = "ring_without_sinks", .codec = TENON_BF16, .rule = TENON_POS_RING, .ring = 25, .window = 20},
      {.name = "ring_under_a_layers_window",
       .codec = TENON_F16,
       .rule = TENON_POS_RING,
       .sinks = 4,
       .ring = 28,
       .window = 20,
       .layer_window = 6},
      {.name = "ring_of_a_tree", .rule = TENON_POS_RING, .sinks = 3, .ring = 28, .window = 20, .tree = true},
      {.name = "renumbered_ring",
       .rule = TENON_POS_RING,
       .sinks = 4,
       .ring = 28,
       .window = 20,
       .flags = kRenumbered,
       .rotated = false},
      {.name = "keys_before_rope", .codec = TENON_F16, .rotated = false},
      {.name = "int8", .codec = TENON_I8},
      {.name = "int8_of_a_tree", .codec = TENON_I8, .tree = true, .softcap = 2},
      {.name = "fp8", .codec = TENON_F8E4M3},
      {.name = "fp8_of_a_tree", .codec = TENON_F8E4M3, .tree = true, .softcap = 2},
      {.name = "int4", .codec = TENON_U8},
      {.name = "int4_of_a_tree", .codec = TENON_U8, .tree = true, .softcap = 2},
      {.name = "rotated_heads", .flags = kHadamard},
      {.name = "rotated_heads_of_int4", .codec = TENON_U8, .flags = kHadamard},
      {.name = "rotated_table_of_heads",
       .codec = TENON_U8,
       .rule = TENON_POS_TABLE,
       .flags = kApart | kHadamard,
       .weight_rows = 3},
      {.name = "heads_apart", .flags = kApart, .weight_rows = 2},
      {.name = "chosen_spans", .chosen_rows = 5},
      {.name = "chosen_spans_of_short_steps", .codec = TENON_F16, .weight_rows = 2, .chosen_rows = 3},
      {.name = "chosen_spans_under_a_layers_window", .layer_window = 30, .softcap = 2, .chosen_rows = 8},
      {.name = "chosen_spans_of_int8_of_a_tree", .codec = TENON_I8, .tree = true, .chosen_rows = 8},
      {.name = "tail_of_int4", .codec = TENON_U8, .recent = 20},
      {.name = "tail_of_rotated_int4", .codec = TENON_U8, .flags = kHadamard, .softcap = 2, .recent = 9},
      {.name = "tail_of_int8_of_a_tree", .codec = TENON_I8, .tree = true, .recent = 3},
      {.name = "tail_of_fp8_under_a_layers_window", .codec = TENON_F8E4M3, .layer_window = 30, .recent = 20},
      {.name = "tail_longer_than_a_layers_window", .codec = TENON_U8, .layer_window = 12, .recent = 20},
      {.name = "tail_of_everything", .codec = TENON_U8, .recent = kCells},
      {.name = "tail_of_f32", .recent = 1},
      {.name = "keys_by_channel", .codec = TENON_U8, .softcap = 2, .recent = 11, .key_group = 8},
      {.name = "keys_by_channel_of_rotated_heads", .codec = TENON_U8, .flags = kHadamard, .recent = 8, .key_group = 4},
      {.name = "table", .rule = TENON_POS_TABLE},
      {.name = "table_of_a_tree", .rule = TENON_POS_TABLE, .weight_rows = 1, .tree = true},
      {.name = "table_of_heads_of_int8", .codec = TENON_I8, .rule = TENON_POS_TABLE, .flags = kApart, .weight_rows = 3},
      {.name = "renumbered_table_of_heads",
       .rule = TENON_POS_TABLE,
       .sinks = 2,
       .window = 30,
       .flags = kApart | kRenumbered,
       .rotated = false,
       .weight_rows = 5},
  };
}

ViewHost::ViewHost(const ViewCase& c, const Component& attention, uint64_t seed)
    : case_(c),
      attention_(attention),
      host_(OpRunner::bounds({.rows = kRows + 1,
                              .seqs = kSeqs,
                              .kv_len = kCells,
                              .slots = kSlots,
                              .rows_per_seq = kFirst[1],
                              .trees = c.tree}),
            attention.device()),
      random_(seed),
      view_(sdk::abi_struct<tenon_kv_view>()),
      tail_(sdk::abi_struct<tenon_kv_view>()) {
  fill_state();
  place_rows();
  make_view();
}

std::vector<float> ViewHost::randoms(size_t n) {
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(random_() % 2001) / 1000.0f - 1;
  return x;
}

// Row kRows is padding.
void ViewHost::fill_state() {
  for (uint32_t row = 0; row <= kRows; ++row) {
    const uint32_t s = sequence_of(row), i = row - kFirst[s];
    host_.step_i32(TENON_STEP_SLOT)[row] = row < kRows ? kSlot[s] : -1;
    if (row == kRows) continue;
    const int32_t parent = case_.tree ? kParent[row] : i == 0 ? -1 : static_cast<int32_t>(row) - 1;
    host_.step_i32(TENON_STEP_PARENT)[row] = parent;
    host_.step_i32(TENON_STEP_PLACE)[row] = kLength[s] + static_cast<int32_t>(i);
    host_.step_i32(TENON_STEP_POS)[row] =
        parent < 0 ? kLength[s] : host_.step_i32(TENON_STEP_POS)[static_cast<uint32_t>(parent)] + 1;
  }
  for (uint32_t s = 0; s < kSeqs; ++s) {
    host_.step_i32(TENON_STEP_KV_LEN)[static_cast<uint32_t>(kSlot[s])] = kLength[s];
    host_.step_i32(TENON_STEP_SEQ_SLOT)[s] = kSlot[s];
  }
  for (uint32_t s = 0; s <= kSeqs; ++s) host_.step_i32(TENON_STEP_SEQ_ROW)[s] = static_cast<int32_t>(kFirst[s]);
  host_.set_live(kRows, kSeqs);
}

void ViewHost::place_rows() {
  place_.assign(size_t{kRows + 1} * lines(), 0);
  pages_.resize(kPages);
  std::iota(pages_.begin(), pages_.end(), 0);
  std::shuffle(pages_.begin(), pages_.end(), random_);
  pages_.resize(size_t{kSlots} * lines() * kColumns);
  if (case_.rule == TENON_POS_TABLE) {
    table_.assign(size_t{kSlots} * lines() * kCells, -1);
    used_.assign(size_t{kSlots} * lines(), 0);
    for (uint32_t s = 0; s < kSeqs; ++s) {
      for (uint32_t line = 0; line < lines(); ++line) place_in_table(s, line);
    }
    return;
  }
  for (uint32_t row = 0; row < kRows; ++row) {
    auto cell = static_cast<uint32_t>(host_.step_i32(TENON_STEP_PLACE)[row]);
    if (case_.rule == TENON_POS_RING && cell >= case_.sinks) cell = case_.sinks + (cell - case_.sinks) % case_.ring;
    std::fill_n(place_.begin() + row * lines(), lines(), cell);
  }
}

// Puts some of the positions in any cells, with gaps between. The step's rows take free cells; the first of them one
// whose entry still says what it held before, the second one beyond the cells that are in use.
void ViewHost::place_in_table(uint32_t sequence, uint32_t line) {
  const size_t at = static_cast<uint32_t>(kSlot[sequence]) * lines() + line;
  std::vector<uint32_t> cells(kCells - 10);
  std::iota(cells.begin(), cells.end(), 0);
  std::shuffle(cells.begin(), cells.end(), random_);
  used_[at] = static_cast<int32_t>(cells.size());
  int32_t* table = &table_[at * kCells];
  for (uint32_t row = kFirst[sequence]; row < kFirst[sequence + 1]; ++row) {
    const uint32_t i = row - kFirst[sequence];
    place_[row * lines() + line] = i == 1 ? kCells - 1 : cells.back();
    if (i == 0) table[cells.back()] = 1;
    cells.pop_back();
  }
  for (int32_t p = 0; p < kLength[sequence]; ++p) {
    if (p % 5 == 1 + static_cast<int32_t>(line)) continue;  // position 1 and others are gone
    table[cells.back()] = p;
    cells.pop_back();
  }
  table[cells.back()] = kLength[sequence] + 1;  // it is as if nobody had taken it back
}

std::vector<int32_t> ViewHost::old_cells(uint32_t sequence, uint32_t head) const {
  std::vector<int32_t> position(kCells, -1);
  const int32_t length = kLength[sequence];
  if (case_.rule == TENON_POS_TABLE) {
    const size_t at = static_cast<uint32_t>(kSlot[sequence]) * lines() + (lines() > 1 ? head : 0);
    for (int32_t c = 0; c < used_[at]; ++c) {
      const int32_t p = table_[at * kCells + static_cast<size_t>(c)];
      if (p < length) position[static_cast<size_t>(c)] = p;
    }
  } else {
    for (int32_t p = 0; p < length; ++p) {  // a later position overwrites an earlier one of its cell
      auto cell = static_cast<uint32_t>(p);
      if (case_.rule == TENON_POS_RING && cell >= case_.sinks) cell = case_.sinks + (cell - case_.sinks) % case_.ring;
      position[cell] = p;
    }
  }
  for (uint32_t row = kFirst[sequence]; row < kFirst[sequence + 1]; ++row) position[place(row, head)] = -1;
  return position;
}

// Sequence 0 has four spans with old cells, and the last one of them those of the step as well. There are rows that see
// no old cell, rows that see the cells before them in that last span, and rows that do not.
std::vector<int32_t> ViewHost::spans_for(uint32_t row, uint32_t head) const {
  const uint32_t s = sequence_of(row);
  if (kFirst[s + 1] - kFirst[s] > case_.chosen_rows) return {-1};
  const std::vector<std::vector<int32_t>> choices = {{0, 2, 3}, {}, {1}, {3}, {0, 1, 2}, {2, 3}};
  return choices[(row * kHeads + head) % choices.size()];
}

std::vector<ViewHost::Seen> ViewHost::seen(uint32_t row, uint32_t head) const {
  const int32_t n = host_.step_i32(TENON_STEP_POS)[row];
  const auto in_windows = [&](int32_t p) {
    const bool layer = case_.layer_window == 0 || p > n - static_cast<int32_t>(case_.layer_window);
    const bool policy =
        case_.window == 0 || p > n - static_cast<int32_t>(case_.window) || p < static_cast<int32_t>(case_.sinks);
    return layer && policy;
  };
  std::vector<Seen> all;
  const std::vector<int32_t> old = old_cells(sequence_of(row), head), spans = spans_for(row, head);
  const auto is_chosen = [&](uint32_t cell) {
    return case_.chosen_rows == 0 || spans == std::vector<int32_t>{-1} ||
           std::ranges::find(spans, static_cast<int32_t>(cell / kSpanCells)) != spans.end();
  };
  for (uint32_t c = 0; c < kCells; ++c) {
    if (old[c] >= 0 && in_windows(old[c]) && is_chosen(c)) all.push_back({c, old[c]});
  }
  for (auto r = static_cast<int32_t>(row); r >= 0; r = host_.step_i32(TENON_STEP_PARENT)[static_cast<uint32_t>(r)]) {
    const int32_t p = host_.step_i32(TENON_STEP_POS)[static_cast<uint32_t>(r)];
    if (in_windows(p)) all.push_back({place(static_cast<uint32_t>(r), head), p});
  }
  return all;
}

void ViewHost::make_view() {
  const bool scaled = sdk::is_scaled_codec(case_.codec);
  format_ = sdk::kv_format(case_.codec, scaled ? TENON_F16 : TENON_FORMAT_NONE, case_.rotated);
  view_.format = &format_;
  view_.flags = case_.flags;
  view_.heads = kHeads;
  view_.k_dim = kKeyDim;
  view_.v_dim = kValueDim;
  view_.page_cells = kPageCells;
  view_.columns = kColumns;
  view_.pos_rule = case_.rule;
  view_.sinks = case_.sinks;
  view_.ring = case_.ring;
  view_.window = case_.window;
  view_.weight_rows = case_.weight_rows;
  view_.group = 1;
  const auto i32 = [&](const auto& values) {
    return host_.input(TENON_I32, {static_cast<int64_t>(values.size())}, values);
  };
  view_.pages = i32(pages_);
  view_.place = i32(place_);
  if (case_.key_group != 0) view_.flags |= TENON_KV_CHANNEL_KEYS;
  view_.key_group = case_.key_group;
  fill_planes(view_, pages_, keys_, values_);
  if (case_.recent != 0) make_tail();
  if (case_.rule == TENON_POS_TABLE) {
    std::vector<int32_t> by_page(size_t{kPages} * lines() * kPageCells, -1);
    for (size_t i = 0; i < table_.size(); ++i) {
      const size_t line = i / kCells, cell = i % kCells;
      const auto page = static_cast<size_t>(pages_[line * kColumns + cell / kPageCells]);
      by_page[(page * lines() + line % lines()) * kPageCells + cell % kPageCells] = table_[i];
    }
    view_.used = i32(used_);
    view_.pos = i32(by_page);
  }
  if (case_.chosen_rows != 0) {
    view_.chosen_rows = case_.chosen_rows;
    view_.span_cells = kSpanCells;
    view_.most_spans = kMostSpans;
    std::vector<int32_t> chosen(size_t{kRows + 1} * kHeads * (1 + kMostSpans), INT32_MAX);
    for (uint32_t i = 0; i < kRows * kHeads; ++i) {
      const std::vector<int32_t> spans = spans_for(i / kHeads, i % kHeads);
      int32_t* list = &chosen[size_t{i} * (1 + kMostSpans)];
      list[0] = spans == std::vector<int32_t>{-1} ? -1 : static_cast<int32_t>(spans.size());
      std::ranges::copy(spans, list + 1);
    }
    view_.chosen = i32(chosen);
  }
  if (case_.weight_rows != 0) view_.weights = host_.output(TENON_F32, {kSlots, kHeads, kCells});
}

tenon_kv_view ViewHost::prototype_of(tenon_kv_view view) {
  for (tenon_tid* id : {&view.k, &view.v, &view.k_scale, &view.v_scale, &view.pages, &view.place, &view.used, &view.pos,
                        &view.weights, &view.chosen}) {
    *id = 0;
  }
  for (auto* stride : {&view.k_stride, &view.v_stride, &view.ks_stride, &view.vs_stride}) {
    std::fill(std::begin(*stride), std::end(*stride), 0);
  }
  return view;
}

ViewHost::Answer ViewHost::run() {
  auto a = sdk::abi_struct<tenon_attn>();
  a.q_heads = kHeads * kGroup;
  a.kv_heads = kHeads;
  a.k_dim = kKeyDim;
  a.v_dim = kValueDim;
  a.window = case_.layer_window;
  a.scale = kScale;
  a.softcap = case_.softcap;
  auto rope = sdk::abi_struct<tenon_fop>();
  rope.id = TENON_F_ROPE;
  rope.i[0] = kRotated;
  sdk::Heads(kHeads * kGroup, kHeads, kKeyDim, kValueDim).store(rope);
  const tenon_fop* op = &rope;
  auto chain = sdk::abi_struct<tenon_chain>();
  chain.n = case_.rotated ? 0 : 1;
  chain.op = &op;
  auto call = sdk::abi_struct<tenon_attn_call>();
  auto claim = sdk::abi_struct<tenon_claim>();
  a.pro = call.pro = &chain;
  call.kv = &view_;
  call.claim = &claim;
  tenon_kv_view prototype = prototype_of(view_);
  const tenon_kv_view of_tail = prototype_of(tail_);
  if (case_.recent != 0) prototype.recent_view = &of_tail;
  const auto& table = attention_.table<tenon_attention>();
  Reason why;
  const tenon_bounds b = *host_.recorder()->bounds;
  const tenon_status status = table.claim(attention_.self(), &a, &prototype, &b, &claim, &why.raw);
  if (status == TENON_REFUSED && *why.text != '\0') return {.refusal = why.text};
  if (status != TENON_OK) return {.fault = std::string("claim failed, or refused without a reason: ") + why.text};
  if (claim.pro != chain.n) return {.refusal = "it does not turn the queries of keys before rope"};

  const int64_t q_columns = int64_t{kHeads} * kGroup * kKeyDim;
  q_ = randoms(size_t{kRows + 1} * static_cast<size_t>(q_columns));
  for (uint32_t cell = 0; cell < kCells; ++cell) {
    for (uint32_t pair = 0; pair < kRotated / 2; ++pair) {
      const double angle = cell * std::pow(50.0, -2.0 * pair / kRotated);
      angles_.push_back(static_cast<float>(std::cos(angle)));
      angles_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  rope.t[0] = host_.input(TENON_F32, {kCells, kRotated}, angles_);
  call.q = host_.input(TENON_F32, {kRows + 1, q_columns}, q_);
  call.out = host_.output(TENON_F32, {kRows + 1, int64_t{kHeads} * kGroup * kValueDim});
  if (table.record(attention_.self(), &a, &call, host_.recorder(), &why.raw) != TENON_OK) return {.fault = why.text};
  Answer answer;
  answer.fault = host_.run(1);
  if (!answer.fault.empty()) return answer;
  answer.out = host_.f32(call.out);
  answer.out.resize(size_t{kRows} * kHeads * kGroup * kValueDim);
  if (case_.weight_rows != 0) answer.weights = host_.f32(view_.weights);
  return answer;
}

// Turns pairs of elements i and i + half, by the angles of row `index` of the table.
void ViewHost::turn(std::vector<double>& x, int32_t index) const {
  if (case_.rotated) return;
  constexpr uint32_t kHalf = kRotated / 2;
  for (uint32_t i = 0; i < kHalf; ++i) {
    const double c = angles_[(static_cast<size_t>(index) * kHalf + i) * 2], u = x[i], v = x[i + kHalf];
    const double s = angles_[(static_cast<size_t>(index) * kHalf + i) * 2 + 1];
    x[i] = u * c - v * s;
    x[i + kHalf] = u * s + v * c;
  }
}

const float* ViewHost::read_by(uint32_t row, uint32_t head, const Seen& at, bool value) const {
  const int32_t n = host_.step_i32(TENON_STEP_POS)[row];
  const bool tail = case_.recent != 0 && at.position > n - static_cast<int32_t>(case_.recent);
  const size_t index = (size_t{sequence_of(row)} * kHeads + head) * kCells + at.cell;
  if (value) return &(tail ? tail_values_ : values_)[index * kValueDim];
  return &(tail ? tail_keys_ : keys_)[index * kKeyDim];
}

// Returns the softmax of a query head over the cells that its row sees.
std::vector<double> ViewHost::scores(uint32_t row, uint32_t q_head, const std::vector<Seen>& cells) const {
  const int32_t n = host_.step_i32(TENON_STEP_POS)[row], sinks = static_cast<int32_t>(case_.sinks);
  const bool renumbered = (case_.flags & TENON_KV_RENUMBERED) != 0;
  const int32_t shift = renumbered ? std::max(0, n + 1 - sinks - static_cast<int32_t>(case_.window)) : 0;
  const auto vector_of = [](const float* x) { return std::vector<double>(x, x + kKeyDim); };
  std::vector<double> q = vector_of(&q_[(size_t{row} * kHeads * kGroup + q_head) * kKeyDim]), score;
  turn(q, n - shift);
  if ((case_.flags & sdk::kKvHadamard) != 0) rotate_by_matrix(q);
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Seen& at : cells) {
    std::vector<double> k = vector_of(read_by(row, q_head / kGroup, at, false));
    turn(k, at.position < sinks ? at.position : at.position - shift);
    double s = kScale * std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
    if (case_.softcap != 0) s = case_.softcap * std::tanh(s / case_.softcap);
    score.push_back(s);
    top = std::max(top, s);
  }
  for (double& s : score) sum += s = std::exp(s - top);
  for (double& s : score) s /= sum;
  return score;
}

ViewHost::Expected ViewHost::expected() const {
  Expected all;
  all.weights.assign(size_t{kSlots} * kHeads * kCells, std::numeric_limits<double>::quiet_NaN());
  for (uint32_t i = 0; i < kSeqs * kHeads; ++i) {
    const size_t at = static_cast<size_t>(kSlot[i / kHeads]) * kHeads + i % kHeads;
    std::fill_n(all.weights.begin() + static_cast<std::ptrdiff_t>(at * kCells), kCells, 0.0);
  }
  for (uint32_t row = 0; row < kRows; ++row) {
    const uint32_t s = sequence_of(row);
    for (uint32_t q_head = 0; q_head < kHeads * kGroup; ++q_head) {
      const uint32_t head = q_head / kGroup;
      const std::vector<Seen> cells = seen(row, head);
      const std::vector<double> score = scores(row, q_head, cells);
      std::array<double, kValueDim> out{};
      for (size_t i = 0; i < cells.size(); ++i) {
        const float* value = read_by(row, head, cells[i], true);
        for (uint32_t d = 0; d < kValueDim; ++d) out[d] += score[i] * value[d];
        if (row + case_.weight_rows < kFirst[s + 1]) continue;
        all.weights[(static_cast<size_t>(kSlot[s]) * kHeads + head) * kCells + cells[i].cell] += score[i];
      }
      if ((case_.flags & sdk::kKvHadamard) != 0) rotate_by_matrix(out);
      all.out.insert(all.out.end(), out.begin(), out.end());
    }
  }
  return all;
}

}  // namespace tenon::conformance
