// make_theme() has the colours of the dark and the light theme, apply() gives them to ImGui, and add_fonts() loads
// DejaVu from where Debian installs it or takes ImGui's own font.
#include "ui/theme.h"

#include <algorithm>
#include <filesystem>

namespace tenon::view {
namespace {

constexpr float kTextSize = 15;

// Token texts need these beyond Latin: Greek, Cyrillic, punctuation, arrows, mathematics, boxes, symbols.
constexpr std::array<ImWchar, 11> kGlyphs{0x20,   0x52F,  0x2000, 0x206F, 0x20A0, 0x20CF,
                                          0x2100, 0x27BF, 0xFFFD, 0xFFFD, 0};

ImU32 mix(ImU32 from, ImU32 to, float share) {
  const ImVec4 a = ImGui::ColorConvertU32ToFloat4(from), b = ImGui::ColorConvertU32ToFloat4(to);
  return ImGui::ColorConvertFloat4ToU32(
      {a.x + (b.x - a.x) * share, a.y + (b.y - a.y) * share, a.z + (b.z - a.z) * share, 1});
}

constexpr std::array<ImWchar, 3> kLatin{0x20, 0xFF, 0};

ImFont* add_font(const char* path, float size, const ImWchar* glyphs) {
  ImFontAtlas* fonts = ImGui::GetIO().Fonts;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    if (ImFont* font = fonts->AddFontFromFileTTF(path, size, nullptr, glyphs)) return font;
  }
  ImFontConfig config;
  config.SizePixels = size * 13 / kTextSize;
  return fonts->AddFontDefault(&config);
}

}  // namespace

Theme make_theme(bool dark, float scale) {
  Theme t{.dark = dark, .scale = scale};
  t.text = dark ? IM_COL32(225, 228, 232, 255) : IM_COL32(30, 33, 38, 255);
  t.dim = dark ? IM_COL32(145, 151, 160, 255) : IM_COL32(98, 104, 114, 255);
  t.background = dark ? IM_COL32(24, 26, 30, 255) : IM_COL32(250, 250, 248, 255);
  t.panel = dark ? IM_COL32(34, 37, 43, 255) : IM_COL32(238, 239, 240, 255);
  t.line = dark ? IM_COL32(58, 62, 70, 255) : IM_COL32(208, 210, 214, 255);
  t.warning = dark ? IM_COL32(240, 180, 80, 255) : IM_COL32(160, 90, 0, 255);
  t.selection = dark ? IM_COL32(255, 214, 90, 255) : IM_COL32(200, 30, 60, 255);
  t.good = dark ? IM_COL32(110, 200, 120, 255) : IM_COL32(20, 125, 45, 255);
  t.bad = dark ? IM_COL32(240, 110, 110, 255) : IM_COL32(190, 30, 30, 255);
  t.work = {IM_COL32(86, 134, 186, 255),
            IM_COL32(72, 164, 156, 255),
            IM_COL32(242, 142, 43, 255),
            IM_COL32(222, 188, 62, 255),
            IM_COL32(176, 122, 161, 255),
            IM_COL32(225, 87, 89, 255),
            IM_COL32(89, 161, 79, 255),
            IM_COL32(255, 157, 167, 255),
            IM_COL32(156, 117, 95, 255),
            dark ? IM_COL32(92, 97, 106, 255) : IM_COL32(186, 190, 196, 255),
            dark ? IM_COL32(150, 140, 200, 255) : IM_COL32(130, 120, 180, 255)};
  return t;
}

void apply(const Theme& theme) {
  ImGuiStyle& style = ImGui::GetStyle();
  style = ImGuiStyle();
  theme.dark ? ImGui::StyleColorsDark() : ImGui::StyleColorsLight();
  const auto set = [&](ImGuiCol which, ImU32 colour) { style.Colors[which] = ImGui::ColorConvertU32ToFloat4(colour); };
  // The frame is cleared to the background, so windows need not fill it again.
  set(ImGuiCol_WindowBg, 0);
  set(ImGuiCol_ChildBg, 0);
  set(ImGuiCol_PopupBg, theme.panel);
  set(ImGuiCol_Text, theme.text);
  set(ImGuiCol_TextDisabled, theme.dim);
  set(ImGuiCol_Border, theme.line);
  const ImU32 frame = theme.dark ? IM_COL32(52, 58, 70, 255) : IM_COL32(216, 220, 228, 255);
  for (const ImGuiCol which : {ImGuiCol_FrameBg, ImGuiCol_FrameBgHovered, ImGuiCol_FrameBgActive}) set(which, frame);
  set(ImGuiCol_TableHeaderBg, theme.panel);
  set(ImGuiCol_TableBorderLight, theme.line);
  set(ImGuiCol_TableBorderStrong, theme.line);
  style.AntiAliasedLinesUseTex = false;
  style.WindowRounding = 0;
  style.WindowPadding = {8, 6};
  style.FramePadding = {8, 3};
  style.ScaleAllSizes(theme.scale);
}

void add_fonts(float scale) {
  constexpr const char* kSans = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
  add_font(kSans, kTextSize * scale, kGlyphs.data());
  add_font("/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf", kTextSize * 0.93F * scale, kGlyphs.data());
  add_font(kSans, kTextSize * 0.8F * scale, kLatin.data());
  add_font(kSans, kTextSize * 1.6F * scale, kLatin.data());
}

ImFont* mono_font() {
  return ImGui::GetIO().Fonts->Fonts[1];
}

ImFont* small_font() {
  return ImGui::GetIO().Fonts->Fonts[2];
}

ImFont* title_font() {
  return ImGui::GetIO().Fonts->Fonts[3];
}

ImU32 colour_of(uint32_t name, const Theme& theme) {
  const uint32_t hash = (name + 1) * 2654435761U;
  const float hue = static_cast<float>(hash >> 16U & 0xFFU) / 255;
  return static_cast<ImU32>(ImColor::HSV(hue, theme.dark ? 0.32F : 0.30F, theme.dark ? 0.58F : 0.82F));
}

ImU32 text_on(ImU32 background) {
  const ImVec4 c = ImGui::ColorConvertU32ToFloat4(background);
  return 0.299F * c.x + 0.587F * c.y + 0.114F * c.z > 0.52F ? IM_COL32(18, 18, 20, 255) : IM_COL32(250, 250, 250, 255);
}

ImU32 heat_colour(float value, const Theme& theme) {
  const std::array<ImU32, 5> stops{theme.dark ? IM_COL32(38, 38, 62, 255) : IM_COL32(232, 236, 246, 255),
                                   IM_COL32(62, 96, 160, 255), IM_COL32(40, 150, 140, 255), IM_COL32(130, 196, 80, 255),
                                   IM_COL32(253, 226, 60, 255)};
  const float at = std::clamp(value, 0.0F, 1.0F) * static_cast<float>(stops.size() - 1);
  const auto stop = std::min(static_cast<size_t>(at), stops.size() - 2);
  return mix(stops[stop], stops[stop + 1], at - static_cast<float>(stop));
}

}  // namespace tenon::view
