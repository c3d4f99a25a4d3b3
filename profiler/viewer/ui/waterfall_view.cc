// This view shows where the mean step's time goes, beside the time that moving its bytes takes at the memory's measured
// peak. The bars stand one after the other, and the step's own bar below them ends where the last one does.
#include <algorithm>
#include <cstdio>

#include "ui/views.h"

namespace tenon::view {
namespace {

constexpr std::array<Work, 8> kColours{Work::kGemv,     Work::kAttention, Work::kKvCache, Work::kNorm,
                                       Work::kSampling, Work::kGap,       Work::kHost,    Work::kHost};

void draw_headline(App& app, const Waterfall& fall) {
  const auto step = static_cast<double>(fall.step_ns);
  std::array<char, 256> moves{}, limit{};
  if (fall.bytes > 0)
    std::snprintf(moves.data(), moves.size(), " and moves %s: %.1f GB/s", bytes_text(fall.bytes).c_str(),
                  fall.bytes / step);
  if (fall.limit_ns > 0)
    std::snprintf(limit.data(), limit.size(), " At the memory's %.1f GB/s that takes %s, %.0f %% of the step.",
                  *app.peak(), duration_text(static_cast<int64_t>(fall.limit_ns)).c_str(), 100 * fall.limit_ns / step);
  ImGui::TextWrapped("The mean of %zu steps takes %s%s.%s", fall.n_steps, duration_text(fall.step_ns).c_str(),
                     moves.data(), limit.data());
  if (fall.limit_ns > 0) return;
  if (fall.bytes <= 0) {
    draw_missing(app,
                 "This trace does not say what its operations read and write (bytes_read, bytes_written), so there is "
                 "no limit to compare with.");
  } else {
    draw_missing(
        app,
        "This trace does not say what the memory can do (metadata read_bandwidth_gbps). Type it, or pass --bandwidth:");
    ImGui::SameLine();

    auto value = static_cast<float>(app.bandwidth.value_or(0));
    ImGui::SetNextItemWidth(app.theme.px(110));
    if (ImGui::InputFloat("GB/s", &value, 0, 0, "%.1f", ImGuiInputTextFlags_EnterReturnsTrue) && value > 0) {
      app.bandwidth = static_cast<double>(value);
    }
  }
}

}  // namespace

void draw_waterfall(App& app) {
  const Theme& theme = app.theme;
  draw_phase_choice(app);
  const Waterfall& fall =
      app.fall.get(app.basis(), [&app] { return waterfall(app.document().analysis, app.phase, app.peak()); });
  if (fall.n_steps == 0)
    return draw_missing(app,
                        "There are no such steps in this trace (slices ProfilerStep#N with an argument \"phase\").");
  draw_headline(app, fall);
  ImGui::Dummy({1, theme.px(6)});
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const float left = theme.px(210), right = theme.px(250), line = ImGui::GetTextLineHeight();
  const float width = std::max(theme.px(100), room.x - left - right);
  const float row =
      std::clamp((room.y - 3 * line) / static_cast<float>(fall.parts.size() + 1), theme.px(30), theme.px(64));
  const double longest = std::max(static_cast<double>(std::max<int64_t>(1, fall.step_ns)), fall.limit_ns);
  const auto x_of = [&](double ns) { return origin.x + left + width * static_cast<float>(ns / longest); };
  double at = 0;
  float y = origin.y;
  for (size_t i = 0; i < fall.parts.size(); ++i) {
    const Waterfall::Part& part = fall.parts[i];
    const auto ns = static_cast<double>(part.ns);
    const float bar_bottom = y + row * 0.7F;
    const ImU32 fill = theme.of(kColours[i]);
    draw.AddText({origin.x, y + (row * 0.7F - line) / 2}, theme.text, part.name.c_str());
    draw.AddRectFilled({x_of(at), y}, {std::max(x_of(at + ns), x_of(at) + 1), bar_bottom},
                       (fill & 0x00FFFFFFU) | 0x70000000U);
    // The solid part is the time that the bytes take at the peak.
    const double limit = std::min(part.limit_ns, ns);
    if (limit > 0) draw.AddRectFilled({x_of(at), y}, {x_of(at + limit), bar_bottom}, fill);
    if (limit <= 0) draw.AddRect({x_of(at), y}, {std::max(x_of(at + ns), x_of(at) + 1), bar_bottom}, fill);
    draw.AddLine({x_of(at + ns), y}, {x_of(at + ns), y + row}, theme.line);
    std::array<char, 96> text{};
    std::snprintf(text.data(), text.size(), "%s  %.1f %%%s", duration_text(part.ns).c_str(),
                  100 * ns / static_cast<double>(std::max<int64_t>(1, fall.step_ns)), "");
    std::string note = text.data();
    if (part.bytes > 0 && part.ns > 0) {
      std::snprintf(text.data(), text.size(), "  %.1f GB/s", part.bytes / ns);
      note += text.data();
    }
    draw.AddText({origin.x + left + width + theme.px(12), y + (row * 0.7F - line) / 2}, theme.text, note.c_str());
    at += ns;
    y += row;
  }
  draw.AddText({origin.x, y + (row * 0.7F - line) / 2}, theme.text, "the step");
  draw.AddRectFilled({x_of(0), y}, {x_of(at), y + row * 0.7F}, theme.dim);
  if (fall.limit_ns > 0) {
    draw.AddRectFilled({x_of(0), y}, {x_of(std::min(fall.limit_ns, at)), y + row * 0.7F}, theme.good);
    draw.AddLine({x_of(fall.limit_ns), origin.y}, {x_of(fall.limit_ns), y + row * 0.7F}, theme.good, theme.px(2));
    draw.AddText({x_of(fall.limit_ns) + theme.px(4), y + row * 0.72F}, theme.good, "memory limit");
  }
  draw.AddText({origin.x + left + width + theme.px(12), y + (row * 0.7F - line) / 2}, theme.text,
               duration_text(fall.step_ns).c_str());
  ImGui::Dummy({room.x, y - origin.y + row * 0.72F + line});
  ImGui::TextDisabled(
      "%s", fall.limit_ns > 0 ? "Solid: what moving the bytes takes at the peak. Pale: everything above it." : "");
}

}  // namespace tenon::view
