// The heat map has a column for each operation and a row for each layer, coloured by GB/s or by the share of the step.
// What is outside of layers has a row of its own below. The last colour is the measured peak, or else the most in a
// layer. A field is empty where an operation took no time; a click on it leads to its longest slice.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "ui/views.h"

namespace tenon::view {
namespace {

std::string field_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
  return text.data();
}

void draw_scale(const App& app, double most, const char* unit) {
  const std::string text = "0 to " + field_text(most) + ' ' + unit;
  const float width = app.theme.px(200), height = ImGui::GetTextLineHeight();
  if (ImGui::GetContentRegionAvail().x < width + app.theme.px(8) + ImGui::CalcTextSize(text.c_str()).x)
    ImGui::NewLine();
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  constexpr int kParts = 50;
  for (int i = 0; i < kParts; ++i) {
    const float x = at.x + width * static_cast<float>(i) / kParts;
    draw.AddRectFilled({x, at.y}, {x + width / kParts + 1, at.y + height},
                       heat_colour(static_cast<float>(i) / (kParts - 1), app.theme));
  }
  ImGui::Dummy({width, height});
  ImGui::SameLine();
  ImGui::TextUnformatted(text.c_str());
}

// Returns whether shares are shown, as chosen or as there is nothing else.
bool draw_unit_choice(App& app) {
  if (!app.document().analysis.has_bytes && !app.heat_by_share) {
    draw_missing(
        app,
        "GB/s needs the arguments bytes_read and bytes_written, which this trace has not: shares are shown instead.");
    return true;
  }
  const bool by_share = app.heat_by_share;
  ImGui::SameLine(0, app.theme.px(20));
  if (ImGui::RadioButton("GB/s", !by_share)) app.heat_by_share = false;
  ImGui::SameLine();
  if (ImGui::RadioButton("share of the step", by_share)) app.heat_by_share = true;
  ImGui::SameLine(0, app.theme.px(20));
  return by_share;
}

// This draws one frame of the map.
class HeatDrawing {
 public:
  HeatDrawing(App& app, const HeatMap& map, bool by_share) : app_(app), map_(map), by_share_(by_share) {
    for (size_t c = 0; c < map.columns.size(); ++c) {
      bool in_layers = false;
      for (int row = 0; row < map.n_layers; ++row) {
        in_layers = in_layers || map.at(row, c).ns != 0;
        most_ = std::max(most_, value(map.at(row, c)));
      }
      if (in_layers) columns_.push_back(c);
    }
    if (!by_share && app.peak()) most_ = *app.peak();
  }

  void draw_scale() const {
    view::draw_scale(app_, most_,
                     by_share_     ? "% of the step, the most in a layer"
                     : app_.peak() ? "GB/s, the measured peak"
                                   : "GB/s");
  }

  // Draws the columns of layers, and below them what is outside of layers.
  void draw_fields() {
    ImGui::BeginChild("fields", {0, 0}, false, ImGuiWindowFlags_HorizontalScrollbar);
    measure();
    draw_layers();
    draw_layer_names();
    const float end = draw_others();
    ImGui::Dummy({left_ + width_ * static_cast<float>(columns_.size()), end - origin_.y});
    ImGui::EndChild();
  }

 private:
  double value(const HeatMap::Field& field) const { return by_share_ ? share(field) : field.gbps(); }
  double share(const HeatMap::Field& field) const {
    return 100.0 * static_cast<double>(field.ns) / static_cast<double>(std::max<int64_t>(1, map_.total_ns));
  }
  ImDrawList& list() const { return *ImGui::GetWindowDrawList(); }
  float row_y(int row) const { return origin_.y + head_ + static_cast<float>(row) * height_; }

  void measure() {
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const Theme& theme = app_.theme;
    line_ = ImGui::GetTextLineHeight();
    left_ = theme.px(80);
    head_ = 3 * line_;
    width_ = std::clamp((room.x - left_) / static_cast<float>(std::max<size_t>(1, columns_.size())), theme.px(56),
                        theme.px(150));
    height_ = std::clamp((room.y - head_ - 6 * line_) / static_cast<float>(map_.n_layers), theme.px(9), theme.px(26));
    origin_ = ImGui::GetCursorScreenPos();
  }

