// The timeline: tracks over time. What is drawn follows pixels: lanes out of sight are skipped, slices too narrow to
// tell apart come folded.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "model/fold.h"
#include "ui/timeline_parts.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

constexpr float kNarrowest = 3;  // pixels of a slice that is drawn by itself

class Timeline {
 public:
  explicit Timeline(App& app)
      : app_(app),
        document_(app.document()),
        file_(document_.file),
        state_(app.timeline()),
        theme_(app.theme),
        draw_(*ImGui::GetWindowDrawList()) {}

  void run();

 private:
  void draw_ruler();
  void draw_tracks();
  void draw_track(uint32_t index, float top, float height);
  void draw_lane(const profiler::TraceTrack& track, size_t depth, float top);
  void draw_box(const Box& box, float top);
  void draw_instants(const profiler::TraceTrack& track, float top);
  void draw_flows();
  void draw_area();
  void keys();
  void mouse();
  void click(bool twice);
  void zoom(double factor, float at_x);
  void pan(double share);
  void step_by(int direction);

  // Times of the trace are counted from its begin here, so that doubles hold nanoseconds.
  double since_begin(int64_t ns) const { return static_cast<double>(ns - file_.begin_ns); }
  int64_t in_trace(double ns) const { return file_.begin_ns + static_cast<int64_t>(ns); }
  float x_of(double ns) const { return static_cast<float>(left_ + (ns - state_.from_ns) / ns_per_px_); }
  float x_of(int64_t ns) const { return x_of(since_begin(ns)); }
  double ns_at(float x) const { return state_.from_ns + (x - left_) * ns_per_px_; }
  float lane_height() const { return theme_.px(18); }
  float track_height(uint32_t index) const {
    const size_t depth = file_.tracks[index].depth();
    const size_t lanes = state_.collapsed[index] ? 1 : std::max<size_t>(1, depth);
    return static_cast<float>(lanes) * lane_height() + theme_.px(6);
  }
  uint32_t track_at(float y) const;
  ImU32 colour(const TraceSlice& slice) const;

  App& app_;
  const Document& document_;
  const TraceFile& file_;
  TimelineState& state_;
  const Theme& theme_;
  ImDrawList& draw_;
  float left_ = 0, right_ = 0, top_ = 0, bottom_ = 0, first_y_ = 0;
  double ns_per_px_ = 1;
  std::vector<Box> boxes_;
  std::vector<float> track_tops_;  // and the end
  uint32_t hovered_ = kNoIndex;
  Box hovered_box_;
};

ImU32 Timeline::colour(const TraceSlice& slice) const {
  const uint8_t work = document_.work[static_cast<size_t>(&slice - file_.slices.data())];
  return work < kWorks ? theme_.of(static_cast<Work>(work)) : colour_of(document_.shade[slice.name], theme_);
}

void Timeline::run() {
  const ImVec2 origin = ImGui::GetCursorScreenPos(), room = ImGui::GetContentRegionAvail();
  const float ruler = theme_.px(24), gutter = theme_.px(180);
  left_ = origin.x + gutter;
  right_ = origin.x + room.x - ImGui::GetStyle().ScrollbarSize;
  if (right_ - left_ < 50) return;
  if (state_.to_ns <= state_.from_ns) {
    show_range(state_, 0, std::max(1.0, since_begin(file_.end_ns)));
  }
  ns_per_px_ = (state_.to_ns - state_.from_ns) / (right_ - left_);
  keys();
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
  if (hovered_ != kNoIndex && !state_.dragging) describe_box(app_, hovered_box_);
}

void Timeline::draw_ruler() {
  const RulerSteps steps = ruler_steps(ns_per_px_ * theme_.px(110));
  draw_.AddRectFilled({left_, top_ - theme_.px(24)}, {right_, top_}, theme_.panel);
  draw_.PushClipRect({left_, top_ - theme_.px(24)}, {right_, bottom_}, true);
  const double first = std::floor(state_.from_ns / steps.ns);
  for (int i = 0; i < 100; ++i) {
    const double at = (first + i) * steps.ns;
    const float x = std::round(x_of(at)) + 0.5F;
    if (x > right_) break;
    draw_.AddLine({x, top_ - theme_.px(6)}, {x, bottom_}, theme_.line);
    draw_.AddText({x + theme_.px(4), top_ - theme_.px(21)}, theme_.dim, ruler_text(at, steps).c_str());
  }
  draw_.PopClipRect();
}

void Timeline::draw_tracks() {
  float y = first_y_;
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
        draw_.AddRectFilled({left_ - theme_.px(180), y}, {right_, y + theme_.px(19)}, theme_.panel);
        draw_.AddText({left_ - theme_.px(174), y + theme_.px(1)}, theme_.text, file_.processes[process].name.c_str());
      }
      y += theme_.px(22);
      track_tops_.back() = y;
    }
    const float height = track_height(t);
    if (y + height > top_ && y < view_bottom) draw_track(t, y, height);
    y += height;
  }
  track_tops_.push_back(y);
  ImGui::Dummy({1, y - first_y_});
}

