// The left-heavy flame view shows which calls the time of a track or of all goes to.
#include <algorithm>
#include <cstdio>

#include "ui/views.h"

namespace tenon::view {
namespace {

class FlameView {
 public:
  explicit FlameView(App& app) : app_(app), theme_(app.theme), draw_(*ImGui::GetWindowDrawList()) {}

  void run() {
    origin_ = ImGui::GetCursorScreenPos();
    line_ = ImGui::GetTextLineHeight() + theme_.px(4);
    node(app_.flame_root, 0, ImGui::GetContentRegionAvail().x, 0);
    ImGui::Dummy({1, static_cast<float>(deepest_ + 1) * line_});
    if (ImGui::IsWindowHovered() && (ImGui::IsMouseClicked(1) || ImGui::IsKeyPressed(key::kEscape, false)))
      app_.flame_root = 0;
  }

 private:
  void node(uint32_t index, float x, float width, int depth) {
    const Flame::Node& n = app_.flame.value.nodes[index];
    const ImVec2 a{origin_.x + x, origin_.y + static_cast<float>(depth) * line_}, b{a.x + width, a.y + line_ - 1};
    deepest_ = std::max(deepest_, depth);
    const std::string& name = index == 0 ? kAll : n.name;
    const ImU32 fill =
        index == 0 ? theme_.panel : colour_of(static_cast<uint32_t>(std::hash<std::string>{}(n.name)), theme_);
    draw_.AddRectFilled(a, {b.x - (width > 3 ? 1.0F : 0.0F), b.y}, fill);
    if (width > theme_.px(30)) {
      const ImVec4 clip{a.x, a.y, b.x - 3, b.y};
      const std::string text = name + "  " + duration_text(n.ns);
      draw_.AddText(nullptr, 0, {a.x + theme_.px(4), a.y + theme_.px(1)}, text_on(fill), text.c_str(), nullptr, 0,
                    &clip);
    }
    if (ImGui::IsWindowHovered() && ImGui::IsMouseHoveringRect(a, b)) {
      ImGui::BeginTooltip();
      ImGui::TextUnformatted(name.c_str());
      ImGui::Text(
          "%s in %llu calls, %.2f %% of all", duration_text(n.ns).c_str(), static_cast<unsigned long long>(n.count),
          100.0 * static_cast<double>(n.ns) / static_cast<double>(std::max<int64_t>(1, app_.flame.value.nodes[0].ns)));
      ImGui::TextDisabled("click: only this; double click: its longest call; right click: back");
      ImGui::EndTooltip();
      if (ImGui::IsMouseDoubleClicked(0) && index != 0) return go_to(app_, n.longest);
      if (ImGui::IsMouseClicked(0)) app_.flame_root = index;
    }
    if (n.ns <= 0) return;
    float at = x;
    for (const uint32_t child : n.children) {
      const float size =
          width * static_cast<float>(static_cast<double>(app_.flame.value.nodes[child].ns) / static_cast<double>(n.ns));
      if (size < 1 || at >= x + width) break;  // the others are shorter still
      node(child, at, std::min(size, x + width - at), depth + 1);
      at += size;
    }
  }

  inline static const std::string kAll = "all";
  App& app_;
  const Theme& theme_;
  ImDrawList& draw_;
  ImVec2 origin_{};
  float line_ = 0;
  int deepest_ = 0;
};

}  // namespace

void draw_flame(App& app) {
  const Document& document = app.document();
  const auto make = [&] {
    std::vector<uint32_t> tracks;
    for (uint32_t t = 0; t < document.file.tracks.size(); ++t) {
      if (document.file.tracks[t].kind == profiler::TraceTrack::Kind::kThread) tracks.push_back(t);
    }
    app.flame_root = 0;
    return flame_of(document.file, tracks);
  };
  app.flame.get(document.file.path + std::to_string(app.current), make);
  if (app.flame.value.nodes.size() < 2) return draw_missing(app, "This trace has no slices.");
  ImGui::TextDisabled(
      "Calls of the same names joined, of all threads and streams; numbers of layers and steps as *. The longest is on "
      "the left.");
  ImGui::BeginChild("flame");
  FlameView(app).run();
  ImGui::EndChild();
}

}  // namespace tenon::view
