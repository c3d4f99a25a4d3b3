// These are the CPU's own ops of a step by themselves: which drafts survive, and of which rows the host is told what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/component.h"
#include "support/op_runner.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/told.h"

namespace tenon::test {
namespace {

using ::testing::ElementsAre;

struct Verified {
  std::vector<int32_t> told, accepted, survivors, next;
};

struct Step {
  std::vector<int32_t> seq_row, out_row, token, parent, next;
  std::vector<std::vector<float>> logits = {};  // by out row; zeros of a small vocabulary where there are none
};

Verified verify(const Step& step) {
  const auto rows = static_cast<uint32_t>(step.token.size()), outs = static_cast<uint32_t>(step.out_row.size());
  const auto seqs = static_cast<uint32_t>(step.seq_row.size() - 1);
  const size_t vocab = step.logits.empty() ? 64 : step.logits.front().size();
  OpRunner host(OpRunner::bounds({.rows = rows, .seqs = seqs, .out_rows = outs, .slots = seqs, .trees = 1}));
  std::vector<float> logits;
  for (const auto& row : step.logits) logits.insert(logits.end(), row.begin(), row.end());
  logits.resize(outs * vocab);
  sdk::Recorder rec(host.recorder());
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_VERIFY;
  op.t[0] = host.input(TENON_F32, {outs, static_cast<int64_t>(vocab)}, logits);
  const tenon_tid told = op.t[1] = host.output(TENON_I32, {outs});
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const tenon_device& device = host.device().table();
  EXPECT_EQ(device.record_step_op(device.self, &op, rec.step(TENON_STEP_NEXT), rec.step(TENON_STEP_ACCEPTED),
                                  host.recorder(), &why),
            TENON_OK)
      << text;
  const auto put = [&](uint32_t role, const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), host.step_i32(role).begin());
  };
  put(TENON_STEP_SEQ_ROW, step.seq_row);
  put(TENON_STEP_OUT_ROW, step.out_row);
  put(TENON_STEP_TOKEN, step.token);
  put(TENON_STEP_PARENT, step.parent);
  put(TENON_STEP_NEXT, step.next);
  host.set_live(rows, seqs, outs);
  EXPECT_EQ(host.run(1), "");
  const auto get = [&](uint32_t role, size_t n) {
    const auto all = host.step_i32(role);
    return std::vector<int32_t>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
  };
  return {host.read<int32_t>(told), get(TENON_STEP_ACCEPTED, seqs), get(TENON_STEP_SURVIVOR, rows),
          get(TENON_STEP_NEXT, outs)};
}

// Row 0 is given. Rows 1 and 2 follow it, row 3 follows 1 and row 4 follows 2, with the same token.
TEST(Verify, FollowsTheBranchOfTheChosenTokens) {
  Step tree{.seq_row = {0, 5},
            .out_row = {0, 1, 2, 3, 4},
            .token = {9, 10, 20, 30, 30},
            .parent = {-1, 0, 0, 1, 2},
            .next = {20, 30, 30, 1, 2}};
  Verified v = verify(tree);
  EXPECT_THAT(v.accepted, ElementsAre(3));
  EXPECT_THAT((std::vector(v.survivors.begin(), v.survivors.begin() + 3)), ElementsAre(0, 2, 4));
  EXPECT_EQ(v.told, tree.next);
  tree.next = {10, 31, 30, 1, 2};
  v = verify(tree);
  EXPECT_THAT(v.accepted, ElementsAre(2));
  EXPECT_THAT((std::vector(v.survivors.begin(), v.survivors.begin() + 2)), ElementsAre(0, 1));
  tree.next = {30, 30, 30, 1, 2};
  EXPECT_THAT(verify(tree).accepted, ElementsAre(1));
}

