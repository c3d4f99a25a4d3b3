// This tests the viewer under synthetic keys and mouse, without a window: ImGui draws into lists that nobody shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_trace.h"
#include "ui/headless.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

constexpr float kMainLane = 113;  // a y on the track "thread 7", first lane: bar, files, ruler and process are above

class ViewInteraction : public testing::Test {
 protected:
  ViewInteraction() {
    add_document(app, std::make_shared<const Document>(made_trace()));
    app.view = ViewId::kTimeline;
    for (int i = 0; i < 3; ++i) headless.frame(app);
  }

  void press(int pressed) {
    headless.frame(app, {.mouse = {700, 600}, .key = pressed});
    headless.frame(app, {.mouse = {700, 600}});
  }
  void click(ImVec2 at) {
    for (const bool down : {false, true, false, false}) headless.frame(app, {.mouse = at, .button = down});
  }
  // Returns the x at which the timeline shows this time, by its own state.
  float x_of(int64_t ns) {
    const TimelineState& t = app.timeline();
    const float left = 8 + 180, right = 1600 - 8 - ImGui::GetStyle().ScrollbarSize;
    return left + (right - left) * static_cast<float>((static_cast<double>(ns) - t.from_ns) / (t.to_ns - t.from_ns));
  }

  App app{true, 1};
  Headless headless{1600, 900, 1};
};

TEST_F(ViewInteraction, ShowsAllAtFirst) {
  EXPECT_EQ(app.timeline().from_ns, 0);
  EXPECT_EQ(app.timeline().to_ns, static_cast<double>(app.document().file.end_ns));
  EXPECT_GT(headless.vertices(), 1000U);
}

TEST_F(ViewInteraction, TheWheelZoomsAtTheCursor) {
  const double before = app.timeline().to_ns - app.timeline().from_ns;
  const float x = x_of(1'300'000);
  headless.frame(app, {.mouse = {x, 300}});
  headless.frame(app, {.mouse = {x, 300}, .wheel = 2});
  EXPECT_NEAR(app.timeline().to_ns - app.timeline().from_ns, before * 0.64, 1);
  EXPECT_NEAR(x_of(1'300'000), x, 0.5);
}

TEST_F(ViewInteraction, KeysMoveAndZoomAndFit) {
  press('W');
  const double from = app.timeline().from_ns, to = app.timeline().to_ns;
  EXPECT_LT(to - from, static_cast<double>(app.document().file.end_ns));
  press('D');
  EXPECT_GT(app.timeline().from_ns, from);
  EXPECT_NEAR(app.timeline().to_ns - app.timeline().from_ns, to - from, 1);
  press('A');
  EXPECT_NEAR(app.timeline().from_ns, from, 1);
  press('S');
  EXPECT_GT(app.timeline().to_ns - app.timeline().from_ns, to - from);
  press('F');
  EXPECT_LE(app.timeline().from_ns, 0);
  EXPECT_GE(app.timeline().to_ns, static_cast<double>(app.document().file.end_ns));
}

TEST_F(ViewInteraction, AClickSelectsAndFZoomsToIt) {
  click({x_of(500'000), kMainLane});
  ASSERT_NE(app.timeline().selected, kNoIndex);
  const TraceFile& file = app.document().file;
  EXPECT_EQ(file.name(file.slices[app.timeline().selected]), "ProfilerStep#0");
  press('F');
  EXPECT_NEAR(app.timeline().from_ns, -50'000, 1);
  EXPECT_NEAR(app.timeline().to_ns, 1'050'000, 1);
  press(key::kEscape);
  EXPECT_EQ(app.timeline().selected, kNoIndex);
}

TEST_F(ViewInteraction, ADragMeasuresAndSumsUp) {
  const float from = x_of(1'200'000), to = x_of(1'000'000);
  headless.frame(app, {.mouse = {from, kMainLane}});
  headless.frame(app, {.mouse = {from, kMainLane}, .button = true});
  headless.frame(app, {.mouse = {to, kMainLane + 10}, .button = true});
  EXPECT_FALSE(app.timeline().area);
  headless.frame(app, {.mouse = {to, kMainLane + 10}});
  ASSERT_TRUE(app.timeline().area);
  EXPECT_NEAR(static_cast<double>(app.timeline().area->to_ns - app.timeline().area->from_ns), 200'000, 3'000);
  EXPECT_EQ(app.timeline().area->end_track - app.timeline().area->first_track, 1U);
  EXPECT_FALSE(app.timeline().area_sums.rows.empty());
}

TEST_F(ViewInteraction, SearchGoesThroughAllResultsAndAround) {
  std::string("sampler").copy(app.search_text.data(), 7);
  search_timeline(app, 1);
  const size_t n = app.timeline().found.size();
  ASSERT_EQ(n, 8U);
  const uint32_t first = app.timeline().selected;
  press('N');
  EXPECT_NE(app.timeline().selected, first);
  for (size_t i = 1; i < n; ++i) press('N');
  EXPECT_EQ(app.timeline().selected, first);
  std::string("absent!").copy(app.search_text.data(), 7);
  search_timeline(app, 1);
  EXPECT_THAT(app.message, testing::HasSubstr("absent!"));
}

TEST_F(ViewInteraction, ATokensCellLeadsToItsStep) {
  app.view = ViewId::kTokens;
  for (int i = 0; i < 3; ++i) headless.frame(app);
  float y = 0;  // where the cells are: below the step strip
  for (y = 150; y < 400 && app.view == ViewId::kTokens; y += 10) click({90, y});
  ASSERT_EQ(app.view, ViewId::kTimeline);
  EXPECT_TRUE(
      app.document().file.name(app.document().file.slices[app.timeline().selected]).starts_with("ProfilerStep#"));
}

TEST_F(ViewInteraction, KeysChangeTheView) {
  press('3');
  EXPECT_EQ(app.view, ViewId::kTokens);
  press('1');
  press('.');
  EXPECT_NE(app.timeline().selected, kNoIndex);
  press('T');
  EXPECT_TRUE(app.wants_theme);
}

}  // namespace
}  // namespace tenon::view
