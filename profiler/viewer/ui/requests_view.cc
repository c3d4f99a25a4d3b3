// This shows who waited for whom: a row a request, with bars for waits, prompt chunks and decoding, over one time axis.
//
// Only rows that are visible are drawn, and of each at most a bar for each pixel, so that a frame costs no more for
// 10000 requests than for a screen of them.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ui/timeline_parts.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

struct Bar {
  int64_t begin_ns, end_ns;
  float y, height;  // pixels; y is the upper edge
  ImU32 colour;
  bool framed = false;  // wide ones have an edge, which tells neighbours apart
};

class RequestsView {
 public:
  RequestsView(App& app, RequestsState& state)
      : app_(app),
        theme_(app.theme),
        file_(app.document().file),
        requests_(app.document().requests),
        state_(state),
        draw_(*ImGui::GetWindowDrawList()) {}

  void run();

 private:
  void draw_head();
  void draw_legend() const;
  void draw_chart(float height);
  void scroll_to_wanted();
  void draw_ruler();
  void draw_row(uint32_t request, float y);
  void draw_stay(const RequestStay& stay, float y);
  void draw_bar(const Bar& bar) const;
  void draw_cached(const RequestLife& life, const RequestStay& stay, float y);
  void describe(uint32_t request, float x) const;
  void keys();
  void zoom(double factor, float at_x);
  void pan(double share);

  float row_height() const { return theme_.px(20); }
  float label_width() const { return theme_.px(250); }
  float x_of(int64_t ns) const {
    const double since = static_cast<double>(ns - file_.begin_ns) - state_.from_ns;
    const double x = left_ + since / ns_per_px_;
    return static_cast<float>(std::clamp<double>(x, left_ - 10, right_ + 10));
  }
  ImU32 queue_colour(bool again) const { return again ? theme_.bad : theme_.of(Work::kGap); }
  ImU32 prompt_colour() const { return theme_.of(Work::kGemm); }
  ImU32 decode_colour() const { return theme_.of(Work::kGemv); }
  ImU32 cached_colour() const { return theme_.good; }

  App& app_;
  const Theme& theme_;
  const TraceFile& file_;
  const Requests& requests_;
  RequestsState& state_;
  ImDrawList& draw_;
  float left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  double ns_per_px_ = 1;
  uint32_t hovered_ = kNoIndex;
};

ImU32 pale(ImU32 colour) {
  return (colour & 0x00FFFFFFU) | 0x60000000U;
}

void draw_choice(const char* title, std::span<const char* const> names, uint8_t& chosen) {
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("%s", title);
  for (size_t i = 0; i < names.size(); ++i) {
    ImGui::SameLine();
    ImGui::PushID(title);
    if (ImGui::RadioButton(names[i], chosen == i)) chosen = static_cast<uint8_t>(i);
    ImGui::PopID();
  }
}

void RequestsView::run() {
  draw_head();
  const float room = ImGui::GetContentRegionAvail().y;
  const float below = state_.selected == kNoIndex ? 0 : std::min(room * 0.45F, theme_.px(270));
  draw_chart(room - below);
  if (state_.selected != kNoIndex) draw_request_details(app_, state_);
}

void RequestsView::draw_head() {
  ImGui::TextUnformatted(request_summary(requests_).c_str());
  ImGui::BeginChild("percentiles", {0, 6.4F * ImGui::GetTextLineHeightWithSpacing()});
  draw_table(app_, state_.percentiles, "percentiles");
  ImGui::EndChild();
  auto order = static_cast<uint8_t>(state_.order);
  auto filter = static_cast<uint8_t>(state_.filter);
  draw_choice("by", kRequestOrders, order);
  ImGui::SameLine(0, theme_.px(24));
  draw_choice("show", kRequestFilters, filter);
  ImGui::SameLine(0, theme_.px(24));
  ImGui::SetNextItemWidth(theme_.px(80));
  float least = state_.min_wait_ms;
  ImGui::InputFloat("ms waited at least", &least, 0, 0, "%.1f");
  least = std::clamp(least, 0.0F, 1e9F);
  const bool same = order == static_cast<uint8_t>(state_.order) && filter == static_cast<uint8_t>(state_.filter) &&
                    least == state_.min_wait_ms;
  if (!same) {
    state_.order = static_cast<RequestOrder>(order);
    state_.filter = static_cast<RequestFilter>(filter);
    state_.min_wait_ms = least;
    state_.rows = request_rows(requests_, state_.order, state_.filter, static_cast<int64_t>(double{least} * 1e6));
  }
  draw_legend();
}

