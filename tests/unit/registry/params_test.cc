// These tests hold values of parameters against schemas, right ones, wrong ones, and schemas that are wrong themselves.
#include "tenon/core/params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tenon/sdk/params.h"

namespace tenon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kSpecs =
    sdk::params(sdk::integer({.name = "group_size", .doc = "columns a scale", .value = 64, .choices = "32|64|128|256"}),
                sdk::integer({.name = "k", .doc = "how many", .value = 5, .min = 1, .max = 64, .unit = "tokens"}),
                sdk::real({.name = "value", .doc = "heat", .value = 0.8, .min = 0}),
                sdk::text({.name = "format", .doc = "stored as", .value = "fp16", .choices = "fp32|fp16|bf16"}),
                sdk::boolean({.name = "loud", .doc = "say so", .value = true}),
                sdk::text({.name = "path", .doc = "where", .flags = TENON_PARAM_REQUIRED}));

struct Schema {
  template <size_t N>
  explicit Schema(const std::array<tenon_param_spec, N>& specs) : schema(sdk::abi_struct<tenon_param_schema>()) {
    for (const tenon_param_spec& spec : specs) pointers.push_back(&spec);
    schema.count = N;
    schema.spec = pointers.data();
  }
  std::vector<const tenon_param_spec*> pointers;
  tenon_param_schema schema;
};

std::string described(size_t i) {
  return describe(kSpecs[i]);
}

TEST(Params, DescribesInOneLine) {
  EXPECT_EQ(described(0), "int: 32, 64, 128, 256; default 64");
  EXPECT_EQ(described(1), "int: 1 to 64 tokens; default 5");
  EXPECT_EQ(described(2), "real: at least 0; default 0.8");
  EXPECT_EQ(described(3), "text: fp32, fp16, bf16; default \"fp16\"");
  EXPECT_EQ(described(4), "bool; default true");
  EXPECT_EQ(described(5), "text; required");
  EXPECT_EQ(describe(sdk::integer({.name = "n", .doc = "", .max = 3})), "int: at most 3; default 0");
}

TEST(Params, StartsFromTheDefaults) {
  const Schema s(kSpecs);
  const ParamValues values(s.schema);
  ASSERT_EQ(values.abi()->count, 6u);
  EXPECT_EQ(values.abi()->value[0].integer, 64);
  EXPECT_DOUBLE_EQ(values.abi()->value[2].real, 0.8);
  EXPECT_STREQ(values.abi()->value[3].text, "fp16");
  EXPECT_EQ(values.abi()->value[4].integer, 1);
  EXPECT_THAT(values.missing(), ElementsAre("path"));
  EXPECT_FALSE(values.is_set(0));
}

TEST(Params, SetsWhatObeysAndRefusesTheRest) {
  const Schema s(kSpecs);
  ParamValues values(s.schema);
  EXPECT_EQ(values.set(0, int64_t{128}), "");
  EXPECT_EQ(values.set(0, int64_t{48}), "48 is not one of the choices");
  EXPECT_EQ(values.set(0, std::string("64")), "must be an int, not a text");
  EXPECT_EQ(values.set(1, int64_t{65}), "65 is out of range");
  EXPECT_EQ(values.set(1, int64_t{0}), "0 is out of range");
  for (const int64_t end : {int64_t{1}, int64_t{64}}) EXPECT_EQ(values.set(1, end), "");
  EXPECT_EQ(values.set(1, 2.0), "must be an int, not a real");
  EXPECT_EQ(values.set(2, 0.0), "");
  EXPECT_EQ(values.set(2, int64_t{1}), "");
  EXPECT_EQ(values.set(2, -0.5), "-0.5 is out of range");
  EXPECT_THAT(values.set(2, std::numeric_limits<double>::quiet_NaN()), HasSubstr("no finite number"));
  EXPECT_EQ(values.set(3, std::string("fp8")), "\"fp8\" is not one of the choices");
  EXPECT_EQ(values.set(4, int64_t{1}), "must be a bool, not an int");
  EXPECT_EQ(values.set(5, std::string("a\0b", 3)), "must not hold a zero byte");
  EXPECT_EQ(values.set(5, std::string("here")), "");
  EXPECT_EQ(std::get<int64_t>(values.get(0)), 128);
  EXPECT_DOUBLE_EQ(std::get<double>(values.get(2)), 1.0);
  EXPECT_EQ(std::get<std::string>(values.get(3)), "fp16");
  EXPECT_THAT(values.missing(), IsEmpty());
}

TEST(Params, ManyChoicesInEqualStepsAreNotListed) {
  std::string even = "8";
  for (int choice = 16; choice <= 160; choice += 8) even += "|" + std::to_string(choice);
  const auto text_of = [](const std::string& choices) {
    return range_text(sdk::integer({.name = "group_size", .doc = "Group.", .value = 8, .choices = choices.c_str()}));
  };
  EXPECT_EQ(text_of(even), "8 to 160 in steps of 8");
  EXPECT_EQ(text_of("8|16|24"), "8, 16, 24");
  EXPECT_THAT(text_of(even + "|169"), HasSubstr("152, 160, 169"));
  EXPECT_THAT(text_of(even + "|many"), HasSubstr("152, 160, many"));
}

TEST(Params, CopiesAndMovesKeepTheirOwnTexts) {
  const Schema s(kSpecs);
  auto first = std::make_unique<ParamValues>(s.schema);
  ASSERT_EQ(first->set(5, std::string("here")), "");
  ParamValues copy = *first;
  ASSERT_EQ(first->set(5, std::string("there")), "");
  ParamValues moved = std::move(*first);
  first.reset();
  EXPECT_STREQ(copy.abi()->value[5].text, "here");
  EXPECT_STREQ(moved.abi()->value[5].text, "there");
  copy = moved;
  EXPECT_STREQ(copy.abi()->value[5].text, "there");
}

TEST(Params, ReadsAnOlderSpecWithoutItsLastFields) {
  std::array<tenon_param_spec, 1> specs = {kSpecs[0]};
  specs[0].h.size = offsetof(tenon_param_spec, choices);
  const Schema s(specs);
  ParamValues values(s.schema);
  EXPECT_THAT(choices_of(spec_at(s.schema, 0)), IsEmpty());
  EXPECT_EQ(values.set(0, int64_t{48}), "");
}

TEST(Params, HashEqualsTheNotes) {
  const Schema s(kSpecs);
  char hex[24] = "";
  sdk::detail::write_hex(sdk::detail::schema_hash(kSpecs.data(), kSpecs.size()), hex);
  EXPECT_EQ(schema_hash(s.schema), hex);
}

TEST(Params, FindsWhatIsWrongWithASchema) {
  EXPECT_THAT(schema_problems(Schema(kSpecs).schema), IsEmpty());
  std::array<tenon_param_spec, 5> specs = {kSpecs[0], kSpecs[0], kSpecs[1], kSpecs[3], kSpecs[2]};
  specs[0].int_default = 65;
  specs[2].name = nullptr;
  specs[3].text_default = nullptr;
  specs[4].type = 9;
  EXPECT_THAT(
      schema_problems(Schema(specs).schema),
      ElementsAre("parameter \"group_size\": its default 65 is not one of the choices",
                  "parameter \"group_size\" is there twice", "parameter 2 has no name",
                  "parameter \"format\": its default is missing", "parameter \"value\" is of the unknown type 9"));
  Schema hollow(kSpecs);
  hollow.pointers[3] = nullptr;
  EXPECT_THAT(schema_problems(hollow.schema), ElementsAre("parameter 3 is missing"));
}

}  // namespace
}  // namespace tenon
