// The trace's own reader sees a schedule that is known to the step: every slice, and what is worked out from them.
#include "support/known_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "temp_folder.h"
#include "tenon/profiler/request_stats.h"
#include "tenon/profiler/trace_check.h"
#include "tenon/profiler/trace_file.h"

namespace tenon::profiler {
namespace {

using testing::ElementsAre;

std::string value_of(const TraceFile& file, const TraceArg& arg) {
  return arg.kind == TraceArg::Kind::kText ? std::string(file.strings[arg.text]) : std::to_string(arg.integer);
}

// Returns "slot 0|req 1|request=1 prompt=40 ...", without times.
std::string line_of(const TraceFile& file, const TraceTrack& track, uint32_t name, uint32_t args) {
  std::string line = track.name + '|' + std::string(file.strings[name]) + '|';
  for (const TraceArg& arg : file.args.all(args)) {
    const std::string_view key = file.strings[arg.key];
    if (key == "waited_us") continue;
    line += (line.back() == '|' ? "" : " ") + std::string(key) + '=' + value_of(file, arg);
  }
  return line;
}

std::vector<std::string> lines_of(const TraceFile& file) {
  std::vector<std::string> lines;
  for (const TraceTrack& track : file.tracks) {
    if (file.processes[track.process].name != "requests" || track.lanes.empty()) continue;
    for (uint32_t i = track.lanes.front(); i < track.lanes.back(); ++i) {
      lines.push_back(line_of(file, track, file.slices[i].name, file.slices[i].args));
    }
    for (uint32_t i = track.first_instant; i < track.end_instant; ++i) {
      lines.push_back(line_of(file, track, file.instants[i].name, file.instants[i].args));
    }
  }
  std::ranges::sort(lines);
  return lines;
}

std::vector<std::string> expected_lines() {
  std::ifstream file(std::string(TENON_SOURCE_DIR) + "/tests/data/trace/known_schedule.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') lines.push_back(line);
  }
  std::ranges::sort(lines);
  return lines;
}

class KnownSchedule : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const TempFolder folder;
    const std::string path = folder.file("schedule.json");
    test::record_known_schedule(path);
    report_ = check_trace(path);
    file_ = std::make_unique<TraceFile>(read_trace(path));
  }
  static void TearDownTestSuite() { file_.reset(); }

  static CheckReport report_;
  static std::unique_ptr<TraceFile> file_;
};

CheckReport KnownSchedule::report_;
std::unique_ptr<TraceFile> KnownSchedule::file_;

TEST_F(KnownSchedule, GivesExactlyTheSlices) {
  EXPECT_TRUE(report_.ok());
  EXPECT_THAT(file_->notices, ElementsAre());
  EXPECT_THAT(lines_of(*file_), testing::ElementsAreArray(expected_lines()));
}

// Each chunk lies within the slice of the step that it names, and within its request's stay.
TEST_F(KnownSchedule, ChunksLieInTheirSteps) {
  std::map<int64_t, const TraceSlice*> steps;
  for (const TraceSlice& slice : file_->slices) {
    if (file_->name(slice).starts_with("ProfilerStep#"))
      steps[static_cast<int64_t>(*file_->number(slice, "step"))] = &slice;
  }
  const Requests requests = requests_of(*file_);
  ASSERT_EQ(requests.all.size(), 5U);
  constexpr int64_t kClocks = 100'000;  // two clocks of the machine may differ by so much, in nanoseconds
  size_t chunks = 0;
  for (const RequestLife& life : requests.all) {
    for (const RequestStay& stay : life.stays) {
      for (const RequestPart& part : stay.parts) {
        ASSERT_TRUE(steps.contains(part.first_step));
        EXPECT_GE(part.begin_ns, stay.begin_ns);
        EXPECT_LE(part.end_ns, stay.end_ns);
        if (!part.is_prompt) continue;
        ++chunks;
        const TraceSlice& step = *steps.at(part.first_step);
        EXPECT_GE(part.begin_ns, step.begin_ns - kClocks);
        EXPECT_LE(part.end_ns, step.end_ns());
      }
    }
  }
  EXPECT_GT(chunks, 5U);
}

TEST_F(KnownSchedule, SaysWhoWaitedForWhom) {
  const Requests requests = requests_of(*file_);
  EXPECT_EQ(requests.slots, 2);
  std::vector<int64_t> ids, held;
  for (const RequestLife& life : requests.all) ids.push_back(life.id);
  EXPECT_THAT(ids, ElementsAre(1, 2, 3, 4, 5));
  const RequestWait wait = who_ran_meanwhile(requests, 2);
  for (const RequestHolder& holder : wait.holders) held.push_back(requests.all[holder.request].id);
  EXPECT_THAT(held, testing::UnorderedElementsAre(1, 2)) << "both slots, until the second was pre-empted";
  EXPECT_GT(wait.no_slot_ns, 0);
  EXPECT_LT(wait.no_slot_ns, wait.waited_ns) << "then a slot was free, but too few pages";
  for (const RequestLife& life : requests.all) EXPECT_EQ(life.preemptions(), life.id == 2 ? 1U : 0U);
  EXPECT_EQ(requests.all[1].stays[1].lost, "pages");
  EXPECT_EQ(requests.all[1].stays[1].taker, 1);
  EXPECT_EQ(requests.all[3].end, "cancelled");
}

TEST(KnownPreemption, IsForTheRequestThatGotTheSlot) {
  const TempFolder folder;
  const std::string path = folder.file("priority.json");
  test::record_requests(path, [](Engine& engine) {
    engine.submit(test::scheduled_request(0, 8, 1, 12));
    engine.submit(test::scheduled_request(0, 8, 2, 12));
    for (int i = 0; i < 4; ++i) engine.step();
    Request urgent = test::scheduled_request(0, 8, 3, 4);
    urgent.priority = 1;
    engine.submit(std::move(urgent));
    while (engine.step()) {
    }
  });
  const TraceFile file = read_trace(path);
  const Requests requests = requests_of(file);
  ASSERT_EQ(requests.all.size(), 3U);
  EXPECT_EQ(requests.all[2].priority, 1);
  ASSERT_EQ(requests.all[1].preemptions(), 1U);
  EXPECT_EQ(requests.all[1].stays[1].lost, "slot");
  EXPECT_EQ(requests.all[1].stays[1].taker, 3);
}

}  // namespace
}  // namespace tenon::profiler
