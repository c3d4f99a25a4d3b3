// This tests what JSON has in place of a number that is not finite.
#include "json_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace tenon::app {
namespace {

TEST(JsonText, HasNullWhereANumberIsNotFinite) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const boost::json::object all = {{"a", kNan},
                                   {"b", boost::json::array{1.5, kInfinite, boost::json::object{{"c", -kInfinite}}}},
                                   {"d", "NaN"},
                                   {"e", 7}};
  const boost::json::value expected = {{"a", nullptr},
                                       {"b", boost::json::array{1.5, nullptr, boost::json::object{{"c", nullptr}}}},
                                       {"d", "NaN"},
                                       {"e", 7}};
  EXPECT_EQ(boost::json::parse(json_text(all)), expected);
}

}  // namespace
}  // namespace tenon::app
