// Checks of errors: their kind, and that the message holds all that it must.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tenon/core/error.h"

namespace tenon::testing {

inline void expect_error(ErrorCode code, const std::vector<std::string>& parts, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
  }
}

}  // namespace tenon::testing
