// This is the timeline in the current window, for one frame.
#pragma once

#include <algorithm>
#include <vector>

#include "model/fold.h"
#include "ui/app.h"

namespace tenon::view {

// A pane says what a timeline shows.
struct TimelinePane {
  const Document& document;
  TimelineState& state;
  double whole_from_ns, whole_to_ns;  // the key F shows this time, since the begin of the trace
  bool takes_keys = true;
  // It is false beside another one. Steps and the search are then not its own affair.
  bool is_alone = true;
  std::string label{};
  double origin_ns = 0;             // its ruler has zero there, since the begin of the trace
  const PathMatch* same = nullptr;  // these slices are framed
  uint32_t twin = kNoIndex;         // the frame of this slice is thicker
};

class Timeline {
 public:
  Timeline(App& app, TimelinePane pane)
      : app_(app),
        pane_(std::move(pane)),
        document_(pane_.document),
        file_(document_.file),
        state_(pane_.state),
        theme_(app.theme),
        draw_(*ImGui::GetWindowDrawList()) {}

  // Returns the slice under the mouse; kNoIndex where there is none, or several that cannot be told apart.
  uint32_t run();

 private:
  static constexpr float kNarrowest = 3;  // a slice that is drawn by itself has so many pixels

  void draw_ruler();
  void draw_tracks();
  void draw_track(uint32_t index, float top, float height);
  void draw_lane(const profiler::TraceTrack& track, size_t depth, float top);
  void draw_box(const Box& box, float top);
  void draw_marks(const Box& box, ImVec2 a, ImVec2 b);
  void draw_instants(const profiler::TraceTrack& track, float top);
  void draw_flows();
  void draw_area();
  void keys();
  void step_keys();
  void fit();
  void mouse();
  void pan_by_mouse(bool over);
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
  float gutter() const { return left_ - theme_.px(180); }
  float lane_height() const { return theme_.px(18); }
  float track_height(uint32_t index) const {
    const size_t depth = file_.tracks[index].depth();
    const size_t lanes = state_.collapsed[index] ? 1 : std::max<size_t>(1, depth);
    return static_cast<float>(lanes) * lane_height() + theme_.px(6);
  }
  Area dragged_area() const;
  uint32_t track_at(float y) const;
  ImU32 colour(const TraceSlice& slice) const;
  const TraceSlice& longest_of(const Box& box) const;

  App& app_;
  const TimelinePane pane_;
  const Document& document_;
  const TraceFile& file_;
  TimelineState& state_;
  const Theme& theme_;
  ImDrawList& draw_;
  float left_ = 0, right_ = 0, top_ = 0, bottom_ = 0, first_y_ = 0;
  double ns_per_px_ = 1;
  std::vector<Box> boxes_;
  std::vector<float> track_tops_;  // the tracks' tops, and the end of the last one
  uint32_t hovered_ = kNoIndex;
  Box hovered_box_;
};

}  // namespace tenon::view
