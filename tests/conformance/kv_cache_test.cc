// These tests look at what the shipped caches refuse for the reason that is meant, where another check would do by
// accident.
#include "tenon/abi/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/suite.h"
#include "support/component.h"
#include "support/op_runner.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {
namespace {

using ::testing::HasSubstr;

struct Layer {
  uint32_t heads, k_dim, v_dim, window = 0;
};

// This is a cache of one slot with its memory; appends go to the first layer.
class Cache {
 public:
  Cache(const std::string& name, const std::vector<Layer>& layers, uint32_t capacity,
        const std::vector<Setting>& settings = {})
      : component_("kv_cache", name, settings), host_(OpRunner::bounds({.rows = 1, .kv_len = capacity})) {
    std::vector<tenon_kv_geometry> geometries;
    for (const Layer& l : layers) {
      auto& g = geometries.emplace_back(sdk::abi_struct<tenon_kv_geometry>());
      g.layer = static_cast<uint32_t>(geometries.size() - 1);
      g.heads = l.heads;
      g.k_dim = l.k_dim;
      g.v_dim = l.v_dim;
      g.window = l.window;
    }
    std::vector<const tenon_kv_geometry*> pointers;
    for (const auto& g : geometries) pointers.push_back(&g);
    auto footprint = sdk::abi_struct<tenon_footprint>();
    check(table().plan(component_.self(), pointers.data(), static_cast<uint32_t>(pointers.size()),
                       host_.recorder()->bounds, &footprint, &why_));
    std::vector<void*> addresses;
    for (uint32_t i = 0; i < footprint.n_stores; ++i) {
      stores_.push_back(host_.store(footprint.store_bytes[i]));
      addresses.push_back(host_.data(stores_.back()));
    }
    check(table().attach(component_.self(), addresses.data(), queue(), &why_));
  }

  // Returns why a row that is to go to this place is not appended, or "".
  std::string append(const Layer& l, int32_t place) {
    auto s = sdk::abi_struct<tenon_kv_stores>();
    s.store = stores_.data();
    const std::vector<float> ones(size_t{l.heads} * std::max(l.k_dim, l.v_dim), 1.0F);
    const tenon_tid k = host_.input(TENON_F32, {1, l.heads * l.k_dim}, ones);
    const tenon_tid v = host_.input(TENON_F32, {1, l.heads * l.v_dim}, ones);
    check(table().record_append(component_.self(), 0, &s, k, v, host_.recorder(), &why_));
    host_.step_i32(TENON_STEP_PLACE)[0] = place;
    return host_.run(1);
  }

  std::vector<std::byte> exported(uint32_t kv_len) {
    uint64_t bytes = 0;
    check(table().export_sequence(component_.self(), 0, kv_len, queue(), nullptr, &bytes, &why_));
    std::vector<std::byte> out(bytes);
    check(table().export_sequence(component_.self(), 0, kv_len, queue(), out.data(), &bytes, &why_));
    return out;
  }
  // Returns why a sequence that had room for so many tokens cannot be cut to fewer, or "".
  std::string grow_and_cut(uint32_t kv_len, uint32_t fewer) {
    check(table().reserve(component_.self(), 0, kv_len, &why_));
    return table().truncate(component_.self(), 0, fewer, &why_) == TENON_OK ? "" : text_;
  }
  // "", or why these bytes are refused.
  std::string import(uint32_t kv_len, const std::vector<std::byte>& bytes) {
    const tenon_status status =
        table().import_sequence(component_.self(), 0, kv_len, queue(), bytes.data(), bytes.size(), &why_);
    EXPECT_TRUE(status == TENON_OK || status == TENON_REFUSED) << status;
    return status == TENON_OK ? "" : text_;
  }

 private:
  const tenon_kv_cache& table() const { return component_.table<tenon_kv_cache>(); }
  void* queue() const { return host_.device().queue(); }
  void check(tenon_status status) const {
    if (status != TENON_OK) throw std::runtime_error(text_);
  }