void RequestsView::draw_legend() const {
  const auto entry = [&](ImU32 colour, const char* text) {
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float size = ImGui::GetTextLineHeight();
    draw_.AddRectFilled({at.x, at.y + 2}, {at.x + size - 4, at.y + size - 2}, colour);
    ImGui::Dummy({size, size});
    ImGui::SameLine(0, theme_.px(2));
    ImGui::TextUnformatted(text);
    ImGui::SameLine(0, theme_.px(14));
  };
  entry(queue_colour(false), "queue, rest");
  entry(queue_colour(true), "waits after a pre-emption");
  entry(cached_colour(), "share of the prompt found in the cache");
  entry(prompt_colour(), "prompt");
  entry(decode_colour(), "decode");
  ImGui::TextDisabled("Ctrl+wheel, W S zoom, A D move, F fits; a click selects");
}

void RequestsView::draw_chart(float height) {
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const float ruler = theme_.px(24);
  left_ = origin.x + label_width();
  right_ = origin.x + ImGui::GetContentRegionAvail().x - ImGui::GetStyle().ScrollbarSize;
  top_ = origin.y + ruler;
  bottom_ = origin.y + height - theme_.px(4);
  if (right_ - left_ < 10 || bottom_ - top_ < 10) return;
  if (state_.to_ns <= state_.from_ns) {
    state_.from_ns = 0;
    state_.to_ns = static_cast<double>(std::max<int64_t>(1, file_.end_ns - file_.begin_ns));
  }
  ns_per_px_ = (state_.to_ns - state_.from_ns) / (right_ - left_);
  draw_ruler();
  ImGui::SetCursorScreenPos({origin.x, top_});
  ImGui::BeginChild("rows", {0, bottom_ - top_});
  scroll_to_wanted();
  const float first_y = ImGui::GetCursorScreenPos().y;
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  const bool over = ImGui::IsWindowHovered() && mouse.x < right_;
  ImDrawList& rows = *ImGui::GetWindowDrawList();
  rows.PushClipRect({origin.x, top_}, {right_, bottom_}, true);
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(state_.rows.size()), row_height());
  while (clipper.Step()) {
    for (int r = clipper.DisplayStart; r < clipper.DisplayEnd; ++r) {
      const float y = first_y + static_cast<float>(r) * row_height();
      const uint32_t request = state_.rows[static_cast<size_t>(r)];
      if (over && mouse.y >= y && mouse.y < y + row_height()) hovered_ = request;
      draw_row(request, y);
    }
  }
  rows.PopClipRect();
  ImGui::SetCursorScreenPos({origin.x, first_y});
  ImGui::Dummy({1, static_cast<float>(state_.rows.size()) * row_height()});
  if (over) keys();
  if (hovered_ != kNoIndex) {
    describe(hovered_, mouse.x);
    if (ImGui::IsMouseClicked(0)) state_.select(requests_, hovered_);
  }
  ImGui::EndChild();
}

void RequestsView::scroll_to_wanted() {
  const uint32_t wanted = std::exchange(state_.scroll_to, kNoIndex);
  const auto row = std::ranges::find(state_.rows, wanted);
  if (wanted == kNoIndex || row == state_.rows.end()) return;
  const float y = static_cast<float>(row - state_.rows.begin()) * row_height();
  ImGui::SetScrollY(std::max(0.0F, y - (bottom_ - top_) / 2));
}

