// The static cache on a GPU: append, copies in other formats, fork, export and import.
#include <gtest/gtest.h>

#include "attention_host.h"

namespace tenon::test {
namespace {

constexpr uint32_t kSlots = 3, kCapacity = 45, kHeads = 2, kKeyDim = 24, kValueDim = 40;
constexpr tenon_format kFormats[] = {TENON_F16, TENON_BF16, TENON_F32};

const char* name_of(tenon_format f) {
  return f == TENON_F16 ? "fp16" : f == TENON_BF16 ? "bf16" : "fp32";
}

class CudaStaticCache : public testing::TestWithParam<tenon_format> {
 protected:
  void SetUp() override {
    if (const std::string why = cuda_missing(); !why.empty()) GTEST_SKIP() << why;
    cache_ = std::make_unique<CudaComponent>("kv_cache", "static",
                                             std::map<std::string, std::string>{{"format", name_of(GetParam())}});
    tenon_bounds b = CudaRecorder::bounds(kSlots * 4, kSlots, kCapacity);
    b.rows_per_seq = 4;
    host_ = std::make_unique<CudaRecorder>(b);
    std::vector<tenon_kv_geometry> layers(2, sdk::abi_struct<tenon_kv_geometry>());
    std::vector<const tenon_kv_geometry*> pointers;
    for (uint32_t i = 0; i < layers.size(); ++i) {
      layers[i].layer = i, layers[i].heads = kHeads, layers[i].k_dim = kKeyDim, layers[i].v_dim = kValueDim;
      pointers.push_back(&layers[i]);
    }
    auto footprint = sdk::abi_struct<tenon_footprint>();
    expect_ok(table().plan(cache_->self(), pointers.data(), 2, &b, &footprint, &why_));
    std::vector<void*> addresses;
    for (uint32_t i = 0; i < footprint.n_stores; ++i) {
      stores_.push_back(host_->store(footprint.store_bytes[i]));
      addresses.push_back(host_->data(stores_.back()));
    }
    expect_ok(table().attach(cache_->self(), addresses.data(), nullptr, &why_));
    handle_.store = stores_.data();
  }

  const tenon_kv_cache& table() const { return cache_->table<tenon_kv_cache>(); }
  void expect_ok(tenon_status status) { EXPECT_EQ(status, TENON_OK) << text_; }

  // Appends rows of random values to layer 1, four a sequence, with KV_LEN `before` in every slot.
  void append(uint32_t before) {
    std::mt19937 random(before);
    std::vector<float> k(size_t{kSlots} * 4 * kHeads * kKeyDim), v(size_t{kSlots} * 4 * kHeads * kValueDim);
    for (float& x : k) x = static_cast<float>(random()) * 0x1p-31f - 1;
    for (float& x : v) x = static_cast<float>(random()) * 0x1p-31f - 1;
    constexpr uint32_t kLive = kSlots * 4 - 1;  // the last row is padding
    for (uint32_t i = 0; i < kSlots * 4; ++i) {
      const uint32_t slot = kSlots - 1 - i / 4, token = before + i % 4;
      host_->step_i32(TENON_STEP_SLOT)[i] = i < kLive ? static_cast<int32_t>(slot) : -1;
      host_->step_i32(TENON_STEP_POS)[i] = static_cast<int32_t>(token);
      if (i >= kLive) continue;
      auto& key = keys_[{slot, token}];
      auto& value = values_[{slot, token}];
      key.clear(), value.clear();
      for (uint32_t d = 0; d < kHeads * kKeyDim; ++d) key.push_back(rounded(k[i * kHeads * kKeyDim + d], GetParam()));
      for (uint32_t d = 0; d < kHeads * kValueDim; ++d) {
        value.push_back(rounded(v[i * kHeads * kValueDim + d], GetParam()));
      }
    }
    host_->set_live(kLive, kSlots);
    for (uint32_t s = 0; s < kSlots; ++s) {
      host_->step_i32(TENON_STEP_KV_LEN)[s] = static_cast<int32_t>(before);
      host_->step_i32(TENON_STEP_SEQ_SLOT)[s] = static_cast<int32_t>(kSlots - 1 - s);
      host_->step_i32(TENON_STEP_SEQ_ROW)[s] = static_cast<int32_t>(4 * s);
    }
    host_->step_i32(TENON_STEP_SEQ_ROW)[kSlots] = kLive;
    const tenon_tid kt = host_->input(TENON_F32, {kSlots * 4, kHeads * kKeyDim}, k);
    const tenon_tid vt = host_->input(TENON_F32, {kSlots * 4, kHeads * kValueDim}, v);
    host_->clear_ops();
    expect_ok(table().record_append(cache_->self(), 1, &handle_, kt, vt, host_->recorder(), &why_));
  }

