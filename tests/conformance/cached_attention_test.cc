// Keys and values that a cache has coded, step after step, are read alike by attention's own kernels and by the
// formula, over the cache as it is and over its copy in f32: shapes for which a GPU has kernels of its own. Where there
// is no GPU, its cases are skipped by name.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>

#include "support/component.h"
#include "support/op_runner.h"
#include "tenon/abi/attention.h"
#include "tenon/abi/kv_cache.h"
#include "tenon/sdk/kv_codec.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

struct Shape {
  uint32_t q_heads = 8, kv_heads = 8, k_dim = 128, v_dim = 128, window = 0;
  float softcap = 0;
  std::vector<Setting> cache = {{"rotation", std::string("none")}};  // it stands beside keys = channel
};
struct Bounds {
  uint32_t rows = 16, seqs = 1, rows_per_seq = 0, capacity = 1024;
};

// This is a layer over an int4 cache with keys by channel, whose attention is done by every reader. Sequence i has slot
// i.
class Layer {
 public:
  Layer(const std::string& device, const Shape& shape, const Bounds& bounds)
      : shape_(shape),
        cache_(open(device, "kv_cache", "int4", with_channels(shape.cache))),
        flash_(open(device, "attention", "flash")),
        reference_(open(device, "attention", "reference")),
        host_(OpRunner::bounds({.rows = bounds.rows,
                                .seqs = bounds.seqs,
                                .kv_len = bounds.capacity,
                                .slots = bounds.seqs,
                                .rows_per_seq = bounds.rows_per_seq}),
              *test::device(device)),
        rows_(bounds.rows),
        length_(bounds.seqs, 0) {
    stores_ = sdk::abi_struct<tenon_kv_stores>();
    plan();
    record();
  }

  uint32_t length(uint32_t slot) const { return length_[slot]; }

  // Takes a step that appends so many rows to each sequence. Then what the readers make of them is the same, but for
  // their rounding.
  void step(const std::vector<uint32_t>& appends, double within) {
    fill_state(appends);
    for (const auto& [id, columns, size] :
         {std::tuple{k_, shape_.kv_heads * shape_.k_dim, 2.0F}, std::tuple{v_, shape_.kv_heads * shape_.v_dim, 1.0F},
          std::tuple{q_, shape_.q_heads * shape_.k_dim, 3.0F}}) {
      write(id, columns, size);
    }
    check(table().publish(cache_->self(), host_.device().queue(), &why_));
    ASSERT_EQ(host_.run(random_()), "");
    for (size_t slot = 0; slot < appends.size(); ++slot) length_[slot] += appends[slot];
    compare(within);
  }

  std::vector<std::byte> exported(uint32_t slot) {
    uint64_t bytes = 0;
    check(table().export_sequence(cache_->self(), slot, length_[slot], queue(), nullptr, &bytes, &why_));
    std::vector<std::byte> out(bytes);
    check(table().export_sequence(cache_->self(), slot, length_[slot], queue(), out.data(), &bytes, &why_));
    return out;
  }
  void import(uint32_t slot, uint32_t kv_len, const std::vector<std::byte>& from) {
    check(table().import_sequence(cache_->self(), slot, kv_len, queue(), from.data(), from.size(), &why_));
    length_[slot] = kv_len;
  }
  void cut(uint32_t slot, uint32_t kv_len) {
    check(table().truncate(cache_->self(), slot, kv_len, &why_));
    length_[slot] = kv_len;
  }

 private:
  static std::unique_ptr<conformance::Component> open(const std::string& device, const std::string& kind,
                                                      const std::string& name,
                                                      const std::vector<Setting>& settings = {}) {
    return std::make_unique<conformance::Component>(plugins().load(kind, name, device), *test::device(device),
                                                    settings);
  }
  static std::vector<Setting> with_channels(std::vector<Setting> settings) {
    settings.emplace_back("keys", std::string("channel"));
    return settings;
  }
  const tenon_kv_cache& table() const { return cache_->table<tenon_kv_cache>(); }
  void* queue() const { return host_.device().queue(); }
  void check(tenon_status status) const {
    if (status != TENON_OK) throw std::runtime_error(text_);
  }