void RequestsView::draw_ruler() {
  const RulerSteps steps = ruler_steps(ns_per_px_ * theme_.px(110));
  draw_.AddRectFilled({left_ - label_width(), top_ - theme_.px(24)}, {right_, top_}, theme_.panel);
  draw_.PushClipRect({left_, top_ - theme_.px(24)}, {right_, bottom_}, true);
  const double first = std::floor(state_.from_ns / steps.ns);
  for (int i = 0; i < 100; ++i) {
    const double at = (first + i) * steps.ns;
    const auto x = static_cast<float>(std::round(left_ + (at - state_.from_ns) / ns_per_px_)) + 0.5F;
    if (x > right_) break;
    draw_.AddLine({x, top_ - theme_.px(6)}, {x, bottom_}, theme_.line);
    draw_.AddText({x + theme_.px(4), top_ - theme_.px(21)}, theme_.dim, ruler_text(at, steps).c_str());
  }
  draw_.PopClipRect();
}

void RequestsView::draw_row(uint32_t request, float y) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const RequestLife& life = requests_.all[request];
  const float begin = left_ - label_width();
  const bool selected = request == state_.selected;
  const bool held = std::ranges::binary_search(state_.holders, request);
  if (selected || request == hovered_) draw.AddRectFilled({begin, y}, {right_, y + row_height()}, theme_.panel);
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "req %lld  %lld + %lld tok  %.*s", static_cast<long long>(life.id),
                static_cast<long long>(life.prompt), static_cast<long long>(life.generated),
                static_cast<int>(life.end.size()), life.end.empty() ? "" : life.end.data());
  const ImVec4 clip{begin, y, left_ - theme_.px(4), y + row_height()};
  const ImU32 ink = selected || held ? theme_.selection : theme_.text;
  draw.AddText(nullptr, 0, {begin + theme_.px(4), y + theme_.px(2)}, ink, text.data(), nullptr, 0, &clip);
  draw.PushClipRect({left_, y}, {right_, y + row_height()}, true);
  for (const RequestStay& stay : life.stays) draw_stay(stay, y);
  const auto first = std::ranges::find_if(life.stays, [](const RequestStay& stay) { return !stay.waits(); });
  if (first != life.stays.end()) draw_cached(life, *first, y);
  if (life.first_token_ns != profiler::kNoTime) {
    const float x = x_of(life.first_token_ns);
    draw.AddLine({x, y + 1}, {x, y + row_height() - 1}, theme_.text);
  }
  draw.PopClipRect();
}

void RequestsView::draw_bar(const Bar& bar) const {
  const float a = x_of(bar.begin_ns), b = std::max(a + 1, x_of(bar.end_ns)), below = bar.y + bar.height;
  if (b < left_ || a > right_) return;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled({a, bar.y}, {b, below}, bar.colour);
  if (bar.framed && b - a > theme_.px(4)) draw.AddRect({a, bar.y}, {b, below}, theme_.background);
}

// A wait is thin. A stay is pale for its whole length, with what it ran in solid colour on it, and rests on that.
void RequestsView::draw_stay(const RequestStay& stay, float y) {
  const float height = row_height() - theme_.px(4), top = y + theme_.px(2);
  const float thin = height * 0.4F;
  if (stay.waits()) {
    draw_bar({stay.begin_ns, stay.end_ns, top + (height - thin) / 2, thin, queue_colour(stay.again)});
    return;
  }
  draw_bar({stay.begin_ns, stay.end_ns, top, height, pale(theme_.dim)});
  float drawn_to = left_ - 1;
  for (const RequestPart& part : stay.parts) {
    if (x_of(part.end_ns) <= drawn_to) continue;  // it lies within a pixel that is drawn
    draw_bar({part.begin_ns, part.end_ns, top, height, part.is_prompt ? prompt_colour() : decode_colour(), true});
    drawn_to = std::max(x_of(part.begin_ns) + 1, std::floor(x_of(part.end_ns)));
  }
  for (const RequestPart& rest : stay.rests) {
    draw_bar({rest.begin_ns, rest.end_ns, top + (height - thin) / 2, thin, queue_colour(false)});
  }
  if (stay.lost.empty()) return;
  const float x = x_of(stay.end_ns);
  ImGui::GetWindowDrawList()->AddTriangleFilled({x - theme_.px(5), top}, {x + theme_.px(5), top},
                                                {x, top + theme_.px(8)}, theme_.bad);
}

