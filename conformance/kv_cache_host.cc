// This drives a cache as a host does, beside a naive one: a list of tokens by slot with their keys and values, against
// which each cell of each view is compared.
#include "conformance/kv_cache_host.h"

#include <algorithm>
#include <cmath>

#include "conformance/suite.h"
#include "tenon/sdk/hadamard.h"
#include "tenon/sdk/kv_layout.h"
#include "tenon/sdk/recorder.h"

namespace tenon::conformance {
namespace {

constexpr int64_t kGap = 5;  // so many floats are between rows of k and v

// Returns values of every size, ties between two neighbours among them.
float random_value(std::mt19937_64& random) {
  const float sign = random() % 2 != 0 ? -1.0f : 1.0f;
  switch (random() % 8) {
    case 0:
      return sign * 0.0f;
    case 1:
      return sign *
             std::ldexp(1.0f + static_cast<float>(random() % 4096) / 2048.0f, -20 + static_cast<int>(random() % 12));
    case 2:
      return sign * (1.0f + static_cast<float>(random() % 64) / 2048.0f);  // these are ties of f16
    case 3:
      return sign * (1.0f + static_cast<float>(random() % 64) / 256.0f);  // these are ties of bf16
    case 4:
      return sign * (65472.0f + static_cast<float>(random() % 64));  // f16 ends there
    case 5:
      return sign * std::ldexp(1.0f, -24 - static_cast<int>(random() % 4)) * 1.5f;
    default:
      return sign * static_cast<float>(random() % 1000003) / 333333.0f;
  }
}

tenon_kv_geometry geometry(uint32_t layer, uint32_t heads, uint32_t k_dim, uint32_t v_dim, uint32_t window) {
  auto g = sdk::abi_struct<tenon_kv_geometry>();
  g.layer = layer;
  g.heads = heads;
  g.k_dim = k_dim;
  g.v_dim = v_dim;
  g.window = window;
  return g;
}

}  // namespace

KvCacheHost::KvCacheHost(const Component& cache, const Shape& shape, bool every_token)
    : cache_(cache),
      shape_(shape),
      every_token_(every_token),
      host_(OpRunner::bounds({.rows = shape.rows, .seqs = shape.seqs, .kv_len = shape.capacity, .slots = shape.slots}),
            cache.device()),
      codec_(TENON_F32) {
  layers_ = {{.heads = 2, .k_dim = 8, .v_dim = 8},
             {.heads = 3, .k_dim = 5, .v_dim = 19, .window = shape.window},
             {.heads = 1, .k_dim = 64, .v_dim = 32, .window = shape.window * 2}};
  layers_.resize(shape.layers);
  std::vector<tenon_kv_geometry> geometries;
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    Layer& l = layers_[i];
    l.by_slot.resize(shape.slots);
    geometries.push_back(geometry(i, l.heads, l.k_dim, l.v_dim, l.window));
  }
  std::vector<const tenon_kv_geometry*> pointers;
  for (const auto& g : geometries) pointers.push_back(&g);
  footprint_ = sdk::abi_struct<tenon_footprint>();
  auto claim = sdk::abi_struct<tenon_kv_view>();
  const tenon_bounds& b = *host_.recorder()->bounds;
  for (const auto* g : pointers) {
    if (table().claim(self(), g, &b, &claim, &why_) != TENON_OK) fail(text_);
  }
  codec_ = claim.format->k.codec;
  scale_ = claim.format->k.scale;
  hadamard_ = (claim.flags & sdk::kKvHadamard) != 0;
  if (table().plan(self(), pointers.data(), static_cast<uint32_t>(pointers.size()), &b, &footprint_, &why_) !=
      TENON_OK) {
    fail(text_);
  }
  record();
}

