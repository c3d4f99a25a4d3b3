// This tests operands that are given by their enumerators, and the pairs of rope.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/rope_pairs.h"

namespace tenon::sdk {
namespace {

using ::testing::HasSubstr;

enum Operand : uint32_t { kX, kY, kLive, kOperands };

std::string problem_of(std::initializer_list<NamedOperand> named) {
  try {
    operands_by(kOperands, named);
  } catch (const Failed& e) {
    return e.what();
  }
  return "";
}

TEST(OperandsBy, StandInTheOrderOfTheEnumeration) {
  const std::vector<tenon_operand> operands =
      operands_by(kOperands, {{kLive, 7, TENON_READ}, {kX, 5, TENON_READ | TENON_READ_OLD}, {kY, 6, TENON_WRITE}});
  ASSERT_EQ(operands.size(), 3U);
  EXPECT_EQ(operands[kX].tensor, 5U);
  EXPECT_EQ(operands[kX].access, TENON_READ | TENON_READ_OLD);
  EXPECT_EQ(operands[kY].tensor, 6U);
  EXPECT_EQ(operands[kY].access, uint32_t{TENON_WRITE});
  EXPECT_EQ(operands[kLive].tensor, 7U);
}

TEST(OperandsBy, AreAllThereOnceAndNoOthersAre) {
  EXPECT_THAT(problem_of({{kX, 5, TENON_READ}, {kLive, 7, TENON_READ}}), HasSubstr("operand 1 is missing"));
  EXPECT_THAT(problem_of({{kX, 5, TENON_READ}, {kX, 5, TENON_READ}, {kY, 6, TENON_WRITE}, {kLive, 7, TENON_READ}}),
              HasSubstr("operand 0 of 3 is named twice"));
  EXPECT_THAT(problem_of({{kOperands, 5, TENON_READ}}), HasSubstr("operand 3 of 3 is named twice or unknown"));
}

TEST(OperandsBy, PutAnotherInThePlaceOfOptionalOnesThatAreNotThere) {
  const std::vector<tenon_operand> operands =
      operands_by(kOperands, {{kX, 5, TENON_READ}}, {5, TENON_READ}, {{kLive, 0, TENON_WRITE}, {kY, 6, TENON_WRITE}});
  EXPECT_EQ(operands[kLive].tensor, 5U);
  EXPECT_EQ(operands[kLive].access, uint32_t{TENON_READ});
  EXPECT_EQ(operands[kY].tensor, 6U);
  EXPECT_EQ(operands[kY].access, uint32_t{TENON_WRITE});
}

TEST(RopePairs, AreHalvesApartOrNeighbours) {
  for (const int32_t pairing : {0, 1}) {
    const RopePairs pairs{8, pairing};
    for (uint32_t pair = 0; pair < pairs.half(); ++pair) {
      const uint32_t first = pairs.first(pair), second = pairs.second(pair);
      EXPECT_EQ(first, pairing == 0 ? pair : 2 * pair);
      EXPECT_EQ(second, pairing == 0 ? pair + 4 : 2 * pair + 1);
      EXPECT_EQ(pairs.partner(first), second);
      EXPECT_EQ(pairs.partner(second), first);
      EXPECT_FALSE(pairs.is_second(first));
      EXPECT_TRUE(pairs.is_second(second));
      EXPECT_EQ(pairs.pair(first), pair);
      EXPECT_EQ(pairs.pair(second), pair);
    }
  }
}

}  // namespace
}  // namespace tenon::sdk
