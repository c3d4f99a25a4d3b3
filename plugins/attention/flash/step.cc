// A row of a step sees spots of its sequence's cache (attend.h); a run of rows walks the spots in blocks of
// kKeys at fixed places, and every sum has one order, so that a row's bits do not depend on the rows beside
// it. The softmax is online (Milakov and Gimelshein, arXiv:1805.02867). The naive twin is
// AttentionHost::expected() of conformance/attention_expected.cc.
#include "step.h"

#include <algorithm>
#include <bit>
#include <string>

#include "tenon/sdk/live.h"

namespace tenon::flash {

using attention::after_window;
using sdk::Part;

const Kernels& kernels(uint32_t isa) {
  static constexpr const Kernels* kTables[] = {&kScalarKernels, &kAvx2Kernels, &kAvx512Kernels};
  return *kTables[isa];
}

namespace {

uint64_t bits_below(uint32_t n) {
  return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}
// Returns spots [from, to) as bits of the block.
uint64_t bits_of(uint64_t from, uint64_t to, uint32_t block) {
  if (to <= block || to <= from) return 0;
  const uint64_t above = bits_below(static_cast<uint32_t>(std::min<uint64_t>(to - block, kKeys)));
  return from <= block ? above : above & ~bits_below(static_cast<uint32_t>(std::min<uint64_t>(from - block, kKeys)));
}

}  // namespace

Workspace::Workspace(const AttendArgs& a, void* memory) {
  const size_t n = size_t{a.block_rows} * a.group;
  auto* base = static_cast<float*>(memory);
  size_t used = 0;
  const auto take = [&](size_t floats) {
    float* mine = base == nullptr ? nullptr : base + used;
    used += (floats + 15) / 16 * 16;
    return mine;
  };
  keys = take(size_t{a.kv.k.dim} * kKeys);
  values = take(size_t{a.padded} * kKeys);
  angles = take(static_cast<size_t>(a.rotated) * kKeys);
  q = take(n * a.kv.k.dim);
  scores = take(n * kKeys);
  sum = take(n * a.padded);
  total = take(n * a.padded);
  shrink = take(n);
  state = reinterpret_cast<Softmax*>(take(2 * n));
  total_state = reinterpret_cast<Softmax*>(take(2 * n));
  visible = reinterpret_cast<uint64_t*>(take(size_t{2} * a.block_rows));
  path = reinterpret_cast<uint32_t*>(take(a.trees != 0 ? a.rows : 0));
  bytes = used * sizeof(float);
}

Step::Step(const AttendArgs& a, const Part& part)
    : a_(a),
      pos_(part.ptr<int32_t>(kPos)),
      slot_(part.ptr<int32_t>(kSlot)),
      parent_(part.ptr<int32_t>(kParent)),
      kv_len_(part.ptr<int32_t>(kKvLen)),
      place_(part.ptr<int32_t>(kPlace)),
      used_(part.ptr<int32_t>(kUsed)),
      table_(part.ptr<int32_t>(kTable)),
      pages_(part.ptr<int32_t>(kPages)),
      chosen_(part.ptr<int32_t>(kChosen)),
      out_row_(part.ptr<int32_t>(kOutRow)),
      live_(std::min(part.ptr<uint32_t>(kLive)[sdk::kLiveRows], a.rows)),
      out_rows_(part.ptr<uint32_t>(kLive)[sdk::kLiveOutRows]) {}

bool Step::active(uint32_t row) const {
  if (slot_[row] < 0) return false;
  if (a_.only_out_rows != 0 && !std::binary_search(out_row_, out_row_ + out_rows_, static_cast<int32_t>(row)))
    return false;
  if (a_.spots == 0) return true;
  // In a chain of a linear cache a row's cell is its position.
  const bool tokens = a_.kv.rule == TENON_POS_LINEAR && a_.trees == 0;
  uint32_t cell = tokens ? position(row) : place(row, 0);
  for (uint32_t h = 1; h < a_.kv_heads && a_.kv.apart(); ++h) cell = std::max(cell, place(row, h));
  if (cell >= a_.spots) {
    throw sdk::Failed("position " + std::to_string(pos_[row]) + " in a program for " + std::to_string(a_.spots) +
                      (by_cell() ? " cells" : " tokens"));
  }
  return true;
}

bool Step::branches(uint32_t row) const {
  if (a_.trees == 0) return false;
  uint32_t first = row, last = row;
  while (first > 0 && slot_[first - 1] == slot_[row]) --first;
  while (last + 1 < live_ && slot_[last + 1] == slot_[row]) ++last;
  for (uint32_t i = first + 1; i <= last; ++i) {
    if (parent_[i] != static_cast<int32_t>(i) - 1) return true;
  }
  return false;
}

Spots Step::spots(uint32_t row, uint32_t head) const {
  if (!by_cell()) {
    const uint32_t n = position(row), own = after_window(n, a_.window);
    const bool sinks = a_.kv.window != 0 && own < a_.kv.sinks;
    return {sinks ? a_.kv.sinks : 0, std::max(own, after_window(n, a_.kv.window)), a_.past(n)};
  }
  uint32_t end = used(row, head);
  for_path(row, [&](uint32_t r) { end = std::max(end, place(r, head) + 1); });
  return {0, 0, end};
}

const int32_t* Step::table_line(uint32_t row, uint32_t head, uint32_t cell) const {
  const size_t slot = a_.kv.apart() ? size_t{this->slot(row)} * a_.kv_heads + head : this->slot(row);
  const auto page = static_cast<size_t>(pages_[slot * a_.kv.columns + cell / a_.kv.page_cells]);
  return table_ + (a_.kv.apart() ? page * a_.kv_heads + head : page) * a_.kv.page_cells + cell % a_.kv.page_cells;
}

uint64_t Step::visible(uint32_t row, uint32_t head, uint32_t block) const {
  const uint32_t n = position(row);
  if (!by_cell()) {
    const uint32_t own = after_window(n, a_.window);
    const uint64_t bits = bits_of(std::max(own, after_window(n, a_.kv.window)), a_.past(n), block);
    if (a_.most_spans != 0) return bits == 0 ? 0 : bits & in_spans(row, head, block);
    return a_.kv.window == 0 ? bits : bits | bits_of(own, std::min(a_.kv.sinks, n + 1), block);
  }
  uint64_t bits = 0;
  const uint32_t end = std::min(used(row, head), block + kKeys);
  const int32_t length = kv_len_[slot_[row]];
  for (uint32_t cell = block; cell < end; ++cell) {
    const int32_t p = *table_line(row, head, cell);
    if (p >= 0 && p < length && in_windows(p, n)) bits |= uint64_t{1} << (cell - block);
  }
  for_path(row, [&](uint32_t r) {
    const uint32_t cell = place(r, head);
    if (cell >= block && cell < block + kKeys && in_windows(pos_[r], n)) bits |= uint64_t{1} << (cell - block);
  });
  return bits;
}

uint64_t Step::in_spans(uint32_t row, uint32_t head, uint32_t block) const {
  const int32_t* list = chosen_ + (size_t{row} * a_.kv_heads + head) * (1 + a_.most_spans);
  if (list[0] < 0) return ~uint64_t{0};
  const int32_t* const end = list + 1 + list[0];
  uint64_t bits = bits_of(kv_len(row), uint64_t{block} + kKeys, block);
  for (const int32_t* s = std::lower_bound(list + 1, end, static_cast<int32_t>(block / a_.span_cells)); s != end; ++s) {
    const uint64_t first = uint64_t{a_.span_cells} * static_cast<uint32_t>(*s);
    if (first >= block + kKeys) break;
    bits |= bits_of(first, first + a_.span_cells, block);
  }
  return bits;
}

uint32_t Step::position_of(uint32_t row, uint32_t head, uint32_t spot) const {
  if (!by_cell()) return spot;
  uint32_t position = UINT32_MAX;
  for_path(row, [&](uint32_t r) {
    if (place(r, head) == spot) position = this->position(r);
  });
  return position != UINT32_MAX ? position : static_cast<uint32_t>(*table_line(row, head, spot));
}

Run::Run(const AttendArgs& a, const Part& part, const Step& step, const RunRows& rows)
    : a_(a),
      step_(step),
      k_(kernels(a.isa)),
      w_(a, part.thread_scratch()),
      rope_(part.ptr<const float>(kRope)),
      head_(rows.head),
      begin_(rows.begin),
      rows_(rows.end - rows.begin),
      keys_(attention::key_memory(a, part), step.slot(begin_), head_),
      values_(attention::value_memory(a, part), step.slot(begin_), head_) {
  const uint32_t dim = a.kv.k.dim;
  for (uint32_t row = begin_; row < rows.end; ++row) {
    const Spots spots = step.spots(row, head_);
    sinks_ = std::max(sinks_, spots.sinks);
    first_ = std::min(first_, spots.first);
    end_ = std::max(end_, spots.end);
    const float* q = attention::query_of(a, part, row, head_ * a.group);
    float* to = w_.q + size_t{row - begin_} * a.group * dim;
    if (a.rotated == 0) {
      for (uint32_t i = 0; i < a.group * dim; ++i) to[i] = q[i] * a.scale;
    } else {
      std::copy_n(q, a.group * dim, to);
      for (uint32_t i = 0; i < a.group; ++i) turn_query(to + size_t{i} * dim, row);
    }
  }
  if (!step.by_cell() && step.branches(begin_)) branches_from_ = step.kv_len(begin_);
}

// Turns a query by the angles of its index, and scales it.
void Run::turn_query(float* q, uint32_t row) const {
  const sdk::RopePairs pairs = a_.rope_pairs();
  const float* angle = rope_ + size_t{step_.position(row) - step_.shift(row)} * pairs.half() * 2;
  for (uint32_t i = 0; i < pairs.half(); ++i) {
    float &first = q[pairs.first(i)], &second = q[pairs.second(i)];
    const float c = angle[2 * i], s = angle[2 * i + 1], u = first, v = second;
    first = u * c - v * s;
    second = u * s + v * c;
  }
  for (uint32_t d = 0; d < a_.kv.k.dim; ++d) q[d] *= a_.scale;
}

void Run::split(uint32_t index) {
  std::fill_n(w_.state, queries(), Softmax{});
  std::fill_n(w_.sum, size_t{queries()} * a_.padded, 0.0f);
  const uint32_t from = index * a_.split, to = std::min(from + a_.split, end_);
  for (uint32_t at = from; at < to; at += kKeys) {
    if (!skips(at, at + kKeys)) block(at);
  }
}

void Run::block(uint32_t at) {
  if (branches_from_ == UINT32_MAX || at + kKeys <= branches_from_) return attend_block(at, 0, rows_);
  for (uint32_t i = 0; i < rows_; ++i) attend_block(at, i, i + 1);
}

// Rows [low, high) become those that see anything of the block; their scores are in the workspace. Returns what any of
// them sees.
uint64_t Run::score_block(uint32_t at, uint32_t& low, uint32_t& high) {
  uint64_t seen = 0;
  uint32_t from = high, to = low;
  for (uint32_t i = low; i < high; ++i) {
    w_.visible[i] = step_.visible(begin_ + i, head_, at);
    if (w_.visible[i] == 0) continue;
    from = std::min(from, i);
    to = i + 1;
    seen |= w_.visible[i];
  }
  low = from;
  high = to;
  if (seen == 0) return 0;
  find_cells(at, seen, begin_ + low);
  const uint32_t g = a_.group, dim = a_.kv.k.dim, n = (high - low) * g;
  float *scores = w_.scores + size_t{low} * g * kKeys, *q = w_.q + size_t{low} * g * dim;
  few_ = n <= kFewQueries && a_.rotated == 0 && a_.kv.k.group == 0;
  if (few_) {
    k_.scores_of_few(cached_keys(), q, n, scores);
  } else {
    k_.load_keys(cached_keys(), w_.keys);
    if (a_.kv.k.group != 0) scale_channels();
    if (a_.rotated != 0) load_turned_keys(at, seen, low);
    k_.scores(q, n, dim, w_.keys, scores);
  }
  if (a_.softcap != 0) k_.soft_cap(scores, n, a_.softcap);
  return seen;
}

// Finds the cells of a block's spots, for rows that agree about them.
void Run::find_cells(uint32_t at, uint64_t seen, uint32_t row) {
  low_spot_ = static_cast<uint32_t>(std::countr_zero(seen));
  end_spot_ = kKeys - static_cast<uint32_t>(std::countl_zero(seen));
  const bool plain = a_.kv.rule == TENON_POS_LINEAR && branches_from_ == UINT32_MAX;
  if (branches_from_ != UINT32_MAX && at + kKeys > branches_from_) {
    const uint32_t depth = step_.position(row) + 1 - branches_from_;
    uint32_t i = depth;
    step_.for_path(row, [&](uint32_t r) {
      if (i > 0) w_.path[--i] = step_.place(r, head_);
    });
  }
  for (uint32_t i = low_spot_, cell = 0; i < end_spot_; ++i) {
    const uint32_t spot = at + i;
    if (plain) {
      cell = spot;
    } else if ((seen >> i & 1) != 0) {
      cell = spot >= branches_from_ ? w_.path[spot - branches_from_] : a_.kv.cell_of(spot);
    }
    cell_[i] = cell;
    key_[i] = keys_.at(cell);
    value_[i] = values_.at(cell);
  }
  if (a_.kv.k.scale == 0) return;
  for (uint32_t i = low_spot_; i < end_spot_; ++i) {
    key_scale_[i] = keys_.scale(cell_[i]);
    value_scale_[i] = values_.scale(cell_[i]);
  }
}

// Keys whose groups have zeros and steps become what they stand for: until now they are their codes - 8.
void Run::scale_channels() const {
  const uint32_t dim = a_.kv.k.dim;
  for (uint32_t first = low_spot_, end = 0; first < end_spot_; first = end) {
    end = std::min(end_spot_, first + a_.kv.k.group - cell_[first] % a_.kv.k.group);
    for (uint32_t d = 0; d < dim; ++d) {
      const sdk::KvChannel channel = keys_.channel(cell_[first], d);
      const float zero = channel.decode(8);
      float* key = w_.keys + size_t{d} * kKeys;
      for (uint32_t i = first; i < end; ++i) key[i] = key[i] * channel.step + zero;
    }
  }
}

// Turns a block's converted keys by the angles of their indices. low: the first row that sees anything of it.
void Run::load_turned_keys(uint32_t at, uint64_t seen, uint32_t low) {
  const void* angle[kKeys];
  const uint32_t shift = step_.shift(begin_ + low), rotated = static_cast<uint32_t>(a_.rotated);
  uint32_t index = 0;
  for (uint32_t i = low_spot_; i < end_spot_; ++i) {
    if ((seen >> i & 1) != 0) {
      uint32_t row = low;
      while ((w_.visible[row] >> i & 1) == 0) ++row;
      const uint32_t p = step_.position_of(begin_ + row, head_, at + i);
      index = p < a_.kv.sinks ? p : p - shift;
    }
    angle[i] = rope_ + size_t{index} * rotated;
  }
  const CachedRows angles{.codec = TENON_F32,
                          .dim = rotated,
                          .first = low_spot_,
                          .end = end_spot_,
                          .row = angle,
                          .scale = nullptr,
                          .ahead = 0};
  k_.load_keys(angles, w_.angles);
  k_.turn(w_.keys, w_.angles, rotated / 2, a_.pairing);
}

void Run::attend_block(uint32_t at, uint32_t low, uint32_t high) {
  const uint64_t seen = score_block(at, low, high);
  if (seen == 0) return;
  const uint32_t g = a_.group;
  if (!few_) k_.load_values(cached_values(), a_.padded, w_.values);
  for (uint32_t i = low * g; i < high * g; ++i) {
    w_.shrink[i] = w_.visible[i / g] == 0 ? 1
                                          : k_.softmax(w_.scores + size_t{i} * kKeys, w_.visible[i / g],
                                                       &w_.state[i].maximum, &w_.state[i].sum);
  }
  for (uint32_t i = low; i < high;) {
    uint32_t next = i + 1;
    while (next < high && w_.visible[next] == w_.visible[i]) ++next;
    add_values(i * g, (next - i) * g, w_.visible[i]);
    i = next;
  }
}

// A row's unseen keys are not read either: its sums do not depend on what later rows left there.
void Run::add_values(uint32_t query, uint32_t n, uint64_t visible) {
  while (visible != 0) {
    const auto first = static_cast<uint32_t>(std::countr_zero(visible));
    const uint32_t end = first + static_cast<uint32_t>(std::countr_one(visible >> first));
    const ValueSums sums{.weight = w_.scores + size_t{query} * kKeys,
                         .shrink = w_.shrink + query,
                         .n = n,
                         .padded = a_.padded,
                         .sum = w_.sum + size_t{query} * a_.padded};
    if (few_) {
      CachedRows values = cached_values();
      values.first = first;
      values.end = end;
      k_.accumulate_few(sums, values);
    } else {
      k_.accumulate(sums, w_.values, first, end);
    }
    visible &= ~bits_below(end);
    std::fill_n(w_.shrink + query, n, 1.0f);
  }
}

CachedRows Run::cached_keys() const {
  return {.codec = a_.kv.k.codec,
          .dim = a_.kv.k.dim,
          .first = low_spot_,
          .end = end_spot_,
          .row = key_,
          .scale = key_scale_,
          .ahead = a_.most_spans != 0 ? 0 : kKeys * keys_.stride()};
}

CachedRows Run::cached_values() const {
  return {.codec = a_.kv.v.codec,
          .dim = a_.kv.v.dim,
          .first = low_spot_,
          .end = end_spot_,
          .row = value_,
          .scale = value_scale_,
          .ahead = a_.most_spans != 0 ? 0 : kKeys * values_.stride()};
}

uint32_t Run::all_scores(uint32_t* cell, float* scores, size_t stride) {
  uint32_t n = 0;
  for (uint32_t at = 0; at < end_; at += kKeys) {
    if (skips(at, at + kKeys)) continue;
    uint32_t low = 0, high = 1;
    for (uint64_t seen = score_block(at, low, high); seen != 0; seen &= seen - 1) {
      const auto spot = static_cast<uint32_t>(std::countr_zero(seen));
      cell[n] = cell_[spot];
      for (uint32_t i = 0; i < a_.group; ++i) scores[i * stride + n] = w_.scores[size_t{i} * kKeys + spot];
      ++n;
    }
  }
  return n;
}

}  // namespace tenon::flash
