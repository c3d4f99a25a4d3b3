// These tests look at what is drawn: the same for the same input, something in every view, and pixels where the
// triangles are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "made_trace.h"
#include "tenon/core/error.h"
#include "ui/headless.h"

namespace tenon::view {
namespace {

struct Drawn {
  uint64_t hash = 0;
  size_t vertices = 0;
};

Drawn drawn(ViewId view, bool dark, int decodes = 8) {
  App app(dark, 1);
  add_document(app, std::make_shared<const Document>(made_trace(decodes)));
  add_document(app, std::make_shared<const Document>(made_trace(decodes, 23)));
  app.current = 0;
  app.view = view;
  Headless headless(1200, 700, 1);
  for (int i = 0; i < 3; ++i) headless.frame(app, {.mouse = {600, 300}});
  return {headless.vertex_hash(), headless.vertices()};
}

TEST(ViewPicture, TheSameInputDrawsTheSameVertices) {
  for (size_t v = 0; v < kViews; ++v) {
    const auto view = static_cast<ViewId>(v);
    const Drawn dark = drawn(view, true);
    EXPECT_EQ(dark.hash, drawn(view, true).hash) << kViewNames[v].option;
    EXPECT_NE(dark.hash, drawn(view, false).hash) << kViewNames[v].option;
    EXPECT_GT(dark.vertices, 400U) << kViewNames[v].option;
  }
  EXPECT_NE(drawn(ViewId::kTimeline, true).hash, drawn(ViewId::kTimeline, true, 9).hash);
}

TEST(ViewPicture, CostFollowsPixelsNotEvents) {
  const auto vertices = [](int n) {
    std::string text = "[";
    for (int i = 0; i < n; ++i) text += event({"s", "c", 1, 10 * i, 9});
    text.resize(text.size() - 2);
    App app(true, 1);
    add_document(app, std::make_shared<const Document>(profiler::read_trace_bytes(text + ']', "many.json")));
    Headless headless(1200, 700, 1);
    for (int i = 0; i < 3; ++i) headless.frame(app);
    return headless.vertices();
  };
  EXPECT_LT(vertices(100'000), vertices(300) + 2000);
}

TEST(ViewPicture, ATraceWithNothingForAViewSaysSo) {
  for (size_t v = 1; v < kViews; ++v) {
    App app(true, 1);
    add_document(app, std::make_shared<const Document>(profiler::read_trace_bytes(
                          R"([{"ph":"M","pid":1,"name":"process_name","args":{"name":"x"}}])", "empty.json")));
    app.view = static_cast<ViewId>(v);
    Headless headless(1200, 700, 1);
    headless.frame(app);
    EXPECT_GT(headless.vertices(), 100U) << kViewNames[v].option;
  }
}

TEST(ViewPicture, TimesNearTheEndsOfTheirRangeAreDrawn) {
  for (const char* ts : {"2190000000000000", "-2190000000000000", "1795300433403399.504"}) {
    App app(true, 1);
    const std::string event = std::string(R"({"ph":"X","pid":1,"tid":1,"dur":5,"name":"a","ts":)") + ts + '}';
    add_document(app, std::make_shared<const Document>(profiler::read_trace_bytes(
                          '[' + event + R"(,{"ph":"X","pid":1,"tid":1,"ts":0,"dur":1,"name":"b"}])", "far.json")));
    Headless headless(1200, 700, 1);
    for (int i = 0; i < 200; ++i) headless.frame(app, {.mouse = {1100, 300}, .wheel = 1, .key = 'W'});
    for (int i = 0; i < 200; ++i) headless.frame(app, {.mouse = {300, 300}, .wheel = -1, .key = 'D'});
    EXPECT_GT(headless.vertices(), 100U);
  }
}

TEST(ViewPicture, PixelsAreWhereTheVerticesAre) {
  App app(true, 1);
  add_document(app, std::make_shared<const Document>(made_trace()));
  Headless headless(1200, 700, 1);
  for (int i = 0; i < 3; ++i) headless.frame(app);
  const Image image = headless.picture(app);
  ASSERT_EQ(image.pixels.size(), 1200U * 700U);
  const ImU32 gemv = app.theme.of(Work::kGemv);
  EXPECT_GT(std::ranges::count(image.pixels, gemv), 500);
  EXPECT_GT(std::ranges::count(image.pixels, app.theme.background), 100'000);
  const std::string path = (std::filesystem::temp_directory_path() / "tenon-view-picture-test.png").string();
  write_png(image, path);
  EXPECT_GT(std::filesystem::file_size(path), 5'000U);
  std::filesystem::remove(path);
  EXPECT_THROW(write_png(image, "/nowhere/picture.png"), Error);
}

}  // namespace
}  // namespace tenon::view
