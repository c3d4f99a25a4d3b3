// This tests two timelines over one another, under synthetic keys and mouse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_trace.h"
#include "ui/headless.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

class ViewCompareView : public testing::Test {
 protected:
  ViewCompareView() {
    add_document(app, std::make_shared<const Document>(made_trace(8, 20)));
    add_document(app, std::make_shared<const Document>(made_trace(8, 23)));
    app.current = 0;
    app.view = ViewId::kCompare;
    for (int i = 0; i < 3; ++i) headless.frame(app);
  }

  PairState& state() { return *app.pair.value; }
  const TraceFile& file(size_t side) const { return app.documents[side]->file; }
  void press(int pressed, ImVec2 at = {-1, -1}) {
    headless.frame(app, {.mouse = at});
    headless.frame(app, {.mouse = at, .key = pressed});
    headless.frame(app, {.mouse = at});
  }
  void click(ImVec2 at) {
    for (const bool down : {false, true, false, false}) headless.frame(app, {.mouse = at, .button = down});
  }
  float x_of(double since_aligned_ns) const {
    const float left = 8 + 180, right = 1600 - 8 - ImGui::GetStyle().ScrollbarSize;
    const PairState& s = *app.pair.value;
    return left + (right - left) * static_cast<float>((since_aligned_ns - s.from_ns) / (s.to_ns - s.from_ns));
  }
  // Expects that both timelines show the same range, counted from the aligned moment.
  void expect_linked() {
    for (size_t side = 0; side < 2; ++side) {
      const TimelineState& t = state().timelines[side];
      EXPECT_NEAR(t.from_ns - state().pair.origin_ns(side), state().from_ns, 1);
      EXPECT_NEAR(t.to_ns - state().pair.origin_ns(side), state().to_ns, 1);
    }
  }
  std::string name(size_t side, uint32_t slice) const {
    return slice == kNoIndex ? "nothing" : std::string(file(side).name(file(side).slices[slice]));
  }

  App app{true, 1};
  Headless headless{1600, 900, 1};
  const ImVec2 kInB{900, 400};
};

TEST_F(ViewCompareView, BeginsAtTheFirstDecodeStepOfBoth) {
  expect_linked();
  EXPECT_EQ(state().pair.origin_ns(0), 1'010'000);
  EXPECT_LT(state().from_ns, 0);
  EXPECT_NEAR(state().to_ns, 110'000, 1'000);
}

TEST_F(ViewCompareView, ZoomAndPanAreLinked) {
  const double from = state().from_ns, to = state().to_ns;
  for (const ImVec2 at : {kInB, ImVec2{900, 180}}) {
    headless.frame(app, {.mouse = at});
    headless.frame(app, {.mouse = at, .wheel = 1});
    headless.frame(app, {.mouse = at});
    expect_linked();
  }
  EXPECT_NEAR(state().to_ns - state().from_ns, (to - from) * 0.64, 1);
  press('D', kInB);
  expect_linked();
  EXPECT_GT(state().from_ns, from);
  press('F', kInB);
  expect_linked();
  EXPECT_LE(state().from_ns, -1'010'000);
  EXPECT_GE(state().to_ns, static_cast<double>(file(1).end_ns) - 1'010'000);
}

TEST_F(ViewCompareView, KeysChooseTheStep) {
  press('.');
  press('.');
  EXPECT_EQ(state().pair.aligned(), 2);
  expect_linked();
  EXPECT_EQ(state().pair.origin_ns(1), 1'010'000 + 2 * 110'000);
  press(',');
  EXPECT_EQ(state().pair.aligned(), 1);
}

TEST_F(ViewCompareView, WhatIsHoveredIsMarkedInTheOther) {
  const float x = x_of(25'000);  // in layer 0's GEMV, which begins 15 us into the step
  float y = 150;
  for (; y < 300 && name(0, state().twins[0]) != "layers.0.mlp"; y += 6) headless.frame(app, {.mouse = {x, y}});
  ASSERT_EQ(name(0, state().twins[0]), "layers.0.mlp");
  ASSERT_EQ(name(1, state().twins[1]), "layers.0.mlp");
  EXPECT_EQ(file(0).slices[state().twins[0]].duration_ns, 20'000);
  EXPECT_EQ(file(1).slices[state().twins[1]].duration_ns, 23'000);
  EXPECT_EQ(file(1).slices[state().twins[1]].begin_ns, 1'025'000);
  EXPECT_EQ(state().same[1].path(), "layers.0.mlp/gemv");
  headless.frame(app, {.mouse = {x, 30}});
  EXPECT_EQ(state().twins[1], kNoIndex);

  click({x, y - 6});
  headless.frame(app, {.mouse = {x, 30}});
  EXPECT_EQ(name(1, state().timelines[1].selected), "layers.0.mlp") << "a click stays";
  EXPECT_NE(state().twins[1], kNoIndex);
  press(key::kEscape);
  EXPECT_EQ(state().timelines[1].selected, kNoIndex);
  EXPECT_EQ(state().twins[1], kNoIndex);
}

TEST_F(ViewCompareView, TheMarksAreDrawn) {
  const uint64_t plain = headless.vertex_hash();
  std::string("attention").copy(app.search_text.data(), 9);
  search_from(app, 1);
  for (int i = 0; i < 3; ++i) headless.frame(app);
  const uint64_t marked = headless.vertex_hash();
  EXPECT_NE(marked, plain);
  EXPECT_EQ(app.view, ViewId::kCompare);
  EXPECT_EQ(name(1, state().timelines[1].selected), "layers.0.attention");
  headless.frame(app);
  EXPECT_EQ(headless.vertex_hash(), marked) << "the same for the same input";
  search_from(app, 1);
  for (int i = 0; i < 3; ++i) headless.frame(app);
  EXPECT_NE(headless.vertex_hash(), marked);
}

TEST_F(ViewCompareView, ATraceWithoutStepsIsShownAllTheSame) {
  add_document(app, std::make_shared<const Document>(profiler::read_trace_bytes(
                        R"([{"ph":"X","pid":1,"tid":1,"ts":0,"dur":9,"name":"a"}])", "c.json")));
  app.view = ViewId::kCompare;
  for (int i = 0; i < 3; ++i) headless.frame(app);
  EXPECT_EQ(state().pair.origin_ns(0), 0);
  EXPECT_GE(state().to_ns, static_cast<double>(file(0).end_ns));
  expect_linked();
}

}  // namespace
}  // namespace tenon::view
