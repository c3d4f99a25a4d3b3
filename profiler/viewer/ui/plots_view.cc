// This view shows each counter over the whole trace; without counters, the tokens per second that the steps give. A
// value holds until the next one. A pixel stands for all values in it, from the least to the most, so none is lost;
// plots out of sight are skipped.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ui/timeline_parts.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

using Point = profiler::TraceCounter::Point;

std::string value_text(const std::string& name, double value) {
  if (name.find("bytes") != std::string::npos) return bytes_text(value);
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

void draw_plot(App& app, const std::string& name, const std::vector<Point>& points) {
  const Theme& theme = app.theme;
  const TraceFile& file = app.document().file;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 a = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, height = theme.px(120), top = a.y + theme.px(20),
              bottom = a.y + height;
  ImGui::Dummy({width, height + theme.px(8)});
  if (!ImGui::IsItemVisible()) return;
  double least = 0, most = 0;
  for (const Point& p : points) {
    least = std::min(least, p.value);
    most = std::max(most, p.value);
  }
  const double range = most > least ? most - least : 1;
  const auto length = static_cast<double>(std::max<int64_t>(1, file.end_ns - file.begin_ns));
  const auto x_of = [&](int64_t ns) {
    return a.x + width * static_cast<float>(static_cast<double>(ns - file.begin_ns) / length);
  };
  const auto y_of = [&](double value) { return bottom - (bottom - top) * static_cast<float>((value - least) / range); };
  draw.AddRectFilled({a.x, top}, {a.x + width, bottom}, theme.panel);
  draw.AddText(a, theme.text, (name + "   " + value_text(name, least) + " to " + value_text(name, most)).c_str());
  // Each pixel is a column from the least to the most of what lies in it; a value holds until the next one.
  for (size_t i = 0; i < points.size();) {
    const float x = std::floor(x_of(points[i].ns));
    double low = points[i].value, high = low;
    size_t j = i + 1;
    for (; j < points.size() && x_of(points[j].ns) < x + 1; ++j) {
      low = std::min(low, points[j].value);
      high = std::max(high, points[j].value);
    }
    const float next = j < points.size() ? std::floor(x_of(points[j].ns)) : a.x + width;
    const double last = points[j - 1].value;
    draw.AddRectFilled({x, y_of(high)}, {x + 1.5F, std::max(y_of(low), y_of(high) + 1.5F)}, theme.of(Work::kGemv));
    draw.AddRectFilled({x, y_of(last)}, {next, bottom}, (theme.of(Work::kGemv) & 0x00FFFFFFU) | 0x50000000U);
    draw.AddRectFilled({x, y_of(last) - 1}, {next, y_of(last) + 1}, theme.of(Work::kGemv));
    i = j;
  }
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  if (!ImGui::IsItemHovered() || points.empty()) return;
  const int64_t at = file.begin_ns + static_cast<int64_t>(static_cast<double>((mouse.x - a.x) / width) * length);
  const auto after = std::ranges::upper_bound(points, at, {}, &Point::ns);
  draw.AddLine({mouse.x, top}, {mouse.x, bottom}, theme.selection);
  if (ImGui::IsMouseClicked(0)) {
    const auto middle = static_cast<double>(at - file.begin_ns);
    app.view = ViewId::kTimeline;
    show_range(app.timeline(), middle - 0.01 * length, middle + 0.01 * length);
  }
  if (after == points.begin())
    return ImGui::SetTooltip("no value before %s", duration_text(after->ns - file.begin_ns).c_str());
  const Point& point = *(after - 1);
  ImGui::SetTooltip("%s since %s", value_text(name, point.value).c_str(),
                    duration_text(point.ns - file.begin_ns).c_str());
}

void draw_time_axis(const App& app) {
  const Theme& theme = app.theme;
  const ImVec2 a = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const auto length =
      static_cast<double>(std::max<int64_t>(1, app.document().file.end_ns - app.document().file.begin_ns));
  const RulerSteps steps = ruler_steps(length / static_cast<double>(width) * static_cast<double>(theme.px(110)));
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  for (double ns = 0; ns < length; ns += steps.ns) {
    const float x = std::round(a.x + width * static_cast<float>(ns / length)) + 0.5F;
    draw.AddLine({x, a.y}, {x, a.y + theme.px(6)}, theme.dim);
    draw.AddText({x + theme.px(4), a.y}, theme.dim, ruler_text(ns, steps).c_str());
  }
  ImGui::Dummy({width, theme.px(22)});
}

}  // namespace

void draw_plots(App& app) {
  const Document& document = app.document();
  ImGui::BeginChild("plots");
  for (const profiler::TraceCounter& counter : document.file.counters) draw_plot(app, counter.name, counter.points);
  if (!document.file.counters.empty()) draw_time_axis(app);
  if (document.file.counters.empty()) {
    draw_missing(app, "This trace has no counters (kv_used_bytes, tok_per_s and the like).");
    std::vector<Point> rate;
    for (const Step& step : document.analysis.steps) {
      const auto n = static_cast<double>(step.n_tokens);
      if (n > 0 && step.duration_ns > 0)
        rate.push_back({step.begin_ns, n * 1e9 / static_cast<double>(step.duration_ns)});
    }
    if (!rate.empty()) {
      draw_plot(app, "tokens a second, from the steps", rate);
      draw_time_axis(app);
    }
  }
  ImGui::EndChild();
}

}  // namespace tenon::view