  Component component_;
  OpRunner host_;
  std::vector<tenon_tid> stores_;
  char text_[256] = "";
  tenon_reason why_{text_, sizeof(text_)};
};

// Eight cells fill their page: the one after it would be another head's.
TEST(SlotCaches, ARowAfterTheLastCellIsAnError) {
  const Layer layer{2, 8, 16};
  for (const char* name : {"static", "int8", "int4"}) {
    EXPECT_EQ(Cache(name, {layer}, 8).append(layer, 7), "") << name;
    EXPECT_THAT(Cache(name, {layer}, 8).append(layer, 8), HasSubstr("cell 8 in a cache of 8 cells a sequence")) << name;
    EXPECT_THAT(Cache(name, {layer}, 8).append(layer, -1), HasSubstr("in a cache of 8 cells a sequence")) << name;
  }
}

// The sequences of the two caches have as many bytes, in another order.
TEST(SlotCaches, RefuseSequencesOfOtherShapesThatAreAsLong) {
  for (const char* name : {"static", "int8", "int4"}) {
    const std::vector<std::byte> bytes = Cache(name, {{2, 8, 4}, {1, 8, 8}}, 16).exported(5);
    EXPECT_EQ(Cache(name, {{2, 8, 4}, {1, 8, 8}}, 16).import(5, bytes), "") << name;
    for (const std::vector<Layer>& other : std::vector<std::vector<Layer>>{
             {{2, 4, 8}, {1, 8, 8}}, {{1, 8, 8}, {2, 8, 4}}, {{8, 2, 1}, {1, 8, 8}}, {{4, 4, 2}, {1, 8, 8}}}) {
      EXPECT_THAT(Cache(name, other, 16).import(5, bytes), HasSubstr("other layers, head dimensions")) << name;
    }
  }
}

TEST(SlotCaches, RefuseSequencesOfAnotherWindowThatAreAsLong) {
  const auto cache = [](int64_t sinks, int64_t window) {
    return Cache("sink_window", {{2, 8, 8}}, 32, {{"sinks", sinks}, {"window", window}});
  };
  const std::vector<std::byte> bytes = cache(4, 12).exported(9);
  EXPECT_EQ(cache(4, 12).import(9, bytes), "");
  EXPECT_THAT(cache(6, 10).import(9, bytes), HasSubstr("sinks or window"));
}

// A window takes its part of a sequence that has all; what has a window's part only goes where the same windows are.
TEST(SlotCaches, CarryTheWindowsOfLayers) {
  const auto cache = [](const std::string& name, uint32_t window, const std::vector<Setting>& settings = {}) {
    return Cache(name, {{2, 8, 8}, {1, 8, 4, window}}, 128, settings);
  };
  const std::vector<std::byte> windows = cache("static", 16).exported(70), all = cache("static", 0).exported(70);
  EXPECT_EQ(all.size() - windows.size(), (70 - 16) * 12 * 2U);
  EXPECT_EQ(cache("static", 16).import(70, windows), "");
  EXPECT_EQ(cache("static", 16).import(70, all), "");
  EXPECT_EQ(cache("paged", 16).import(70, all), "");
  EXPECT_THAT(cache("static", 15).import(70, windows), HasSubstr("has other windows"));
  EXPECT_EQ(cache("paged", 16).import(70, windows), "");
  const std::vector<Setting> large = {{"page_tokens", int64_t{128}}};  // Pages of the window would be no fewer.
  EXPECT_EQ(cache("paged", 16, large).import(70, all), "");
  EXPECT_THAT(cache("paged", 16, large).import(70, windows), HasSubstr("this cache keeps all of them"));
}

TEST(SlotCaches, RefuseSequencesOfAnotherRotationAndCodec) {
  const auto cache = [](const std::string& name, const std::vector<Setting>& settings) {
    return Cache(name, {{2, 8, 8}}, 32, settings);
  };
  const std::vector<std::byte> bytes = cache("int4", {}).exported(9);
  EXPECT_EQ(cache("int4", {}).import(9, bytes), "");
  EXPECT_EQ(cache("paged", {{"format", std::string("int4")}}).import(9, bytes), "");
  EXPECT_THAT(cache("int4", {{"rotation", std::string("none")}}).import(9, bytes), HasSubstr("another rotation"));
  EXPECT_THAT(cache("int8", {}).import(9, bytes), HasSubstr("exported as i4 with scales of f16, the cache stores i8"));
}

// This runs every suite of caches on a device.
class SuitesOfTails : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (device(GetParam()) == nullptr) GTEST_SKIP() << "there is no device " << GetParam() << " here";
  }
  static void expect_every_suite(const std::string& name, const std::vector<Setting>& settings) {
    const LoadedComponent& component = plugins().load("kv_cache", name, GetParam());
    const conformance::Variant variant{.label = "tail", .settings = settings};
    for (const conformance::Check& check : conformance::checks_of("kv_cache")) {
      SCOPED_TRACE(name + ", " + check.name);
      try {
        check.run(conformance::Subject(plugins(), component, variant));
      } catch (const NotTested&) {
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(All, SuitesOfTails, testing::Values("cpu", "cuda"),
                         [](const auto& tested) { return std::string(tested.param); });

// A tail is shorter than the windows of layers, and longer.
TEST_P(SuitesOfTails, AreListsOfTokensInBothViews) {
  for (const char* name : {"int4", "int8", "fp8"}) {
    for (const int64_t tail :
         std::string(name) == "int4" ? std::vector<int64_t>{1, 16, 37} : std::vector<int64_t>{16}) {
      SCOPED_TRACE("a tail of " + std::to_string(tail));
      expect_every_suite(name, {{"tail", tail}});
    }
  }
  expect_every_suite("paged", {{"format", std::string("int4")}, {"tail", int64_t{37}}});
}

// Groups of keys are coded from the tail as they fill, whoever fills, cuts, copies or carries them.
TEST_P(SuitesOfTails, AreListsOfTokensInGroupsOfKeys) {
  const Setting channels{"keys", std::string("channel")}, plain{"rotation", std::string("none")};
  expect_every_suite("int4", {channels});
  expect_every_suite("int4", {channels, plain, {"tail", int64_t{37}}});
  expect_every_suite("int4", {channels, plain, {"format", std::string("fp32_scales")}});
}

TEST(ChannelKeys, SayThatDraftsDoNotBranch) {
  for (const char* name : {"cpu", "cuda"}) {
    if (device(name) == nullptr) continue;
    const conformance::Component cache(plugins().load("kv_cache", "int4", name), *device(name),
                                       {{"keys", std::string("channel")}});
    auto g = sdk::abi_struct<tenon_kv_geometry>();
    g.heads = g.k_dim = g.v_dim = 32;
    const tenon_bounds b = OpRunner::bounds({.rows = 4, .trees = 1});
    auto view = sdk::abi_struct<tenon_kv_view>();
    conformance::Reason why;
    EXPECT_EQ(cache.table<tenon_kv_cache>().claim(cache.self(), &g, &b, &view, &why.raw), TENON_REFUSED);
    EXPECT_THAT(why.text, HasSubstr("choose a draft that is a chain, or kv_cache.keys = \"token\"")) << name;
  }
}

TEST(Tails, AreCarriedAndRefusedWhereTheyAreOthers) {
  const auto cache = [](int64_t tail, uint32_t capacity = 256) {
    return Cache("int4", {{2, 8, 8}, {1, 8, 4}}, capacity, {{"tail", tail}});
  };
  const std::vector<std::byte> bytes = cache(16).exported(200), none = cache(0).exported(200);
  EXPECT_EQ(bytes.size() - none.size(), 16 * (2 * 16 + 12) * 2U);
  EXPECT_EQ(cache(16).import(200, bytes), "");
  EXPECT_THAT(cache(24).import(200, bytes), HasSubstr("exported with a tail of 16 tokens, the cache has one of 24"));
  EXPECT_THAT(cache(0).import(200, bytes), HasSubstr("exported with a tail of 16 tokens, the cache has one of 0"));
  EXPECT_THAT(cache(16).import(200, none), HasSubstr("exported with a tail of 0 tokens, the cache has one of 16"));
}

// A cut is refused once a step has overwritten what a row after it would read.
TEST(Tails, SayWhatIsGone) {
  Cache cache("int8", {{2, 8, 8}}, 256, {{"tail", int64_t{16}}});
  EXPECT_EQ(cache.grow_and_cut(130, 129), "");
  EXPECT_EQ(cache.grow_and_cut(130, 120), "");
  EXPECT_THAT(cache.grow_and_cut(240, 150), HasSubstr("tails of 16 have none before"));
  EXPECT_EQ(cache.grow_and_cut(240, 0), "");
}

}  // namespace
}  // namespace tenon::test
