// The timeline shows tracks over time. What is drawn follows pixels: lanes out of sight are skipped, and slices that
// are too narrow to tell apart come folded. TimelineState's from_ns and to_ns count from the begin of the trace. keys()
// runs before tracks are drawn and mouse() after it, when hovered_ and the tops of tracks are known. A Timeline lives
// for one frame; TimelineState is what stays.
#include "ui/timeline.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ui/timeline_parts.h"
#include "ui/views.h"

namespace tenon::view {

ImU32 Timeline::colour(const TraceSlice& slice) const {
  const uint8_t work = document_.work[static_cast<size_t>(&slice - file_.slices.data())];
  return work < kWorks ? theme_.of(static_cast<Work>(work)) : colour_of(document_.shade[slice.name], theme_);
}

// Looks at a few slices spread over the box: the first one of a folded run is not what the run mostly shows.
const TraceSlice& Timeline::longest_of(const Box& box) const {
  constexpr uint32_t kSamples = 5;
  uint32_t longest = box.first;
  for (uint32_t i = 1; i < kSamples && box.count > 1; ++i) {
    const auto sample = box.first + static_cast<uint32_t>(uint64_t{box.count - 1} * i / (kSamples - 1));
    if (file_.slices[sample].duration_ns > file_.slices[longest].duration_ns) longest = sample;
  }
  return file_.slices[longest];
}

uint32_t Timeline::run() {
  const ImVec2 origin = ImGui::GetCursorScreenPos(), room = ImGui::GetContentRegionAvail();
  const float ruler = theme_.px(24), gutter = theme_.px(180);
  left_ = origin.x + gutter;
  right_ = origin.x + room.x - ImGui::GetStyle().ScrollbarSize;
  if (right_ - left_ < 50) return kNoIndex;
  if (state_.to_ns <= state_.from_ns) {
    show_range(state_, 0, std::max(1.0, since_begin(file_.end_ns)));
  }
  ns_per_px_ = (state_.to_ns - state_.from_ns) / (right_ - left_);
  if (pane_.takes_keys) keys();
  ns_per_px_ = (state_.to_ns - state_.from_ns) / (right_ - left_);
  top_ = origin.y + ruler;
  bottom_ = origin.y + room.y;
  draw_ruler();
  ImGui::SetCursorScreenPos({origin.x, top_});
  ImGui::BeginChild("tracks", {room.x, room.y - ruler}, false, ImGuiWindowFlags_NoScrollWithMouse);
  first_y_ = ImGui::GetCursorScreenPos().y;
  draw_tracks();
  draw_flows();
  mouse();
  ImGui::EndChild();
  draw_area();
  if (hovered_ == kNoIndex || state_.dragging) return kNoIndex;
  describe_box(app_, document_, hovered_box_);
  return hovered_box_.count == 1 ? hovered_ : kNoIndex;
}

void Timeline::draw_ruler() {
  const RulerSteps steps = ruler_steps(ns_per_px_ * theme_.px(110));
  draw_.AddRectFilled({gutter(), top_ - theme_.px(24)}, {right_, top_}, theme_.panel);
  draw_.PushClipRect({left_, top_ - theme_.px(24)}, {right_, bottom_}, true);
  const double first = std::floor((state_.from_ns - pane_.origin_ns) / steps.ns);
  for (int i = 0; i < 100; ++i) {
    const double at = (first + i) * steps.ns;
    const float x = std::round(x_of(at + pane_.origin_ns)) + 0.5F;
    if (x > right_) break;
    draw_.AddLine({x, top_ - theme_.px(6)}, {x, bottom_}, theme_.line);
    draw_.AddText({x + theme_.px(4), top_ - theme_.px(21)}, theme_.dim, ruler_text(at, steps).c_str());
  }
  if (!pane_.is_alone) {
    const float x = std::round(x_of(pane_.origin_ns)) + 0.5F;
    draw_.AddLine({x, top_ - theme_.px(24)}, {x, bottom_}, theme_.selection);
  }
  draw_.PopClipRect();
  const ImVec4 clip{gutter(), top_ - theme_.px(24), left_ - theme_.px(4), top_};
  draw_.AddText(nullptr, 0, {gutter() + theme_.px(6), top_ - theme_.px(21)}, theme_.text, pane_.label.c_str(), nullptr,
                0, &clip);
}

void Timeline::draw_tracks() {
  float y = first_y_;
  draw_.PushClipRect({gutter(), top_}, {right_, bottom_}, true);
  uint32_t process = kNoIndex;
  const float view_bottom = bottom_;
  for (uint32_t t = 0; t < file_.tracks.size(); ++t) {
    const profiler::TraceTrack& track = file_.tracks[t];
    const bool empty = track.depth() == 0 && track.first_instant == track.end_instant;
    track_tops_.push_back(y);
    if (empty) continue;
    if (track.process != process) {
      process = track.process;
      if (y + theme_.px(20) > top_ && y < view_bottom) {
        draw_.AddRectFilled({gutter(), y}, {right_, y + theme_.px(19)}, theme_.panel);
        draw_.AddText({left_ - theme_.px(174), y + theme_.px(1)}, theme_.text, file_.processes[process].name.c_str());
      }
      y += theme_.px(22);
      track_tops_.back() = y;
    }
    const float height = track_height(t);
    if (y + height > top_ && y < view_bottom) draw_track(t, y, height);
    y += height;
  }
  draw_.PopClipRect();
  track_tops_.push_back(y);
  ImGui::Dummy({1, y - first_y_});
}

void Timeline::draw_track(uint32_t index, float top, float height) {
  const profiler::TraceTrack& track = file_.tracks[index];
  const bool collapsed = state_.collapsed[index];
  const ImVec4 clip{gutter(), top, left_ - theme_.px(4), top + height};
  const std::string name = (track.depth() > 1 ? collapsed ? "+ " : "- " : "  ") + track.name;
  draw_.AddText(nullptr, 0, {gutter() + theme_.px(10), top}, theme_.dim, name.c_str(), nullptr, 0, &clip);
  draw_.AddLine({gutter(), top + height - theme_.px(3)}, {right_, top + height - theme_.px(3)}, theme_.line);
  draw_.PushClipRect({left_, top_}, {right_, bottom_}, true);
  for (size_t d = 0; d < (collapsed ? std::min<size_t>(1, track.depth()) : track.depth()); ++d) {
    const float lane_top = top + static_cast<float>(d) * lane_height();
    if (lane_top + lane_height() > top_ && lane_top < bottom_) draw_lane(track, d, lane_top);
  }
  draw_instants(track, top);
  draw_.PopClipRect();
}

void Timeline::draw_lane(const profiler::TraceTrack& track, size_t depth, float top) {
  const auto least = static_cast<int64_t>(std::max(1.0, kNarrowest * ns_per_px_));
  fold(file_,
       {.first = track.lanes[depth],
        .last = track.lanes[depth + 1],
        .from_ns = in_trace(state_.from_ns),
        .to_ns = in_trace(state_.to_ns) + 1,
        .min_ns = least},
       boxes_);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  for (const Box& box : boxes_) {
    draw_box(box, top);
    const bool over = mouse.y >= top && mouse.y < top + lane_height() && mouse.x >= x_of(box.begin_ns) &&
                      mouse.x < std::max(x_of(box.end_ns), x_of(box.begin_ns) + kNarrowest);
    if (over && mouse.x >= left_ && mouse.y >= top_ && mouse.y < bottom_ && ImGui::IsWindowHovered()) {
      hovered_ = box.first;
      hovered_box_ = box;
    }
  }
}

void Timeline::draw_box(const Box& box, float top) {
  const float x0 = std::max(x_of(box.begin_ns), left_ - 2);
  const float x1 = std::max(std::min(x_of(box.end_ns), right_ + 2), x0 + 1);
  const float y1 = top + lane_height() - 1;
  const TraceSlice& slice = file_.slices[box.first];
  const ImU32 fill = colour(longest_of(box));
  if (box.count > 1) {  // a folded run is hollow below
    const float bar = y1 - theme_.px(4);
    draw_.AddRectFilled({x0, top}, {x1, bar}, (fill & 0x00FFFFFFU) | 0x90000000U);
    draw_.AddRectFilled({x0, bar}, {x1, y1}, theme_.dim);
  } else {
    draw_.AddRectFilled({x0, top}, {x1 - (x1 - x0 > 4 ? 1.0F : 0.0F), y1}, fill);
  }
  if (!state_.is_found.empty() && state_.is_found[box.first]) draw_.AddRect({x0, top}, {x1, y1}, theme_.selection);
  draw_marks(box, {x0, top}, {x1, y1});
  if (x1 - x0 < theme_.px(24)) return;
  const ImVec4 clip{x0 + 2, top, x1 - 3, y1 + 2};
  const ImU32 ink = box.count > 1 ? theme_.text : text_on(fill);
  if (box.count > 1) {
    std::array<char, 24> text{};
    std::snprintf(text.data(), text.size(), "%u x", box.count);
    draw_.AddText(nullptr, 0, {x0 + theme_.px(3), top}, ink, text.data(), nullptr, 0, &clip);
  } else {
    const std::string_view name = file_.name(slice).substr(0, static_cast<size_t>((x1 - x0) / theme_.px(3)));
    draw_.AddText(nullptr, 0, {x0 + theme_.px(3), top}, ink, name.data(), name.data() + name.size(), 0, &clip);
  }
}

void Timeline::draw_marks(const Box& box, ImVec2 a, ImVec2 b) {
  const auto holds = [&box](uint32_t slice) { return slice >= box.first && slice - box.first < box.count; };
  if (holds(state_.selected)) draw_.AddRect(a, b, theme_.selection, 0, 0, theme_.px(2));
  if (pane_.same != nullptr && box.count == 1 && (*pane_.same)(file_.slices[box.first]))
    draw_.AddRect(a, b, theme_.text, 0, 0, theme_.px(1));
  if (!holds(pane_.twin)) return;
  const float out = theme_.px(2);  // it reaches out so that narrow ones are seen
  draw_.AddRect({a.x - out, a.y - out}, {b.x + out, b.y + out}, theme_.selection, 0, 0, theme_.px(2.5F));
}

void Timeline::draw_instants(const profiler::TraceTrack& track, float top) {
  const auto begin = file_.instants.begin();
  const auto last = begin + track.end_instant;
  const auto before = [this](const profiler::TraceInstant& i, double ns) { return since_begin(i.ns) < ns; };
  auto at = std::lower_bound(begin + track.first_instant, last, state_.from_ns, before);
  while (at != last && since_begin(at->ns) < state_.to_ns) {
    const float x = x_of(at->ns), size = theme_.px(5);
    draw_.AddTriangleFilled({x - size, top}, {x + size, top}, {x, top + 2 * size}, theme_.selection);
    at = std::lower_bound(at + 1, last, since_begin(at->ns) + kNarrowest * ns_per_px_, before);
  }
}

void Timeline::draw_flows() {
  if (state_.selected == kNoIndex) return;
  const auto middle = [this](uint32_t slice) {
    const TraceSlice& s = file_.slices[slice];
    const float y =
        track_tops_[s.track] + (state_.collapsed[s.track] ? 0.5F : static_cast<float>(s.depth) + 0.5F) * lane_height();
    return ImVec2{x_of(s.begin_ns), y};
  };
  draw_.PushClipRect({left_, top_}, {right_, bottom_}, true);
  size_t drawn = 0;
  for (const profiler::TraceFlow& flow : file_.flows) {
    if (flow.from != state_.selected && flow.to != state_.selected) continue;
    const ImVec2 a = middle(flow.from), b = middle(flow.to);
    const float bend = std::clamp(std::abs(b.x - a.x) / 2, 10.0F, 120.0F);
    draw_.AddBezierCubic(a, {a.x + bend, a.y}, {b.x - bend, b.y}, b, theme_.selection, theme_.px(1.5F));
    if (++drawn == 500) break;
  }
  draw_.PopClipRect();
}

// Returns the area from where the mouse went down to where it is.
Area Timeline::dragged_area() const {
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  int64_t from = in_trace(state_.drag_from_ns), to = in_trace(ns_at(mouse.x));
  uint32_t first = track_at(state_.drag_from.y), last = track_at(mouse.y);
  if (from > to) std::swap(from, to);
  if (first > last) std::swap(first, last);
  return {from, to, first, last + 1};
}

uint32_t Timeline::track_at(float y) const {
  for (uint32_t t = 0; t < file_.tracks.size(); ++t) {
    if (y < track_tops_[t + 1]) return t;
  }
  return static_cast<uint32_t>(file_.tracks.size());
}

void Timeline::draw_area() {
  if (!state_.dragging && !state_.area) return;
  const Area area = state_.dragging ? dragged_area() : *state_.area;
  const double from = since_begin(area.from_ns), to = since_begin(area.to_ns);
  const auto y_of = [this](uint32_t track) {
    return std::clamp(track_tops_[std::min<size_t>(track, file_.tracks.size())], top_, bottom_);
  };
  const float x0 = std::clamp(x_of(from), left_, right_), x1 = std::clamp(x_of(to), left_, right_);
  ImDrawList& over = *ImGui::GetWindowDrawList();
  over.AddRectFilled({x0, y_of(area.first_track)}, {x1, y_of(area.end_track)},
                     (theme_.selection & 0x00FFFFFFU) | 0x22000000U);
  over.AddLine({x0, top_ - theme_.px(24)}, {x0, bottom_}, theme_.selection);
  over.AddLine({x1, top_ - theme_.px(24)}, {x1, bottom_}, theme_.selection);
  const std::string text = duration_text(static_cast<int64_t>(to - from));
  const ImVec2 size = ImGui::CalcTextSize(text.c_str());
  const float x = std::clamp((x0 + x1 - size.x) / 2, left_, right_ - size.x);
  over.AddRectFilled({x - theme_.px(4), top_}, {x + size.x + theme_.px(4), top_ + size.y + theme_.px(2)}, theme_.panel);
  over.AddText({x, top_}, theme_.selection, text.c_str());
}

void show_range(TimelineState& state, double from_ns, double to_ns) {
  constexpr double kFar = 4e18;
  state.from_ns = std::clamp(from_ns, -kFar, kFar);
  state.to_ns = std::clamp(to_ns, state.from_ns + 1, kFar + 1);
}

void draw_timeline(App& app) {
  const TimelineState& state = app.timeline();
  const bool details = state.selected != kNoIndex || state.area || !state.found.empty();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float below = details ? std::min(room.y * 0.45F, app.theme.px(240)) : 0;
  ImGui::BeginChild("timeline", {0, room.y - below}, false,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
  const Document& document = app.document();
  const auto length = static_cast<double>(document.file.end_ns - document.file.begin_ns);
  Timeline(app, {document, app.timeline(), -0.01 * length, 1.01 * length + 1}).run();
  ImGui::EndChild();
  if (details) draw_details(app);
}

}  // namespace tenon::view