  void plan() {
    auto g = sdk::abi_struct<tenon_kv_geometry>();
    g.heads = shape_.kv_heads;
    g.k_dim = shape_.k_dim;
    g.v_dim = shape_.v_dim;
    g.window = shape_.window;
    const tenon_kv_geometry* layers[] = {&g};
    prototype_ = sdk::abi_struct<tenon_kv_view>();
    check(table().claim(cache_->self(), &g, host_.recorder()->bounds, &prototype_, &why_));
    auto footprint = sdk::abi_struct<tenon_footprint>();
    check(table().plan(cache_->self(), layers, 1, host_.recorder()->bounds, &footprint, &why_));
    std::vector<void*> addresses;
    for (uint32_t i = 0; i < footprint.n_stores; ++i) {
      store_ids_.push_back(host_.store(footprint.store_bytes[i]));
      addresses.push_back(host_.data(store_ids_.back()));
    }
    check(table().attach(cache_->self(), addresses.data(), queue(), &why_));
    stores_.store = store_ids_.data();
  }

  void record() {
    const auto input = [&](uint32_t columns) { return host_.input(TENON_F32, {rows_, columns}, nullptr); };
    k_ = input(shape_.kv_heads * shape_.k_dim);
    v_ = input(shape_.kv_heads * shape_.v_dim);
    q_ = input(shape_.q_heads * shape_.k_dim);
    if (table().record_begin != nullptr) {
      check(table().record_begin(cache_->self(), &stores_, host_.recorder(), &why_));
    }
    check(table().record_append(cache_->self(), 0, &stores_, k_, v_, host_.recorder(), &why_));
    view_ = copy_ = sdk::abi_struct<tenon_kv_view>();
    check(table().view(cache_->self(), 0, &stores_, host_.recorder(), &view_, &why_));
    read(*flash_, prototype_, view_);
    if (!host_.device().walks()) read(*reference_, prototype_, view_);  // the CPU's reads f32 alone
    const tenon_kv_format f32 = sdk::kv_format(TENON_F32);
    check(table().record_dequant(cache_->self(), 0, &stores_, &f32, host_.recorder(), &copy_, &why_));
    read(*reference_, copy_, copy_);
  }
  void read(const conformance::Component& attention, const tenon_kv_view& prototype, const tenon_kv_view& view) {
    const auto none = sdk::abi_struct<tenon_chain>();
    auto a = sdk::abi_struct<tenon_attn>();
    a.q_heads = shape_.q_heads;
    a.kv_heads = shape_.kv_heads;
    a.k_dim = shape_.k_dim;
    a.v_dim = shape_.v_dim;
    a.window = shape_.window;
    a.scale = 1 / std::sqrt(static_cast<float>(shape_.k_dim));
    a.softcap = shape_.softcap;
    a.pro = &none;
    auto claim = sdk::abi_struct<tenon_claim>();
    const auto& t = attention.table<tenon_attention>();
    check(t.claim(attention.self(), &a, &prototype, host_.recorder()->bounds, &claim, &why_));
    auto call = sdk::abi_struct<tenon_attn_call>();
    call.q = q_;
    call.out = host_.output(TENON_F32, {rows_, shape_.q_heads * shape_.v_dim});
    call.kv = &view;
    call.claim = &claim;
    call.pro = &none;
    check(t.record(attention.self(), &a, &call, host_.recorder(), &why_));
    outs_.push_back(call.out);
  }

