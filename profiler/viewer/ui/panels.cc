// draw_start() is the page without a trace: how to record one, recent files, keys. draw_pipeline() shows what the trace
// says about the pipeline that made it, and names first what it does not say.
#include <algorithm>

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
                          {", .", "previous and next step; in Compare of both traces"},
                          {"/ or Ctrl+F, Enter", "search names and arguments"},
                          {"N, Shift+N", "next and previous result"},
                          {"Esc", "select nothing"},
                          {"0 to 9, C, R", "views, from left to right"},
                          {"B", "the other trace, where two are open"},
                          {"T", "light or dark"},
                          {"+ -", "larger or smaller"},
                          {"P", "save a picture"},
                          {"Ctrl+Q", "end"}};

}  // namespace

void draw_start(App& app) {
  const Theme& theme = app.theme;
  ImGui::BeginChild("start");
  ImGui::Dummy({1, theme.px(16)});
  ImGui::PushFont(title_font());
  ImGui::TextUnformatted("tenon-view");
  ImGui::PopFont();
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

}  // namespace tenon::view
