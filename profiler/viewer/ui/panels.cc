// The start page, what made the trace, and two traces side by side.
#include <algorithm>
#include <cstdio>

#include "model/compare.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

struct Help {
  const char *keys, *what;
};
constexpr Help kHelp[] = {{"W S, wheel", "zoom in and out at the cursor"},
                          {"A D, right drag", "move; with Shift faster"},
                          {"drag", "measure, and sum up what lies in the area"},
                          {"click, double click", "select a slice; zoom to it"},
                          {"F", "fit what is selected, then all"},
                          {", .", "previous and next step"},
                          {"/ or Ctrl+F, Enter", "search names and arguments"},
                          {"N, Shift+N", "next and previous result"},
                          {"Esc", "select nothing"},
                          {"0 to 9, C", "views, from left to right"},
                          {"B", "the other trace, where two are open"},
                          {"T", "light or dark"},
                          {"+ -", "larger or smaller"},
                          {"P", "save a picture"},
                          {"Ctrl+Q", "end"}};

void draw_split(const App& app, const char* name, const Analysis& analysis, Phase phase, double longest) {
  std::array<double, kWorks> mean{};
  const std::vector<uint32_t> steps = steps_of(analysis, phase);
  double total = 0;
  for (const uint32_t i : steps) {
    for (size_t w = 0; w < kWorks; ++w)
      mean[w] += static_cast<double>(analysis.steps[i].by_work[w]) / static_cast<double>(steps.size());
  }
  for (const double ns : mean) total += ns;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 a = ImGui::GetCursorScreenPos();
  const float left = app.theme.px(150), height = app.theme.px(28);
  const float width = ImGui::GetContentRegionAvail().x - left;
  draw.AddText({a.x, a.y + app.theme.px(4)}, app.theme.text,
               (std::string(name) + "  " + duration_text(static_cast<int64_t>(total))).c_str());
  float x = a.x + left;
  for (size_t w = 0; w < kWorks; ++w) {
    const float size = longest > 0 ? width * static_cast<float>(mean[w] / longest) : 0;
    draw.AddRectFilled({x, a.y}, {x + size, a.y + height - 3}, app.theme.work[w]);
    x += size;
  }
  ImGui::Dummy({width, height});
}

double mean_step(const Analysis& analysis, Phase phase) {
  const std::vector<uint32_t> steps = steps_of(analysis, phase);
  double sum = 0;
  for (const uint32_t i : steps) {
    for (const int64_t ns : analysis.steps[i].by_work) sum += static_cast<double>(ns);
  }
  return steps.empty() ? 0 : sum / static_cast<double>(steps.size());
}

}  // namespace

void draw_start(App& app) {
  const Theme& theme = app.theme;
  ImGui::BeginChild("start");
  ImGui::Dummy({1, theme.px(16)});
  ImGui::SetWindowFontScale(1.6F);
  ImGui::TextUnformatted("tenon-view");
  ImGui::SetWindowFontScale(1);
  ImGui::TextDisabled("What each part of a pipeline costs, by step, token, layer and operation.");
  ImGui::Dummy({1, theme.px(10)});
  ImGui::TextUnformatted(
      "Drop a trace here (.json or .json.gz; Tenon's, Perfetto's legacy JSON or Kineto's), or a second one to "
      "compare.");
  ImGui::TextUnformatted("To record one:");
  ImGui::SameLine();
  ImGui::PushFont(mono_font());
  ImGui::TextUnformatted("tenon generate PIPELINE.toml --prompt \"...\" --trace trace.json.gz");
  ImGui::PopFont();
  if (!app.message.empty()) draw_missing(app, app.message.c_str());
  ImGui::Dummy({1, theme.px(10)});
  if (!app.recent.empty()) {
    ImGui::TextDisabled("Recent files");
    for (const std::string& path : app.recent) {
      if (ImGui::Selectable(path.c_str())) app.wants_open = path;
    }
    ImGui::Dummy({1, theme.px(10)});
  }
  ImGui::TextDisabled("Keys and mouse");
  if (ImGui::BeginTable("keys", 2, ImGuiTableFlags_SizingFixedFit)) {
    for (const Help& help : kHelp) {
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(help.keys);
      ImGui::TableNextColumn();
      ImGui::TextUnformatted(help.what);
    }
    ImGui::EndTable();
  }
  ImGui::EndChild();
}

void draw_pipeline(App& app) {
  const PipelineInfo& info = app.document().info;
  const Theme& theme = app.theme;
  if (!info.missing.empty()) {
    ImGui::TextUnformatted("This trace does not say");
    for (const std::string& missing : info.missing) draw_missing(app, ("  " + missing).c_str());
    ImGui::Separator();
  }
  const float left = info.texts.empty() ? 0 : std::min(theme.px(520), ImGui::GetContentRegionAvail().x * 0.4F);
  ImGui::BeginChild("facts", {left, 0});
  Table facts = info.facts;
  draw_table(app, facts, "facts");
  ImGui::EndChild();
  if (info.texts.empty()) return;
  ImGui::SameLine();
  ImGui::BeginChild("texts");
  for (const PipelineInfo::Text& text : info.texts) {
    ImGui::TextDisabled("%s", text.title.c_str());
    ImGui::SameLine();
    ImGui::PushID(text.title.c_str());
    if (ImGui::SmallButton("copy as text")) {
      ImGui::SetClipboardText(text.text.c_str());
      app.message = "copied";
    }
    ImGui::PopID();
    ImGui::PushFont(mono_font());
    ImGui::TextUnformatted(text.text.data(), text.text.data() + text.text.size());
    ImGui::PopFont();
    ImGui::Dummy({1, theme.px(8)});
  }
  ImGui::EndChild();
}

void draw_compare(App& app) {
  if (app.documents.size() < 2) {
    return draw_missing(app, "To compare, open a second trace: drop it here, or start tenon-view with two files.");
  }
  draw_phase_choice(app);
  const Analysis &a = app.documents[0]->analysis, &b = app.documents[1]->analysis;
  const auto make = [&app] { return comparison(app.documents[0]->file, app.documents[1]->file, app.phase); };
  Table& changes = app.comparison.get(app.basis(), make);
  if (changes.rows.empty() || steps_of(a, app.phase).empty() || steps_of(b, app.phase).empty()) {
    return draw_missing(app,
                        "One of the two has no such steps (slices ProfilerStep#N), so there is nothing to compare.");
  }
  const double longest = std::max(mean_step(a, app.phase), mean_step(b, app.phase));
  draw_legend(app);
  draw_split(app, "A", a, app.phase, longest);
  draw_split(app, "B", b, app.phase, longest);
  ImGui::TextDisabled(
      "Medians over %zu and %zu steps. \"noise\": a rank test gives p > 0.01, the medians differ by less than 5 %%, or "
      "it is below 1 %% of a step.",
      steps_of(a, app.phase).size(), steps_of(b, app.phase).size());
  draw_table(app, changes, "changes");
}

}  // namespace tenon::view