  void fill_state(const std::vector<uint32_t>& appends) {
    std::ranges::fill(host_.step_i32(TENON_STEP_SLOT), -1);
    uint32_t row = 0, seqs = 0;
    for (uint32_t slot = 0; slot < appends.size(); ++slot) {
      host_.step_i32(TENON_STEP_KV_LEN)[slot] = static_cast<int32_t>(length_[slot]);
      if (appends[slot] == 0) continue;
      check(table().reserve(cache_->self(), slot, length_[slot] + appends[slot], &why_));
      host_.step_i32(TENON_STEP_SEQ_SLOT)[seqs] = static_cast<int32_t>(slot);
      host_.step_i32(TENON_STEP_SEQ_ROW)[seqs++] = static_cast<int32_t>(row);
      for (uint32_t i = 0; i < appends[slot]; ++i, ++row) {
        host_.step_i32(TENON_STEP_SLOT)[row] = static_cast<int32_t>(slot);
        host_.step_i32(TENON_STEP_POS)[row] = host_.step_i32(TENON_STEP_PLACE)[row] =
            static_cast<int32_t>(length_[slot] + i);
        host_.step_i32(TENON_STEP_PARENT)[row] = i == 0 ? -1 : static_cast<int32_t>(row) - 1;
      }
    }
    host_.step_i32(TENON_STEP_SEQ_ROW)[seqs] = static_cast<int32_t>(row);
    host_.set_live(row, seqs);
    live_ = row;
  }
  // Writes numbers up to `size` that fp16 has. Every ninth column of keys is far from 0, all on one side.
  void write(tenon_tid id, uint32_t columns, float size) {
    std::vector<float> all(size_t{rows_} * columns);
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = std::round(size * (static_cast<float>(random_() % 2001) / 1000.0F - 1) * 256) / 256;
      if (id == k_ && i % columns % 9 == 4) all[i] += i % 2 == 0 ? 12.0F : -12.0F;
    }
    host_.write(id, all.data());
  }

  // The formula's result over the copy comes last.
  void compare(double within) {
    const std::vector<float> want = host_.f32(outs_.back());
    const size_t columns = size_t{shape_.q_heads} * shape_.v_dim;
    for (size_t reader = 0; reader + 1 < outs_.size(); ++reader) {
      const std::vector<float> got = host_.f32(outs_[reader]);
      for (size_t i = 0; i < live_ * columns; ++i) {
        ASSERT_NEAR(got[i], want[i], reader == 0 ? within : 1e-5)
            << "reader " << reader << ", row " << i / columns << " of " << live_ << " at position "
            << host_.step_i32(TENON_STEP_POS)[i / columns] << ", head " << i % columns / shape_.v_dim << ", dimension "
            << i % shape_.v_dim;
      }
    }
  }

  Shape shape_;
  std::unique_ptr<conformance::Component> cache_, flash_, reference_;
  OpRunner host_;
  uint32_t rows_;
  std::vector<uint32_t> length_;  // by slot
  std::vector<tenon_tid> store_ids_, outs_;
  tenon_kv_stores stores_{};
  tenon_kv_view prototype_{}, view_{}, copy_{};
  tenon_tid k_ = 0, v_ = 0, q_ = 0;
  size_t live_ = 0;
  std::mt19937 random_{3};
  char text_[256] = "";
  tenon_reason why_{text_, sizeof(text_)};
};

class ChannelKeys : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device(GetParam()) == nullptr) GTEST_SKIP() << "there is no device " << GetParam() << " here";
  }
  static bool on_cpu() { return GetParam() == std::string("cpu"); }
  // There is left the rounding to fp16 of scores and weights, and of queries where heads are rotated.
  static double within(const Shape& s = {}) {
    if (on_cpu()) return 1e-4;
    return s.cache.empty() || s.cache.front().first != "rotation" ? 8e-3 : 4e-3;
  }
  static Layer layer(const Shape& s, const Bounds& b) { return Layer(GetParam(), s, b); }
};
INSTANTIATE_TEST_SUITE_P(All, ChannelKeys, testing::Values("cpu", "cuda"),
                         [](const auto& tested) { return std::string(tested.param); });

std::vector<Setting> groups_of(int64_t group, int64_t tail = 0) {
  return {{"rotation", std::string("none")}, {"group", group}, {"tail", tail}};
}

