// These tests create instances of components: tables of other versions, failures, and components that throw everywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch.h"
#include "tenon/core/params.h"
#include "tenon/core/registry.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

using ::testing::HasSubstr;

class InstanceTest : public ::testing::Test {
 protected:
  InstanceTest() {
    host_.log = [](void*, uint32_t, const char*) {};
    device_.kind = "cpu";
    device_.flags = TENON_DEVICE_WALKS;
    env_.host = &host_;
    env_.device = &device_;
  }

  Instance create(const std::string& library, const char* kind = "sampler", const char* name = "good") {
    registry_ = std::make_unique<Registry>();
    registry_->add_library(test::bad_plugin(library));
    const LoadedComponent& c = registry_->load(kind, name, "cpu");
    return Instance(c, *ParamValues(*c.schema).abi(), env_);
  }
  std::string error(const std::string& library) {
    try {
      create(library);
      return "no error";
    } catch (const Error& e) {
      return e.what();
    }
  }

  std::unique_ptr<Registry> registry_;
  tenon_host host_ = sdk::abi_struct<tenon_host>();
  tenon_device device_ = sdk::abi_struct<tenon_device>();
  tenon_env env_ = sdk::abi_struct<tenon_env>();
  char text_[64] = "";
  tenon_reason why_{text_, sizeof(text_)};
};

TEST_F(InstanceTest, IsCreatedMovedAndDestroyed) {
  Instance first = create("good");
  EXPECT_EQ(first.id(), "sampler.good");
  EXPECT_EQ(first.table<tenon_sampler>().is_selector, 1u);
  void* const self = first.self();
  Instance second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
  EXPECT_EQ(second.self(), self);
  second = Instance();
  EXPECT_FALSE(second);
}

TEST_F(InstanceTest, ANewerTableIsCutAndAnOlderOneWidened) {
  EXPECT_NE(create("newer_minor").table<tenon_sampler>().encode, nullptr);
  const Instance older = create("older_minor");
  EXPECT_NE(older.table<tenon_sampler>().record_select, nullptr);
  EXPECT_EQ(older.table<tenon_sampler>().record_accept, nullptr);
}

TEST_F(InstanceTest, FailuresSayWhatFailedAndWhere) {
  const std::string path = test::bad_plugin("throws_create").string();
  EXPECT_EQ(error("throws_create"), "error: sampler.good (" + path + "): the constructor threw");
  EXPECT_THAT(error("throws_past_sdk"), HasSubstr("create() let an exception out"));
  EXPECT_THAT(error("no_interface"), HasSubstr("has no interface \"sampler/1\""));
  EXPECT_THAT(error("missing_function"),
              HasSubstr("lacks what every sampler must have: \"encode\", \"record_select\""));
  EXPECT_EQ(error("good"), "no error");
}

TEST_F(InstanceTest, ASamplerThatThrowsEverywhereAnswersWithReasons) {
  const Instance i = create("throws_sampler");
  const auto& t = i.table<tenon_sampler>();
  const ParamValues values(*i.component().schema);
  const auto bounds = sdk::abi_struct<tenon_bounds>();
  auto recorder = sdk::abi_struct<tenon_recorder>();
  recorder.bounds = recorder.largest = &bounds;
  const auto sampling = sdk::abi_struct<tenon_sampling>();
  auto candidates = sdk::abi_struct<tenon_candidates>();
  int64_t record = 0;
  EXPECT_EQ(t.state_bytes(i.self(), 10), 0u);
  EXPECT_EQ(t.encode(i.self(), values.abi(), &record, &why_), TENON_ERROR);
  EXPECT_STREQ(text_, "encode threw");
  EXPECT_EQ(t.record_select(i.self(), &sampling, &candidates, &recorder, &why_), TENON_NO_SPACE);
  EXPECT_STREQ(text_, "record_select threw");
  EXPECT_EQ(t.record_accept(i.self(), &sampling, &candidates, &recorder, &why_), TENON_ERROR);
  EXPECT_STREQ(text_, "an exception that is no std::exception");
}

TEST_F(InstanceTest, AnAttentionThatThrowsEverywhereAnswersWithReasons) {
  const Instance i = create("throws_attention", "attention", "throws");
  const auto& t = i.table<tenon_attention>();
  const auto layer = sdk::abi_struct<tenon_attn>();
  const auto call = sdk::abi_struct<tenon_attn_call>();
  auto format = sdk::abi_struct<tenon_kv_format>();
  auto view = sdk::abi_struct<tenon_kv_view>();
  view.format = &format;
  const auto bounds = sdk::abi_struct<tenon_bounds>();
  auto recorder = sdk::abi_struct<tenon_recorder>();
  recorder.bounds = &bounds;
  auto claim = sdk::abi_struct<tenon_claim>();
  EXPECT_EQ(t.claim(i.self(), &layer, &view, &bounds, &claim, &why_), TENON_REFUSED);
  EXPECT_STREQ(text_, "claim threw");
  EXPECT_EQ(t.preferred_format(i.self(), &format, &why_), TENON_NO_SPACE);
  EXPECT_STREQ(text_, "out of host memory");
  EXPECT_EQ(t.record(i.self(), &layer, &call, &recorder, &why_), TENON_ERROR);
}

}  // namespace
}  // namespace tenon
