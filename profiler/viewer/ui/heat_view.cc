// Layers by operations, coloured by GB/s or by share of the step.
#include <algorithm>
#include <cstdio>
#include <span>

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

}  // namespace

void draw_heat_map(App& app) {
  const Document& document = app.document();
  const Theme& theme = app.theme;
  draw_phase_choice(app);
  const HeatMap& map = app.heat.get(app.basis(), [&] { return heat_map(document.analysis, app.phase); });
  if (map.columns.empty())
    return draw_missing(app,
                        "This trace has no operations in these steps (slices of category \"kernel\" or \"cpu_op\").");
  if (map.n_layers == 0)
    return draw_missing(
        app, "No operation of this trace has a layer: neither an argument \"layer\" nor a name with \"layers.N\".");
  bool by_share = app.heat_by_share;
  if (!document.analysis.has_bytes && !by_share) {
    draw_missing(
        app,
        "GB/s needs the arguments bytes_read and bytes_written, which this trace has not: shares are shown instead.");
    by_share = true;
  } else {
    ImGui::SameLine(0, theme.px(20));
    if (ImGui::RadioButton("GB/s", !by_share)) app.heat_by_share = false;
    ImGui::SameLine();
    if (ImGui::RadioButton("share of the step", by_share)) app.heat_by_share = true;
    ImGui::SameLine(0, theme.px(20));
  }
  const auto value = [&](const HeatMap::Field& field) {
    return by_share ? 100.0 * static_cast<double>(field.ns) / static_cast<double>(std::max<int64_t>(1, map.total_ns))
                    : field.gbps();
  };
  double most = 0;
  const auto in_layers = std::span(map.fields).first(static_cast<size_t>(map.n_layers) * map.columns.size());
  for (const HeatMap::Field& field : in_layers) most = std::max(most, value(field));
  if (!by_share && app.peak()) most = *app.peak();
  draw_scale(app, most,
             by_share     ? "% of the step, the most in a layer"
             : app.peak() ? "GB/s, the measured peak"
                          : "GB/s");

  // Columns of layers first, what is outside of layers in a table of its own below.
  std::vector<size_t> columns;
  for (size_t c = 0; c < map.columns.size(); ++c) {
    for (int row = 0; row < map.n_layers; ++row) {
      if (map.at(row, c).ns == 0) continue;
      columns.push_back(c);
      break;
    }
  }
  ImGui::BeginChild("fields", {0, 0}, false, ImGuiWindowFlags_HorizontalScrollbar);
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const float left = theme.px(80), line = ImGui::GetTextLineHeight();
  const float width =
      std::clamp((ImGui::GetContentRegionAvail().x - left) / static_cast<float>(std::max<size_t>(1, columns.size())),
                 theme.px(56), theme.px(150));
  const float head = 3 * line;
  const float height =
      std::clamp((ImGui::GetContentRegionAvail().y - head - 6 * line) / static_cast<float>(map.n_layers), theme.px(9),
                 theme.px(26));
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const auto field_at = [&](int row, size_t column, ImVec2 at, ImVec2 size) {
    const HeatMap::Field& field = map.at(row, column);
    if (field.ns == 0) return;
    const ImU32 fill = heat_colour(static_cast<float>(value(field) / std::max(most, 1e-9)), theme);
    draw.AddRectFilled(at, {at.x + size.x - 1, at.y + size.y - 1}, fill);
    if (size.y >= line - 1)
      draw.AddText({at.x + theme.px(5), at.y + (size.y - line) / 2}, text_on(fill), field_text(value(field)).c_str());
    if (!ImGui::IsWindowHovered() || !ImGui::IsMouseHoveringRect(at, {at.x + size.x, at.y + size.y})) return;
    const auto steps = static_cast<int64_t>(std::max<size_t>(1, map.n_steps));
    ImGui::BeginTooltip();
    ImGui::TextUnformatted(map.columns[column].c_str());
    if (row < map.n_layers) ImGui::Text("layer %d", row);
    ImGui::Text("%s a step, %.2f %% of it", duration_text(field.ns / steps).c_str(),
                100.0 * static_cast<double>(field.ns) / static_cast<double>(std::max<int64_t>(1, map.total_ns)));
    if (field.bytes > 0)
      ImGui::Text("%s a step, %.1f GB/s", bytes_text(field.bytes / static_cast<double>(steps)).c_str(), field.gbps());
    if (field.bytes > 0 && app.peak()) ImGui::Text("%.0f %% of the measured peak", 100 * field.gbps() / *app.peak());
    ImGui::EndTooltip();
    if (ImGui::IsMouseClicked(0)) go_to(app, field.longest);
  };
  for (size_t i = 0; i < columns.size(); ++i) {
    std::string name = map.columns[columns[i]];
    if (name.starts_with("layers.*.")) name.erase(0, 9);
    const float x = origin.x + left + static_cast<float>(i) * width;
    const ImVec4 clip{x, origin.y, x + width - 4, origin.y + head};
    draw.AddText(nullptr, 0, {x + 2, origin.y}, theme.text, name.c_str(), nullptr, width - 6, &clip);
    for (int row = 0; row < map.n_layers; ++row)
      field_at(row, columns[i], {x, origin.y + head + static_cast<float>(row) * height}, {width, height});
  }
  const int every = height >= line ? 1 : static_cast<int>(line / height) + 1;
  for (int row = 0; row < map.n_layers; row += every) {
    const std::string name = "layer " + std::to_string(row);
    draw.AddText({origin.x, origin.y + head + static_cast<float>(row) * height + (height - line) / 2}, theme.dim,
                 name.c_str());
  }
  float y = origin.y + head + static_cast<float>(map.n_layers) * height + line;
  float x = origin.x + left;
  draw.AddText({origin.x, y + line}, theme.dim, "no layer");
  for (size_t c = 0; c < map.columns.size(); ++c) {
    if (map.at(map.n_layers, c).ns == 0) continue;
    const ImVec4 clip{x, y, x + width - 4, y + line};
    draw.AddText(nullptr, 0, {x + 2, y}, theme.text, map.columns[c].c_str(), nullptr, 0, &clip);
    field_at(map.n_layers, c, {x, y + line}, {width, std::max(height, line + 2)});
    x += width;
  }
  ImGui::Dummy({left + width * static_cast<float>(columns.size()), y - origin.y + 3 * line});
  ImGui::EndChild();
}

}  // namespace tenon::view