void KvCacheHost::record() {
  std::vector<tenon_tid> stores;
  std::vector<void*> addresses;
  for (uint32_t i = 0; i < footprint_.n_stores; ++i) {
    stores.push_back(host_.store(footprint_.store_bytes[i]));
    addresses.push_back(host_.data(stores.back()));
  }
  const auto check = [&](tenon_status status) {
    if (status != TENON_OK) fail(text_);
  };
  check(table().attach(self(), addresses.data(), host_.device().queue(), &why_));
  auto s = sdk::abi_struct<tenon_kv_stores>();
  s.store = stores.data();
  if (table().record_begin != nullptr) check(table().record_begin(self(), &s, host_.recorder(), &why_));
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    Layer& l = layers_[i];
    const auto input = [&](uint32_t dim) {
      tenon_tensor t = sdk::tensor(TENON_F32, {shape_.rows, int64_t{l.heads} * dim});
      t.stride[0] += kGap * 4;
      return host_.strided_input(t, nullptr);
    };
    l.k = input(l.k_dim);
    l.v = input(l.v_dim);
    l.view = sdk::abi_struct<tenon_kv_view>();
    check(table().record_append(self(), i, &s, l.k, l.v, host_.recorder(), &why_));
    check(table().view(self(), i, &s, host_.recorder(), &l.view, &why_));
    if (l.view.most_spans != 0) {
      if (table().record_choice == nullptr) fail("has spans, but no record_choice that chooses them");
      l.q = input(kGroup * l.k_dim);
      check(table().record_choice(self(), i, &s, l.q, host_.recorder(), &why_));
    }
    for (const tenon_format codec : {TENON_F32, TENON_F16, TENON_BF16}) {
      const tenon_kv_format want = sdk::kv_format(codec, TENON_FORMAT_NONE, l.view.format->rotated != 0);
      tenon_kv_view& copy = l.copies.emplace_back(sdk::abi_struct<tenon_kv_view>());
      check(table().record_dequant(self(), i, &s, &want, host_.recorder(), &copy, &why_));
      if (copy.format->k.codec != codec) fail("makes a copy in another format than asked for");
    }
  }
  check(table().record_commit(self(), &s, host_.recorder(), &why_));
}

uint32_t KvCacheHost::length(uint32_t slot) const {
  return static_cast<uint32_t>(layers_[0].by_slot[slot].size());
}

std::string KvCacheHost::run_step(const std::vector<Append>& appends, std::mt19937_64& random) {
  for (int32_t& s : host_.step_i32(TENON_STEP_SLOT)) s = -1;
  for (int32_t& p : host_.step_i32(TENON_STEP_POS)) p = 0;
  for (uint32_t slot = 0; slot < shape_.slots; ++slot) {
    host_.step_i32(TENON_STEP_KV_LEN)[slot] = static_cast<int32_t>(length(slot));
  }
  std::vector<std::pair<uint32_t, uint32_t>> rows;  // each has a slot and a position
  std::vector<std::span<const int32_t>> texts;      // the text of each row goes to its token
  for (uint32_t i = 0; i < appends.size(); ++i) {
    const auto [slot, n, text] = appends[i];
    host_.step_i32(TENON_STEP_SEQ_SLOT)[i] = static_cast<int32_t>(slot);
    host_.step_i32(TENON_STEP_SEQ_ROW)[i] = static_cast<int32_t>(rows.size());
    if (table().reserve(self(), slot, length(slot) + n, &why_) != TENON_OK) return text_;
    for (uint32_t j = 0; j < n; ++j) {
      rows.emplace_back(slot, length(slot) + j);
      texts.push_back(text.empty() ? text : text.first(length(slot) + j + 1));
    }
  }
  host_.step_i32(TENON_STEP_SEQ_ROW)[appends.size()] = static_cast<int32_t>(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    host_.step_i32(TENON_STEP_SLOT)[r] = static_cast<int32_t>(rows[r].first);
    host_.step_i32(TENON_STEP_POS)[r] = host_.step_i32(TENON_STEP_PLACE)[r] = static_cast<int32_t>(rows[r].second);
  }
  host_.set_live(static_cast<uint32_t>(rows.size()), static_cast<uint32_t>(appends.size()));
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    Layer& l = layers_[layer];
    const auto fill = [&](tenon_tid id, uint32_t dim, bool value) {
      const size_t columns = size_t{l.heads} * dim;
      std::vector<float> all(host_.extent(id) / sizeof(float));
      float* values = all.data();
      for (size_t r = 0; r < shape_.rows; ++r, values += columns + kGap) {
        for (size_t c = 0; c < columns; ++c) values[c] = next_value(random);
        if (r >= rows.size()) continue;
        if (!texts[r].empty()) std::ranges::copy(said_by(texts[r], layer, value, columns), values);
        auto& tokens = l.by_slot[rows[r].first];
        tokens.resize(std::max<size_t>(tokens.size(), rows[r].second + 1));
        keep(l, tokens[rows[r].second], value, {values, values + columns});
      }
      host_.write(id, all.data());
    };
    fill(l.k, l.k_dim, false);
    fill(l.v, l.v_dim, true);
    if (l.q == 0) continue;
    std::vector<float> queries(host_.extent(l.q) / sizeof(float));
    for (float& x : queries) x = next_value(random);
    host_.write(l.q, queries.data());
  }
  if (table().publish(self(), host_.device().queue(), &why_) != TENON_OK) return text_;
  return host_.run(random());
}

