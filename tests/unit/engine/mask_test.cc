// The device's op that applies masks is tested by itself, for vocabularies that end within a word and rows without a
// mask. This is compiled for the CPU here and for a GPU in tests/cuda (TENON_TEST_DEVICE).
#include "tenon/sdk/mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cpu/cpu_device.h"
#include "support/op_runner.h"
#include "support/pipelines.h"

namespace tenon::test {
namespace {

const std::string kDevice = TENON_TEST_DEVICE;

class MaskOp : public ::testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override {
    if (kDevice == "cpu") {
      register_cpu_device(registry_);
    } else {
      registry_.add_root(plugins());
    }
    try {
      device_ = std::make_unique<conformance::Device>(registry_, kDevice);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }

  Registry registry_;
  std::unique_ptr<conformance::Device> device_;
};

TEST_P(MaskOp, LeavesTheLogitsOfWhatIsAllowed) {
  constexpr uint32_t kRows = 5, kLive = 4, kBits = 32;
  const uint32_t vocab = GetParam(), words = (vocab + kBits - 1) / kBits;
  std::mt19937_64 random(vocab);
  std::vector<float> logits(size_t{kRows} * vocab);
  for (float& l : logits) l = static_cast<float>(static_cast<double>(random() % 2000) / 100 - 10);
  std::vector<uint32_t> masks(size_t{kRows} * words);
  for (uint32_t& word : masks) word = static_cast<uint32_t>(random());
  const std::vector<int32_t> numbers = {1, -1, 0, 2, 0};

  OpRunner host(OpRunner::bounds({.rows = kRows}), *device_);
  const tenon_tid x = host.input(TENON_F32, {kRows, vocab}, logits), y = host.output(TENON_F32, {kRows, vocab});
  const sdk::MaskOp mask(host.input(TENON_U32, {kRows, words}, masks), host.input(TENON_I32, {kRows}, numbers));
  const tenon_fop op = mask.fop();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const tenon_device& table = device_->table();
  ASSERT_EQ(table.record_step_op(table.self, &op, x, y, host.recorder(), &why), TENON_OK) << text;
  host.set_live(kLive, 1, kLive);
  ASSERT_EQ(host.run(1), "");
  const std::vector<float> left = host.f32(y);
  for (uint32_t row = 0; row < kLive; ++row) {
    for (uint32_t i = 0; i < vocab; ++i) {
      const size_t at = size_t{row} * vocab + i;
      const bool allowed =
          numbers[row] < 0 || ((masks[static_cast<size_t>(numbers[row]) * words + i / kBits] >> i % kBits) & 1U) != 0;
      const float expected = allowed ? logits[at] : -std::numeric_limits<float>::infinity();
      ASSERT_EQ(left[at], expected) << "row " << row << ", token " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, MaskOp, ::testing::Values(1, 31, 32, 33, 1000, 8191, 8193, 128256));

}  // namespace
}  // namespace tenon::test