// A prompt of several hundred rows, its rest, and what comes after it go through the kernels for long steps.
TEST_P(ChannelKeys, OfPrompts) {
  for (const Shape& s : std::vector<Shape>{{},
                                           {.cache = {}},
                                           {.cache = groups_of(64)},
                                           {.cache = groups_of(128, 200)},
                                           {.kv_heads = 2, .k_dim = 64, .v_dim = 64},
                                           {.kv_heads = 4, .k_dim = 96, .v_dim = 64},
                                           {.kv_heads = 2, .softcap = 5},
                                           {.kv_heads = 2, .window = 150}}) {
    const uint32_t prompt = on_cpu() ? 150 : 450;
    Layer l = layer(s, {.rows = prompt, .capacity = s.window != 0 ? 2048U : 1024U});
    for (const uint32_t rows : {prompt, 1U, 130U, 27U}) l.step({rows}, within(s));
    if (s.window != 0) l.step({prompt}, within(s));  // in cells that are used again
    if (HasFatalFailure()) return;
  }
}

// Prompts stand beside sequences of few rows, which go through another kernel.
TEST_P(ChannelKeys, OfPromptsBesideFewRows) {
  const Shape s{.kv_heads = 2, .cache = groups_of(32, 40)};
  Layer l = layer(s, {.rows = 320, .seqs = 3});
  l.step({200, 100, 3}, within());
  l.step({5, 300, 1}, within());
  l.step({0, 1, 290}, within());
}

// Step after step of up to sixteen rows, over several groups and turns of the
// tail's pages, with rows that are taken back.
TEST_P(ChannelKeys, OfShortSteps) {
  for (const Shape& s : std::vector<Shape>{{.kv_heads = 2},
                                           {.kv_heads = 2, .cache = {}},
                                           {.kv_heads = 1, .cache = groups_of(64, 70)},
                                           {.q_heads = 6, .kv_heads = 2, .k_dim = 96, .v_dim = 128, .window = 100},
                                           {.q_heads = 4, .kv_heads = 4, .k_dim = 32, .v_dim = 64},
                                           {.q_heads = 4, .kv_heads = 2, .k_dim = 256, .v_dim = 256, .softcap = 5}}) {
    Layer l = layer(s, {.rows = 16, .capacity = 512});
    for (uint32_t i = 0; l.length(0) < 260; ++i) {
      l.step({std::vector<uint32_t>{16, 11, 15}[i % 3]}, within(s));
      if (i % 3 == 1) l.cut(0, l.length(0) - 5);
      if (HasFatalFailure()) return;
    }
  }
}

// Single rows follow long contexts, which are cut into splits; there are few sequences, or so many that a warp takes
// one by itself.
TEST_P(ChannelKeys, OfManySequences) {
  const std::vector<uint32_t> lengths = {40, 95, 286, on_cpu() ? 300U : 700U};
  const std::vector<uint32_t> counts =
      on_cpu() ? std::vector<uint32_t>{1, 9} : std::vector<uint32_t>{1, 9, 64, 80, 150};
  for (const Shape& s : std::vector<Shape>{{},
                                           {.kv_heads = 4, .k_dim = 64, .v_dim = 64, .cache = groups_of(128)},
                                           {.kv_heads = 2, .window = 190, .cache = groups_of(128)}}) {
    Layer prompts = layer(s, {.rows = 1121, .seqs = 4, .rows_per_seq = 700});
    prompts.step(lengths, within(s));
    for (const uint32_t seqs : counts) {
      Layer l = layer(s, {.rows = seqs, .seqs = seqs, .rows_per_seq = 1});
      for (uint32_t i = 0; i < seqs; ++i) l.import(i, lengths[(i + 3) % 4], prompts.exported((i + 3) % 4));
      for (int i = 0; i < 3; ++i) l.step(std::vector<uint32_t>(seqs, 1), within(s));
      if (HasFatalFailure()) return;
    }
  }
}

// Codes with scales in f32 are read by the formula's kernel, the newest tokens beside them as elsewhere.
TEST_P(ChannelKeys, WithScalesInF32) {
  const Shape s{.kv_heads = 2, .cache = {{"rotation", std::string("none")}, {"format", std::string("fp32_scales")}}};
  Layer l = layer(s, {.rows = 100});
  for (const uint32_t rows : {100U, 1U, 31U}) l.step({rows}, on_cpu() ? 1e-5 : within(s));
}

}  // namespace
}  // namespace tenon::test