void Timeline::draw_track(uint32_t index, float top, float height) {
  const profiler::TraceTrack& track = file_.tracks[index];
  const bool collapsed = state_.collapsed[index];
  const float gutter = left_ - theme_.px(180);
  const ImVec4 clip{gutter, top, left_ - theme_.px(4), top + height};
  const std::string name = (track.depth() > 1 ? collapsed ? "+ " : "- " : "  ") + track.name;
  draw_.AddText(nullptr, 0, {gutter + theme_.px(10), top}, theme_.dim, name.c_str(), nullptr, 0, &clip);
  draw_.AddLine({gutter, top + height - theme_.px(3)}, {right_, top + height - theme_.px(3)}, theme_.line);
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
  fold(file_, track.lanes[depth], track.lanes[depth + 1], in_trace(state_.from_ns), in_trace(state_.to_ns) + 1, least,
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
  const ImU32 fill = colour(slice);
  if (box.count > 1) {  // a folded run is hollow below
    draw_.AddRectFilled({x0, top}, {x1, y1}, (fill & 0x00FFFFFFU) | 0x90000000U);
    draw_.AddRectFilled({x0, y1 - theme_.px(4)}, {x1, y1}, theme_.dim);
  } else {
    draw_.AddRectFilled({x0, top}, {x1 - (x1 - x0 > 4 ? 1.0F : 0.0F), y1}, fill);
  }
  if (!state_.is_found.empty() && state_.is_found[box.first]) draw_.AddRect({x0, top}, {x1, y1}, theme_.selection);
  const bool selected =
      state_.selected != kNoIndex && state_.selected >= box.first && state_.selected < box.first + box.count;
  if (selected) draw_.AddRect({x0, top}, {x1, y1}, theme_.selection, 0, 0, theme_.px(2));
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

uint32_t Timeline::track_at(float y) const {
  for (uint32_t t = 0; t < file_.tracks.size(); ++t) {
    if (y < track_tops_[t + 1]) return t;
  }
  return static_cast<uint32_t>(file_.tracks.size());
}

void Timeline::draw_area() {
  double from = 0, to = 0;
  if (state_.dragging) {
    from = state_.drag_from_ns;
    to = ns_at(ImGui::GetIO().MousePos.x);
  } else if (state_.area) {
    from = since_begin(state_.area->from_ns);
    to = since_begin(state_.area->to_ns);
  } else {
    return;
  }
  if (from > to) std::swap(from, to);
  const float x0 = std::clamp(x_of(from), left_, right_), x1 = std::clamp(x_of(to), left_, right_);
  ImDrawList& over = *ImGui::GetWindowDrawList();
  over.AddRectFilled({x0, top_}, {x1, bottom_}, (theme_.selection & 0x00FFFFFFU) | 0x22000000U);
  over.AddLine({x0, top_ - theme_.px(24)}, {x0, bottom_}, theme_.selection);
  over.AddLine({x1, top_ - theme_.px(24)}, {x1, bottom_}, theme_.selection);
  const std::string text = duration_text(static_cast<int64_t>(to - from));
  const ImVec2 size = ImGui::CalcTextSize(text.c_str());
  const float x = std::clamp((x0 + x1 - size.x) / 2, left_, right_ - size.x);
  over.AddRectFilled({x - theme_.px(4), top_}, {x + size.x + theme_.px(4), top_ + size.y + theme_.px(2)}, theme_.panel);
  over.AddText({x, top_}, theme_.selection, text.c_str());
}

void Timeline::zoom(double factor, float at_x) {
  const double at = ns_at(std::clamp(at_x, left_, right_));
  const double least = (right_ - left_) * 0.05,
               most = 4.0 * static_cast<double>(std::max<int64_t>(1, file_.end_ns - file_.begin_ns));
  const double width = std::clamp((state_.to_ns - state_.from_ns) * factor, least, std::max(most, least));
  const double share = (at - state_.from_ns) / (state_.to_ns - state_.from_ns);
  show_range(state_, at - width * share, at + width * (1 - share));
}

void Timeline::pan(double share) {
  const double by = (state_.to_ns - state_.from_ns) * share;
  show_range(state_, state_.from_ns + by, state_.to_ns + by);
}

// To the next or previous step.
void Timeline::step_by(int direction) {
  const std::vector<Step>& steps = document_.analysis.steps;
  if (steps.empty()) return;
  const double middle = (state_.from_ns + state_.to_ns) / 2;
  const auto at =
      std::ranges::upper_bound(steps, middle, {}, [this](const Step& s) { return since_begin(s.begin_ns); });
  const auto now = at - steps.begin() - 1;
  const auto to = std::clamp<std::ptrdiff_t>(now + direction, 0, static_cast<std::ptrdiff_t>(steps.size()) - 1);
  go_to(app_, steps[static_cast<size_t>(to)].slice);
}

void Timeline::keys() {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput || io.KeyCtrl) return;
  const double speed = std::min(0.1, static_cast<double>(io.DeltaTime)) * (io.KeyShift ? 4 : 1);
  const float mouse = io.MousePos.x >= left_ && io.MousePos.x <= right_ ? io.MousePos.x : (left_ + right_) / 2;
  if (ImGui::IsKeyDown('W') || ImGui::IsKeyDown(key::kUp)) zoom(std::exp(-2.5 * speed), mouse);
  if (ImGui::IsKeyDown('S') || ImGui::IsKeyDown(key::kDown)) zoom(std::exp(2.5 * speed), mouse);
  if (ImGui::IsKeyDown('A') || ImGui::IsKeyDown(key::kLeft)) pan(-speed);
  if (ImGui::IsKeyDown('D') || ImGui::IsKeyDown(key::kRight)) pan(speed);
  if (ImGui::IsKeyPressed('N', false)) search_timeline(app_, io.KeyShift ? -1 : 1);
  if (ImGui::IsKeyPressed('.')) step_by(1);
  if (ImGui::IsKeyPressed(',')) step_by(-1);
  if (ImGui::IsKeyPressed(key::kEscape, false)) {
    state_.area.reset();
    state_.selected = kNoIndex;
    state_.found.clear();
    state_.is_found.clear();
  }
  if (!ImGui::IsKeyPressed('F', false)) return;
  const auto length = static_cast<double>(file_.end_ns - file_.begin_ns);
  const auto fit = [this](double from, double to) {
    const double margin = std::max(1.0, (to - from) * 0.05);
    const bool fits_already = std::abs(state_.from_ns - (from - margin)) < margin / 10;
    if (!fits_already) show_range(state_, from - margin, to + margin);
    return !fits_already;
  };
  if (state_.area && fit(since_begin(state_.area->from_ns), since_begin(state_.area->to_ns))) return;
  if (!state_.area && state_.selected != kNoIndex) {
    const TraceSlice& s = file_.slices[state_.selected];
    if (fit(since_begin(s.begin_ns), since_begin(s.end_ns()))) return;
  }
  show_range(state_, -0.01 * length, 1.01 * length + 1);
}

void Timeline::mouse() {
  const ImGuiIO& io = ImGui::GetIO();
  if (state_.scroll_to_selected && state_.selected != kNoIndex) {
    const TraceSlice& s = file_.slices[state_.selected];
    const float y = track_tops_[s.track] - first_y_ + static_cast<float>(s.depth) * lane_height();
    ImGui::SetScrollFromPosY(y + ImGui::GetWindowPos().y - ImGui::GetScrollY(), 0.4F);
    state_.scroll_to_selected = false;
  }
  const bool over = ImGui::IsWindowHovered() && io.MousePos.y >= top_ && io.MousePos.x < right_;
  if (over && io.MouseWheel != 0) {
    if (io.KeyShift || io.MousePos.x < left_) {
      ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseWheel * 3 * lane_height());
    } else {
      zoom(std::pow(0.8, static_cast<double>(io.MouseWheel)), io.MousePos.x);
    }
  }
  if (over && io.MouseWheelH != 0) pan(-0.05 * static_cast<double>(io.MouseWheelH));
  if (ImGui::IsMouseDragging(1) || ImGui::IsMouseDragging(2)) {
    const double by = -static_cast<double>(io.MouseDelta.x) * ns_per_px_;
    show_range(state_, state_.from_ns + by, state_.to_ns + by);
    ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseDelta.y);
  }
  if (over && ImGui::IsMouseDoubleClicked(0)) return click(true);
  if (over && ImGui::IsMouseClicked(0)) {
    state_.drag_from = io.MousePos;
    state_.drag_from_ns = ns_at(io.MousePos.x);
    if (io.MousePos.x < left_) {
      const uint32_t track = track_at(io.MousePos.y);
      if (track < state_.collapsed.size()) state_.collapsed[track] = !state_.collapsed[track];
      return;
    }
    state_.dragging = true;
  }
  if (!state_.dragging || io.MouseDown[0]) return;
  state_.dragging = false;
  if (std::abs(io.MousePos.x - state_.drag_from.x) < theme_.px(4)) return click(false);
  int64_t from = in_trace(state_.drag_from_ns), to = in_trace(ns_at(io.MousePos.x));
  uint32_t first = track_at(state_.drag_from.y), last = track_at(io.MousePos.y);
  if (from > to) std::swap(from, to);
  if (first > last) std::swap(first, last);
  state_.area = Area{from, to, first, last + 1};
  state_.area_sums = sum_area(file_, *state_.area);
  state_.selected = kNoIndex;
}

void Timeline::click(bool twice) {
  state_.area.reset();
  state_.selected = hovered_;
  if (!twice || hovered_ == kNoIndex) return;
  const double from = since_begin(hovered_box_.begin_ns), to = since_begin(hovered_box_.end_ns);
  const double margin = std::max(1.0, (to - from) * 0.1);
  show_range(state_, from - margin, to + margin);
}

}  // namespace

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
  Timeline(app).run();
  ImGui::EndChild();
  if (details) draw_details(app);
}

}  // namespace tenon::view