// Tokens that the cache had take no time: they are a gauge at the begin of the stay, full if it had all of the prompt.
void RequestsView::draw_cached(const RequestLife& life, const RequestStay& stay, float y) {
  if (life.cached <= 0 || life.prompt <= 0) return;
  const float share = std::min(1.0F, static_cast<float>(life.cached) / static_cast<float>(life.prompt));
  const float height = row_height() - theme_.px(4), top = y + theme_.px(2), x = x_of(stay.begin_ns);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  draw.AddRectFilled({x, top}, {x + theme_.px(6), top + height}, theme_.background);
  draw.AddRectFilled({x, top + height * (1 - share)}, {x + theme_.px(6), top + height}, cached_colour());
}

void RequestsView::describe(uint32_t request, float x) const {
  const RequestLife& life = requests_.all[request];
  ImGui::BeginTooltip();
  ImGui::Text("req %lld", static_cast<long long>(life.id));
  if (ImGui::BeginTable("facts", 2, ImGuiTableFlags_SizingFixedFit)) {
    for (const Table::Row& row : request_facts(requests_, request).rows) {
      ImGui::TableNextColumn();
      ImGui::TextDisabled("%s", row.cells[0].text.c_str());
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(row.cells[1].text.c_str());
    }
    ImGui::EndTable();
  }
  const auto ns = file_.begin_ns + static_cast<int64_t>(state_.from_ns + (x - left_) * ns_per_px_);
  for (const RequestStay& stay : life.stays) {
    if (ns < stay.begin_ns || ns >= stay.end_ns) continue;
    ImGui::TextDisabled("here: %s for %s", stay.waits() ? "waits" : ("slot " + std::to_string(stay.slot)).c_str(),
                        duration_text(stay.duration_ns()).c_str());
    for (const RequestPart& part : stay.parts) {
      if (ns < part.begin_ns || ns >= part.end_ns) continue;
      ImGui::TextDisabled("%s: %lld tokens in %s", part.is_prompt ? "a chunk of the prompt" : "decode",
                          static_cast<long long>(part.rows), duration_text(part.end_ns - part.begin_ns).c_str());
    }
  }
  ImGui::EndTooltip();
}

void RequestsView::zoom(double factor, float at_x) {
  const double share = std::clamp((at_x - left_) / (right_ - left_), 0.0F, 1.0F);
  const double at = state_.from_ns + share * (state_.to_ns - state_.from_ns);
  const double most = 4.0 * static_cast<double>(std::max<int64_t>(1, file_.end_ns - file_.begin_ns));
  const double width = std::clamp((state_.to_ns - state_.from_ns) * factor, 1000.0, std::max(1000.0, most));
  state_.from_ns = at - width * share;
  state_.to_ns = at + width * (1 - share);
}

void RequestsView::pan(double share) {
  const double by = (state_.to_ns - state_.from_ns) * share;
  state_.from_ns += by;
  state_.to_ns += by;
}

void RequestsView::keys() {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput) return;
  const float at = std::clamp(io.MousePos.x, left_, right_);
  if (io.KeyCtrl && io.MouseWheel != 0) zoom(std::pow(0.8, io.MouseWheel), at);
  if (io.KeyCtrl) return;
  const double speed = std::min(0.1, static_cast<double>(io.DeltaTime)) * (io.KeyShift ? 4 : 1);
  if (ImGui::IsKeyDown('W')) zoom(std::exp(-2.5 * speed), at);
  if (ImGui::IsKeyDown('S')) zoom(std::exp(2.5 * speed), at);
  if (ImGui::IsKeyDown('A') || ImGui::IsKeyDown(key::kLeft)) pan(-speed);
  if (ImGui::IsKeyDown('D') || ImGui::IsKeyDown(key::kRight)) pan(speed);
  if (ImGui::IsKeyPressed('F', false)) state_.fit(requests_, file_);
  if (ImGui::IsKeyPressed(key::kEscape, false)) state_.select(requests_, kNoIndex);
}

}  // namespace

void draw_requests(App& app) {
  const Requests& requests = app.document().requests;
  if (requests.all.empty()) {
    return draw_missing(
        app,
        "This trace has no requests: no slices of the categories request and request_queue, which Tenon "
        "writes on the tracks of the process \"requests\".");
  }
  RequestsView(app, requests_state(app)).run();
}

}  // namespace tenon::view