float KvCacheHost::next_value(std::mt19937_64& random) const {
  return shape_.tame ? static_cast<float>(random() % 6001) / 1000.0F - 3 : random_value(random);
}

std::vector<float> KvCacheHost::said_by(std::span<const int32_t> text, uint32_t layer, bool value, size_t columns) {
  std::vector<uint32_t> seed(text.begin(), text.end());
  seed.insert(seed.end(), {layer, value ? 1U : 0U});
  std::seed_seq sequence(seed.begin(), seed.end());
  std::mt19937_64 random(sequence);
  std::vector<float> row(columns);
  for (float& x : row) x = random_value(random);
  return row;
}

tenon_status KvCacheHost::adopt(uint32_t slot, std::span<const int32_t> text, uint32_t& kv_len) {
  const tenon_status status =
      table().adopt(self(), slot, text.data(), static_cast<uint32_t>(text.size()), &kv_len, &why_);
  if (status != TENON_OK) return status;
  for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
    Layer& l = layers_[layer];
    l.by_slot[slot].resize(kv_len);
    for (uint32_t p = 0; p < kv_len; ++p) {
      Token& token = l.by_slot[slot][p];
      for (const bool value : {false, true}) {
        const uint32_t dim = value ? l.v_dim : l.k_dim;
        keep(l, token, value, said_by(text.first(p + 1), layer, value, size_t{l.heads} * dim));
      }
    }
  }
  return status;
}

std::string KvCacheHost::step(const std::vector<Append>& appends, std::mt19937_64& random) {
  const std::string fault = run_step(appends, random);
  if (!fault.empty()) return fault;
  if (layers_.back().view.most_spans != 0) {
    if (const std::string wrong = check_choice(appends); !wrong.empty()) return wrong;
  }
  for (const Layer& l : layers_) {
    for (uint32_t slot = 0; slot < shape_.slots; ++slot) {
      const std::string wrong = compare_view(l, l.view, slot);
      if (!wrong.empty()) return "view: " + wrong;
    }
    for (const auto& copy : l.copies) {
      for (const Append& a : appends) {
        const std::string wrong = compare_view(l, copy, a.slot);
        if (!wrong.empty()) return std::string("copy in ") + tenon_format_name(copy.format->k.codec) + ": " + wrong;
      }
    }
  }
  return {};
}

void KvCacheHost::keep(const Layer& layer, Token& token, bool value, const std::vector<float>& row) const {
  const uint32_t dim = value ? layer.v_dim : layer.k_dim;
  std::vector<float>&coded = value ? token.v : token.k, &tail = value ? token.tail_v : token.tail_k;
  coded = tail = row;
  for (uint32_t h = 0; h < layer.heads; ++h) {
    stored(&coded[size_t{h} * dim], dim);
    if (hadamard_) sdk::rotate_head(&tail[size_t{h} * dim], dim);
  }
  for (float& x : tail) x = rounded(TENON_F16, x);
}