  tenon_kv_view view() {
    auto v = sdk::abi_struct<tenon_kv_view>();
    expect_ok(table().view(cache_->self(), 1, &handle_, host_->recorder(), &v, &why_));
    return v;
  }

  // Everything that was appended, read through a view.
  void expect_model(const tenon_kv_view& v) {
    const auto layout = sdk::cpu::kv_layout(v);
    const auto pages = host_->download<int32_t>(v.pages);
    auto k = host_->download<std::byte>(v.k), values = host_->download<std::byte>(v.v);
    for (const bool is_value : {false, true}) {
      const auto& plane = is_value ? layout.v : layout.k;
      std::vector<float> row(plane.dim);
      for (const auto& [where, want] : is_value ? values_ : keys_) {
        for (uint32_t h = 0; h < kHeads; ++h) {
          const sdk::cpu::KvRows rows(layout, plane, is_value ? values.data() : k.data(), pages.data(), where.first, h);
          sdk::cpu::load_row(plane.codec, rows.at(where.second), plane.dim, row.data());
          for (uint32_t d = 0; d < plane.dim; ++d) {
            ASSERT_EQ(row[d], rounded(want[h * plane.dim + d], plane.codec)) << where.first << " " << where.second;
          }
        }
      }
    }
  }

  char text_[256] = "";
  tenon_reason why_{text_, sizeof(text_)};
  std::unique_ptr<CudaComponent> cache_;
  std::unique_ptr<CudaRecorder> host_;
  std::vector<tenon_tid> stores_;
  tenon_kv_stores handle_ = sdk::abi_struct<tenon_kv_stores>();
  std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> keys_, values_;  // by slot and token: (head, dim)
};

TEST_P(CudaStaticCache, AppendsAndCopies) {
  for (const uint32_t before : {0u, 4u, 41u}) {
    append(before);
    ASSERT_EQ(host_->run(), "");
    expect_model(view());
  }
  // Copies hold the step's tokens too. They are temporaries, so the append runs before them once more.
  for (const tenon_format format : kFormats) {
    keys_.clear(), values_.clear();
    append(0);
    const tenon_kv_format want = sdk::cpu::plain_kv_format(format);
    auto copy = sdk::abi_struct<tenon_kv_view>();
    expect_ok(table().record_dequant(cache_->self(), 1, &handle_, &want, host_->recorder(), &copy, &why_));
    ASSERT_EQ(host_->run(CudaRecorder::Mode::kGraph), "");
    expect_model(copy);
  }
}

TEST_P(CudaStaticCache, WritesNothingBeyondItsCapacity) {
  append(0);
  ASSERT_EQ(host_->run(), "");
  const auto before = host_->download<uint8_t>(stores_[0]);
  append(kCapacity);
  ASSERT_EQ(host_->run(), "");
  EXPECT_EQ(host_->download<uint8_t>(stores_[0]), before);
}

TEST_P(CudaStaticCache, ForksExportsAndImports) {
  append(0);
  ASSERT_EQ(host_->run(), "");
  expect_ok(table().fork(cache_->self(), 1, 0, 4, nullptr, &why_));
  for (uint32_t t = 0; t < 4; ++t) keys_[{0, t}] = keys_[{1, t}], values_[{0, t}] = values_[{1, t}];
  expect_model(view());
  uint64_t bytes = 0;
  expect_ok(table().export_sequence(cache_->self(), 2, 3, nullptr, nullptr, &bytes, &why_));
  std::vector<std::byte> exported(bytes);
  expect_ok(table().export_sequence(cache_->self(), 2, 3, nullptr, exported.data(), &bytes, &why_));
  expect_ok(table().import_sequence(cache_->self(), 1, 3, nullptr, exported.data(), bytes, &why_));
  for (uint32_t t = 0; t < 3; ++t) keys_[{1, t}] = keys_[{2, t}], values_[{1, t}] = values_[{2, t}];
  expect_model(view());
  exported[0] = std::byte{0};
  EXPECT_EQ(table().import_sequence(cache_->self(), 1, 3, nullptr, exported.data(), bytes, &why_), TENON_REFUSED);
  EXPECT_EQ(table().reserve(cache_->self(), 0, kCapacity + 1, &why_), TENON_NO_SPACE);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaStaticCache, testing::ValuesIn(kFormats),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tenon::test
