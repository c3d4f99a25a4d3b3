// This tests the view of requests under synthetic keys and mouse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/request_trace_text.h"
#include "ui/headless.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

class RequestsView : public testing::Test {
 protected:
  void open(const std::string& text) {
    add_document(app_, std::make_shared<const Document>(profiler::read_trace_bytes(text, "requests.json")));
    app_.view = ViewId::kRequests;
    for (int i = 0; i < 3; ++i) headless_.frame(app_);
  }
  RequestsState& state() { return *app_.requests.value; }
  void press(ImVec2 mouse, int key) {
    headless_.frame(app_, {.mouse = mouse, .key = key});
    headless_.frame(app_, {.mouse = mouse});
  }
  void click(ImVec2 at) {
    for (const bool down : {false, true, false, false}) headless_.frame(app_, {.mouse = at, .button = down});
  }
  // Clicks down a column until something is selected, and returns the y; 0: nothing was.
  float click_until_selected(float x) {
    for (float y = 150; y < 600; y += 10) {
      click({x, y});
      if (state().selected != kNoIndex) return y;
    }
    return 0;
  }

  App app_{true, 1};
  Headless headless_{1600, 900, 1};
};

TEST_F(RequestsView, DrawsABarForEachSortOfTime) {
  open(test::request_trace_text());
  const Image image = headless_.picture(app_);
  const Theme& theme = app_.theme;
  for (const ImU32 colour :
       {theme.of(Work::kGap), theme.bad, theme.good, theme.of(Work::kGemm), theme.of(Work::kGemv)}) {
    EXPECT_GT(std::ranges::count(image.pixels, colour), 100);
  }
  EXPECT_EQ(state().rows.size(), 4U);
}

TEST_F(RequestsView, AClickSelectsAndShowsWhoRanMeanwhile) {
  open(test::request_trace_text());
  const float y = click_until_selected(900);
  ASSERT_GT(y, 0);
  EXPECT_EQ(state().selected, 0U) << "the first row";
  EXPECT_TRUE(state().held_by.rows.empty());
  click({900, y + 40});
  ASSERT_EQ(state().selected, 2U);
  EXPECT_EQ(state().held_by.rows.size(), 2U);
  EXPECT_THAT(state().holders, testing::ElementsAre(0, 1));
  press({900, y}, 'F');
  EXPECT_GT(state().from_ns, 0);
  EXPECT_LT(state().to_ns, 60e6);
  press({900, y}, key::kEscape);
  EXPECT_EQ(state().selected, kNoIndex);
}

TEST_F(RequestsView, ASelectedRequestLeadsToItsSteps) {
  open(test::request_trace_text());
  ASSERT_GT(click_until_selected(900), 0);
  const RequestPart& prompt = app_.document().requests.all[0].stays[1].parts[0];
  const uint32_t step = app_.document().analysis.steps[steps_of(app_.document().analysis, prompt).first].slice;
  bool led_there = false;
  for (float y = 620; y < 890 && !led_there; y += 6) {
    for (float x = 480; x < 900 && !led_there; x += 8) {
      app_.view = ViewId::kRequests;
      headless_.frame(app_);
      click({x, y});
      led_there = app_.view == ViewId::kTimeline && app_.timeline().selected == step;
    }
  }
  EXPECT_TRUE(led_there) << "no button leads to the step of its prompt";
}

TEST_F(RequestsView, TheSearchSelectsByNumber) {
  open(test::request_trace_text());
  std::string("req 3").copy(app_.search_text.data(), 5);
  search_from(app_, 1);
  EXPECT_EQ(state().selected, 2U);
  std::string("req 7").copy(app_.search_text.data(), 5);
  search_from(app_, 1);
  EXPECT_EQ(state().selected, 2U);
  EXPECT_THAT(app_.message, testing::HasSubstr("req 7"));
}

TEST_F(RequestsView, KeysZoomAndMove) {
  open(test::request_trace_text());
  const double width = state().to_ns - state().from_ns;
  const ImVec2 mouse{900, 400};
  press(mouse, 'W');
  EXPECT_LT(state().to_ns - state().from_ns, width);
  const double from = state().from_ns;
  press(mouse, 'D');
  EXPECT_GT(state().from_ns, from);
  press(mouse, 'F');
  EXPECT_EQ(state().from_ns, 0);
  EXPECT_EQ(state().to_ns, width);
}

TEST_F(RequestsView, CostFollowsRowsThatAreVisible) {
  const auto vertices = [](int requests) {
    std::string text = "[";
    for (int i = 0; i < requests; ++i) {
      text += R"({"ph":"X","pid":2,"tid":101,"ts":)" + std::to_string(10 * i) +
              R"(,"dur":9,"cat":"request","name":"req","args":{"request":)" + std::to_string(i) + "}},";
    }
    text.back() = ']';
    App app(true, 1);
    add_document(app, std::make_shared<const Document>(profiler::read_trace_bytes(text, "many.json")));
    app.view = ViewId::kRequests;
    Headless headless(1600, 900, 1);
    for (int i = 0; i < 3; ++i) headless.frame(app);
    return headless.vertices();
  };
  EXPECT_LT(vertices(10'000), vertices(100) + 2000);
}

}  // namespace
}  // namespace tenon::view
