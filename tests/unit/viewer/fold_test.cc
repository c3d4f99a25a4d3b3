// Folding loses no slice, and its cost follows pixels.
#include "model/fold.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "made_trace.h"

namespace tenon::view {
namespace {

using profiler::TraceFile;

TraceFile random_lane(int n) {
  std::mt19937 random(7);
  std::string text = "[";
  int at = 0;
  for (int i = 0; i < n; ++i) {
    at += static_cast<int>(random() % 20);
    const int duration = static_cast<int>(random() % (i % 50 == 0 ? 500 : 8)) + 1;
    text += event({"s", "c", 1, at, duration});
    at += duration;
  }
  text.resize(text.size() - 2);
  return profiler::read_trace_bytes(text + ']', "lane.json");
}

std::vector<Box> boxes(const TraceFile& file, int64_t from, int64_t to, int64_t least) {
  std::vector<Box> out;
  fold(file, {file.tracks[0].lanes[0], file.tracks[0].lanes[1], from, to, least}, out);
  return out;
}

TEST(ViewFold, EverySliceIsInExactlyOneBox) {
  const TraceFile file = random_lane(5000);
  for (const int64_t least : {1LL, 3'000LL, 50'000LL, 1'000'000LL, 1'000'000'000LL}) {
    uint32_t next = 0;
    int64_t end = -1;
    for (const Box& box : boxes(file, file.begin_ns, file.end_ns + 1, least)) {
      ASSERT_EQ(box.first, next);
      ASSERT_EQ(box.begin_ns, file.slices[box.first].begin_ns);
      ASSERT_EQ(box.end_ns, file.slices[box.first + box.count - 1].end_ns());
      ASSERT_GE(box.begin_ns, end);
      for (uint32_t i = box.first; box.count > 1 && i < box.first + box.count; ++i) {
        ASSERT_LT(file.slices[i].duration_ns, least) << "a slice that can be told apart was folded";
      }
      end = box.end_ns;
      next += box.count;
    }
    EXPECT_EQ(next, file.slices.size());
  }
}

TEST(ViewFold, CostFollowsPixels) {
  const TraceFile file = random_lane(50'000);
  const int64_t width = file.end_ns - file.begin_ns;
  EXPECT_LE(boxes(file, file.begin_ns, file.end_ns, width / 500).size(), 502U);
}

TEST(ViewFold, ARangeGivesWhatLiesInIt) {
  const TraceFile file = random_lane(5000);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const auto from = static_cast<int64_t>(random() % static_cast<uint64_t>(file.end_ns));
    const int64_t to = from + 1 + static_cast<int64_t>(random() % 100'000);
    uint32_t count = 0, expected = 0;
    for (const Box& box : boxes(file, from, to, 1)) count += box.count;
    for (const auto& s : file.slices) expected += s.end_ns() >= from && s.begin_ns < to ? 1 : 0;
    ASSERT_EQ(count, expected) << from << ' ' << to;
  }
}

}  // namespace
}  // namespace tenon::view