uint32_t KvCacheHost::first_seen(uint32_t window, uint32_t slot) const {
  const auto row = static_cast<uint32_t>(host_.step_i32(TENON_STEP_KV_LEN)[slot]);
  return window != 0 && row >= window ? row + 1 - window : 0;
}

std::map<uint32_t, uint32_t> KvCacheHost::cells_of(uint32_t window, const tenon_kv_view& view, uint32_t slot,
                                                   uint32_t head) const {
  const auto before = static_cast<uint32_t>(host_.step_i32(TENON_STEP_KV_LEN)[slot]);
  const bool apart = (view.flags & TENON_KV_HEADS_APART) != 0;
  std::map<uint32_t, uint32_t> cells;
  if (view.pos_rule == TENON_POS_LINEAR) {
    for (uint32_t c = 0; c < before; ++c) cells[c] = c;
  } else if (view.pos_rule == TENON_POS_RING) {
    for (uint32_t c = 0; c < std::min(before, view.sinks + view.ring); ++c) {
      cells[c] = c < view.sinks ? c : c + (before - 1 - c) / view.ring * view.ring;
    }
  } else {
    const auto used = host_.read<int32_t>(view.used), pages = host_.read<int32_t>(view.pages);
    const auto pos = host_.read<int32_t>(view.pos);
    const size_t row = apart ? size_t{slot} * view.heads + head : slot;
    for (uint32_t c = 0; c < static_cast<uint32_t>(used[row]); ++c) {
      const auto page = static_cast<size_t>(pages[row * view.columns + c / view.page_cells]);
      const size_t line = apart ? page * view.heads + head : page;
      const int32_t p = pos[line * view.page_cells + c % view.page_cells];
      if (p >= 0 && static_cast<uint32_t>(p) < before) cells[c] = static_cast<uint32_t>(p);
    }
  }
  const sdk::KvLayout layout = sdk::kv_layout(view);
  const uint32_t first = first_seen(window, slot);
  std::erase_if(cells, [&](const auto& cell) { return cell.second < first || !layout.in_window(cell.second, before); });
  // The place of a row of the step is no old cell.
  const auto place = host_.read<int32_t>(view.place);
  for (uint32_t r = 0; r < static_cast<uint32_t>(host_.step_i32(TENON_STEP_LIVE)[0]); ++r) {
    if (host_.step_i32(TENON_STEP_SLOT)[r] != static_cast<int32_t>(slot)) continue;
    const auto cell = static_cast<uint32_t>(place[apart ? size_t{r} * view.heads + head : r]);
    cells[cell] = static_cast<uint32_t>(host_.step_i32(TENON_STEP_POS)[r]);
  }
  return cells;
}

std::vector<uint32_t> KvCacheHost::positions(uint32_t layer, uint32_t slot, uint32_t head) const {
  std::vector<uint32_t> all;
  for (const auto& [cell, position] : cells_of(layers_[layer].window, layers_[layer].view, slot, head))
    all.push_back(position);
  std::ranges::sort(all);
  return all;
}

void KvCacheHost::weigh(const Weight& f) {
  for (uint32_t i = 0; i < layers_.size(); ++i) {
    const tenon_kv_view& view = layers_[i].view;
    if (view.weight_rows == 0) continue;
    auto weights = host_.read<float>(view.weights);
    for (uint32_t s = 0; s < static_cast<uint32_t>(host_.step_i32(TENON_STEP_LIVE)[1]); ++s) {
      const auto slot = static_cast<uint32_t>(host_.step_i32(TENON_STEP_SEQ_SLOT)[s]);
      for (uint32_t h = 0; h < view.heads; ++h) {
        float* line = &weights[(size_t{slot} * view.heads + h) * view.columns * view.page_cells];
        for (const auto& [cell, position] : cells_of(layers_[i].window, view, slot, h))
          line[cell] = f(i, slot, h, position);
      }
    }
    host_.write(view.weights, weights.data());
  }
}