  void draw_layers() {
    for (size_t i = 0; i < columns_.size(); ++i) {
      std::string name = map_.columns[columns_[i]];
      if (name.starts_with("layers.*.")) name.erase(0, 9);
      const float x = origin_.x + left_ + static_cast<float>(i) * width_;
      const ImVec4 clip{x, origin_.y, x + width_ - 4, origin_.y + head_};
      list().AddText(nullptr, 0, {x + 2, origin_.y}, app_.theme.text, name.c_str(), nullptr, width_ - 6, &clip);
      for (int row = 0; row < map_.n_layers; ++row) draw_field(row, columns_[i], {x, row_y(row)}, {width_, height_});
    }
  }

  void draw_layer_names() const {
    const int every = height_ >= line_ ? 1 : static_cast<int>(line_ / height_) + 1;
    for (int row = 0; row < map_.n_layers; row += every) {
      const std::string name = "layer " + std::to_string(row);
      list().AddText({origin_.x, row_y(row) + (height_ - line_) / 2}, app_.theme.dim, name.c_str());
    }
  }

  // Returns where it ends.
  float draw_others() {
    const float y = row_y(map_.n_layers) + line_;
    float x = origin_.x + left_;
    list().AddText({origin_.x, y + line_}, app_.theme.dim, "no layer");
    for (size_t c = 0; c < map_.columns.size(); ++c) {
      if (map_.at(map_.n_layers, c).ns == 0) continue;
      const ImVec4 clip{x, y, x + width_ - 4, y + line_};
      list().AddText(nullptr, 0, {x + 2, y}, app_.theme.text, map_.columns[c].c_str(), nullptr, 0, &clip);
      draw_field(map_.n_layers, c, {x, y + line_}, {width_, std::max(height_, line_ + 2)});
      x += width_;
    }
    return y + 3 * line_;
  }

  void draw_field(int row, size_t column, ImVec2 at, ImVec2 size) {
    const HeatMap::Field& field = map_.at(row, column);
    if (field.ns == 0) return;
    const ImU32 fill = heat_colour(static_cast<float>(value(field) / std::max(most_, 1e-9)), app_.theme);
    list().AddRectFilled(at, {at.x + size.x - 1, at.y + size.y - 1}, fill);
    if (size.y >= line_ - 1) {
      list().AddText({at.x + app_.theme.px(5), at.y + (size.y - line_) / 2}, text_on(fill),
                     field_text(value(field)).c_str());
    }
    if (!ImGui::IsWindowHovered() || !ImGui::IsMouseHoveringRect(at, {at.x + size.x, at.y + size.y})) return;
    draw_tooltip(row, column);
    if (ImGui::IsMouseClicked(0)) go_to(app_, field.longest);
  }

  void draw_tooltip(int row, size_t column) const {
    const HeatMap::Field& field = map_.at(row, column);
    const auto steps = static_cast<int64_t>(std::max<size_t>(1, map_.n_steps));
    ImGui::BeginTooltip();
    ImGui::TextUnformatted(map_.columns[column].c_str());
    if (row < map_.n_layers) ImGui::Text("layer %d", row);
    ImGui::Text("%s a step, %.2f %% of it", duration_text(field.ns / steps).c_str(), share(field));
    if (field.bytes > 0)
      ImGui::Text("%s a step, %.1f GB/s", bytes_text(field.bytes / static_cast<double>(steps)).c_str(), field.gbps());
    if (field.bytes > 0 && app_.peak()) ImGui::Text("%.0f %% of the measured peak", 100 * field.gbps() / *app_.peak());
    ImGui::EndTooltip();
  }

  App& app_;
  const HeatMap& map_;
  bool by_share_;
  double most_ = 0;              // this value has the last colour of the scale
  std::vector<size_t> columns_;  // these are the columns of layers
  ImVec2 origin_{};
  float left_ = 0, head_ = 0, line_ = 0, width_ = 0, height_ = 0;  // names of layers, names of columns, text, a field
};

}  // namespace

void draw_heat_map(App& app) {
  draw_phase_choice(app);
  const HeatMap& map = app.heat.get(app.basis(), [&] { return heat_map(app.document().analysis, app.phase); });
  if (map.columns.empty())
    return draw_missing(app,
                        "This trace has no operations in these steps (slices of category \"kernel\" or \"cpu_op\").");
  if (map.n_layers == 0)
    return draw_missing(
        app, "No operation of this trace has a layer: neither an argument \"layer\" nor a name with \"layers.N\".");
  const bool by_share = draw_unit_choice(app);
  HeatDrawing drawing(app, map, by_share);
  drawing.draw_scale();
  drawing.draw_fields();
}

}  // namespace tenon::view