// There are a prompt of three rows whose last one's logits are wanted, a piece of a prompt of which none are, and a
// chain of two drafts, the first of which is right.
TEST(Verify, TakesEverySequenceByItself) {
  const Verified v = verify({.seq_row = {0, 3, 5, 8},
                             .out_row = {2, 5, 6, 7},
                             .token = {1, 2, 3, 4, 5, 6, 7, 8},
                             .parent = {-1, 0, 1, -1, 3, -1, 5, 6},
                             .next = {7, 7, 9, 8}});
  EXPECT_THAT(v.accepted, ElementsAre(3, 2, 2));
  EXPECT_THAT((std::vector(v.survivors.begin(), v.survivors.begin() + 7)), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// Samplers count by what was chosen, and the next step looks it up.
TEST(Verify, TellsWhatIsNoTokenAndLeavesOne) {
  const Verified v = verify({.seq_row = {0, 1, 2, 3, 4},
                             .out_row = {0, 1, 2, 3},
                             .token = {1, 2, 3, 4},
                             .parent = {-1, -1, -1, -1},
                             .next = {63, 64, -1, 1 << 30}});
  EXPECT_THAT(v.told, ElementsAre(63, 64, -1, 1 << 30));
  EXPECT_THAT(v.next, ElementsAre(63, 0, 0, 0));
}

// A long row is looked at in pieces.
TEST(Tell, FindsANumberThatIsNotFiniteAnywhereInARow) {
  constexpr size_t kVocab = 20000;
  for (const size_t at : {size_t{0}, size_t{8191}, size_t{8192}, size_t{16383}, size_t{16384}, kVocab - 1}) {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      Step step{.seq_row = {0, 1, 2, 3},
                .out_row = {0, 1, 2},
                .token = {1, 2, 3},
                .parent = {-1, -1, -1},
                .next = {5, 6, 7},
                .logits = std::vector(3, std::vector<float>(kVocab, 1.0F))};
      step.logits[1][at] = bad;
      EXPECT_THAT(verify(step).told, ElementsAre(5, sdk::kNoLogits, 7)) << bad << " at " << at;
    }
  }
}

// The rows of sequences in any slots are added to what is there; a text that begins, begins with nothing.
std::string pool(const conformance::Device& device, int64_t columns) {
  OpRunner host(OpRunner::bounds({.rows = 8, .seqs = 4, .slots = 4}), device);
  std::vector<float> x;
  for (int64_t i = 0; i < 8 * columns; ++i) x.push_back(static_cast<float>((i * 37) % 101) / 8);
  const tenon_tid rows = host.input(TENON_F32, {8, columns}, x);
  std::vector<float> pooled(static_cast<size_t>(4 * 2 * columns), 1.5F);
  const tenon_tid y = host.store(pooled.size() * sizeof(float));
  host.write(y, pooled.data());
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_POOL;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const tenon_device& table = device.table();
  if (table.record_step_op(table.self, &op, rows, y, host.recorder(), &why) != TENON_OK) return text;
  const std::vector<int32_t> seq_row = {0, 3, 4, 7}, seq_slot = {2, 0, 3}, kv_len = {9, 0, 0, 1};
  std::copy(seq_row.begin(), seq_row.end(), host.step_i32(TENON_STEP_SEQ_ROW).begin());
  std::copy(seq_slot.begin(), seq_slot.end(), host.step_i32(TENON_STEP_SEQ_SLOT).begin());
  std::copy(kv_len.begin(), kv_len.end(), host.step_i32(TENON_STEP_KV_LEN).begin());
  host.set_live(7, 3, 0);
  if (const std::string fault = host.run(1); !fault.empty()) return fault;
  for (size_t s = 0; s < seq_slot.size(); ++s) {
    const auto slot = static_cast<size_t>(seq_slot[s]);
    for (int64_t c = 0; c < columns; ++c) {
      float& sum = pooled[static_cast<size_t>((seq_slot[s] * 2) * columns + c)];
      if (kv_len[slot] == 0) sum = 0;
      for (int32_t row = seq_row[s]; row < seq_row[s + 1]; ++row) {
        sum += pooled[static_cast<size_t>((seq_slot[s] * 2 + 1) * columns + c)] =
            x[static_cast<size_t>(row * columns + c)];
      }
    }
  }
  return host.read<float>(y) == pooled ? "" : "another result";
}

TEST(Pool, AddsTheRowsOfEachSequenceAndKeepsItsLast) {
  for (const int64_t columns : {1, 63, 64, 65, 300})
    EXPECT_EQ(pool(conformance::Device::cpu(), columns), "") << columns;
}

TEST(Pool, OnAGpuToo) {
  const conformance::Device* gpu = device("cuda");
  if (gpu == nullptr) GTEST_SKIP() << "device.cuda is not to be had";
  for (const int64_t columns : {1, 63, 256, 257, 4096}) EXPECT_EQ(pool(*gpu, columns), "") << columns;
}

}  // namespace
}  // namespace tenon::test