std::vector<int32_t> KvCacheHost::chosen(uint32_t row, uint32_t head) const {
  const tenon_kv_view& view = layers_.back().view;
  const auto all = host_.read<int32_t>(view.chosen);
  const size_t line = (size_t{row} * view.heads + head) * (1 + view.most_spans);
  if (all[line] < 0 || static_cast<uint32_t>(all[line]) > view.most_spans) return {all[line]};
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(line) + 1;
  return {first, first + all[line]};
}

std::vector<float> KvCacheHost::queries(uint32_t row, uint32_t head) const {
  const Layer& l = layers_.back();
  const auto all = host_.read<float>(l.q);
  const size_t columns = size_t{kGroup} * l.k_dim;
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(row * (l.heads * columns + kGap) + head * columns);
  return {first, first + static_cast<std::ptrdiff_t>(columns)};
}

std::span<const float> KvCacheHost::key(uint32_t slot, uint32_t position, uint32_t head) const {
  const Layer& l = layers_.back();
  return std::span(l.by_slot[slot][position].k).subspan(size_t{head} * l.k_dim, l.k_dim);
}

std::string KvCacheHost::check_choice(const std::vector<Append>& appends) const {
  const tenon_kv_view& view = layers_.back().view;
  uint32_t row = 0;
  for (const Append& a : appends) {
    for (uint32_t i = 0; i < a.rows * view.heads; ++i) {
      const std::vector<int32_t> list = chosen(row + i / view.heads, i % view.heads);
      const auto position = static_cast<uint32_t>(host_.step_i32(TENON_STEP_POS)[row + i / view.heads]);
      const std::string of_row = " for row " + std::to_string(i / view.heads) + " of " + std::to_string(a.rows) +
                                 ", head " + std::to_string(i % view.heads);
      if (a.rows > view.chosen_rows) {
        if (list != std::vector<int32_t>{-1}) return "chooses spans" + of_row + ", which sees everything";
        continue;
      }
      for (size_t s = 0; s < list.size(); ++s) {
        const bool in_order = list[s] > (s == 0 ? -1 : list[s - 1]);
        if (in_order && static_cast<uint32_t>(list[s]) <= position / view.span_cells) continue;
        return "chooses span " + std::to_string(list[s]) + of_row + ", at position " + std::to_string(position);
      }
    }
    row += a.rows;
  }
  return {};
}

tenon_status KvCacheHost::fork(uint32_t from, uint32_t to, uint32_t kv_len) {
  const tenon_status status = table().fork(self(), from, to, kv_len, host_.device().queue(), &why_);
  if (status != TENON_OK) return status;
  for (Layer& l : layers_) {
    auto tokens = l.by_slot[from];
    tokens.resize(kv_len);
    l.by_slot[to] = tokens;
  }
  return status;
}

tenon_status KvCacheHost::truncate(uint32_t slot, uint32_t kv_len) {
  const tenon_status status = table().truncate(self(), slot, kv_len, &why_);
  if (status != TENON_OK) return status;
  for (Layer& l : layers_) l.by_slot[slot].resize(kv_len);
  return status;
}

std::vector<std::byte> KvCacheHost::export_sequence(uint32_t slot) const {
  uint64_t bytes = 0, again = 0;
  if (table().export_sequence(self(), slot, length(slot), host_.device().queue(), nullptr, &bytes, nullptr) != TENON_OK)
    return {};
  std::vector<std::byte> out(bytes);
  if (table().export_sequence(self(), slot, length(slot), host_.device().queue(), out.data(), &again, nullptr) !=
      TENON_OK)
    return {};
  return again == bytes ? out : std::vector<std::byte>{};
}

tenon_status KvCacheHost::import_sequence(uint32_t slot, uint32_t kv_len, const std::vector<std::byte>& bytes,
                                          const KvCacheHost& from, uint32_t from_slot) {
  const tenon_status status =
      table().import_sequence(self(), slot, kv_len, host_.device().queue(), bytes.data(), bytes.size(), &why_);
  if (status != TENON_OK) return status;
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].by_slot[slot] = from.layers_[i].by_slot[from_slot];
  return status;
}

}  // namespace tenon::conformance
