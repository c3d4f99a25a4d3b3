// Tests of engines that are compiled twice, for the CPU and for a GPU in tests/cuda: TENON_TEST_DEVICE says for which.
#pragma once

#include <gtest/gtest.h>

#include "support/pipelines.h"

namespace tenon::test {

inline const std::string kDevice = TENON_TEST_DEVICE;

// Skips, with the reason, where there is no such device.
class OnADevice : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = kDevice == "cuda" ? no_gpu() : "";
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
};

}  // namespace tenon::test
