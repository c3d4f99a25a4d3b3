// The timeline's keys and mouse are handled here: they change TimelineState alone, or go to a slice. A drag of a few
// pixels at least is an area, and a shorter one a click; an area and a selected slice exclude each other. The time that
// is shown is never narrower than 0.05 ns a pixel by zooming, nor wider than four times the trace.
#include <algorithm>
#include <cmath>

#include "ui/timeline.h"
#include "ui/views.h"

namespace tenon::view {

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

// Goes to the next or the previous step.
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
  if (pane_.is_alone) step_keys();
  if (ImGui::IsKeyPressed(key::kEscape, false)) {
    state_.area.reset();
    state_.selected = kNoIndex;
    state_.found.clear();
    state_.is_found.clear();
  }
  if (ImGui::IsKeyPressed('F', false)) fit();
}

void Timeline::step_keys() {
  if (ImGui::IsKeyPressed('N', false)) search_timeline(app_, ImGui::GetIO().KeyShift ? -1 : 1);
  if (ImGui::IsKeyPressed('.')) step_by(1);
  if (ImGui::IsKeyPressed(',')) step_by(-1);
}

// Shows what is selected, or everything if that is shown already.
void Timeline::fit() {
  const auto show = [this](double from, double to) {
    const double margin = std::max(1.0, (to - from) * 0.05);
    const bool fits_already = std::abs(state_.from_ns - (from - margin)) < margin / 10;
    if (!fits_already) show_range(state_, from - margin, to + margin);
    return !fits_already;
  };
  if (state_.area && show(since_begin(state_.area->from_ns), since_begin(state_.area->to_ns))) return;
  if (!state_.area && state_.selected != kNoIndex) {
    const TraceSlice& s = file_.slices[state_.selected];
    if (show(since_begin(s.begin_ns), since_begin(s.end_ns()))) return;
  }
  show_range(state_, pane_.whole_from_ns, pane_.whole_to_ns);
}

void Timeline::mouse() {
  const ImGuiIO& io = ImGui::GetIO();
  if (state_.scroll_to != kNoIndex) {
    const TraceSlice& s = file_.slices[state_.scroll_to];
    const float y = track_tops_[s.track] + static_cast<float>(s.depth) * lane_height();
    ImGui::SetScrollFromPosY(y - ImGui::GetWindowPos().y, 0.4F);
    state_.scroll_to = kNoIndex;
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
  pan_by_mouse(over);
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
  state_.area = dragged_area();
  state_.area_sums = sum_area(file_, *state_.area);
  state_.selected = kNoIndex;
}

void Timeline::pan_by_mouse(bool over) {
  const ImGuiIO& io = ImGui::GetIO();
  if (over && (ImGui::IsMouseClicked(1) || ImGui::IsMouseClicked(2))) state_.panning = true;
  if (!ImGui::IsMouseDown(1) && !ImGui::IsMouseDown(2)) state_.panning = false;
  if (!state_.panning) return;
  const double by = -static_cast<double>(io.MouseDelta.x) * ns_per_px_;
  show_range(state_, state_.from_ns + by, state_.to_ns + by);
  ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseDelta.y);
}

void Timeline::click(bool twice) {
  state_.area.reset();
  state_.selected = hovered_;
  if (!twice || hovered_ == kNoIndex) return;
  const double from = since_begin(hovered_box_.begin_ns), to = since_begin(hovered_box_.end_ns);
  const double margin = std::max(1.0, (to - from) * 0.1);
  show_range(state_, from - margin, to + margin);
}

}  // namespace tenon::view
