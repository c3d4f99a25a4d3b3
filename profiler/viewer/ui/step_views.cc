// These views list steps, tokens and operations. Steps are bars above their table, tokens are cells with their texts.
// Only the phase that is chosen counts, but for the token cells. Cells out of sight are not drawn; a click leads to a
// step's slice.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "ui/views.h"

namespace tenon::view {
namespace {

// Draws steps as bars over the whole width, stacked by work; where there are more steps than room, a bar stands for
// several and shows the longest of them.
void draw_step_strip(App& app, float height) {
  const std::vector<Step>& steps = app.document().analysis.steps;
  const Theme& theme = app.theme;
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, label_width = theme.px(70);
  std::vector<uint32_t> shown;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    if (is_in(steps[i], app.phase)) shown.push_back(i);
  }
  draw.AddRectFilled(origin, {origin.x + width, origin.y + height}, theme.panel);
  ImGui::Dummy({width, height});
  if (shown.empty()) return;
  int64_t longest = 1;
  for (const uint32_t i : shown) longest = std::max(longest, steps[i].duration_ns);
  const float room = width - label_width;
  const auto n_bars =
      static_cast<size_t>(std::max(1.0F, std::min(static_cast<float>(shown.size()), room / theme.px(4))));
  const float bar = std::min(room / static_cast<float>(n_bars), theme.px(60));
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  for (size_t b = 0; b < n_bars; ++b) {
    const size_t from = b * shown.size() / n_bars, to = std::max(from + 1, (b + 1) * shown.size() / n_bars);
    const auto slowest = *std::max_element(
        shown.begin() + static_cast<std::ptrdiff_t>(from), shown.begin() + static_cast<std::ptrdiff_t>(to),
        [&](uint32_t x, uint32_t y) { return steps[x].duration_ns < steps[y].duration_ns; });
    const Step& step = steps[slowest];
    const float x = origin.x + label_width + static_cast<float>(b) * bar;
    float y = origin.y + height;
    if (step.end_op == 0) {  // its operations were not recorded, so only its length is shown
      const float size = (height - theme.px(4)) *
                         static_cast<float>(static_cast<double>(step.duration_ns) / static_cast<double>(longest));
      draw.AddRect({x, y - size}, {x + std::max(1.0F, bar - 1), y}, theme.dim);
    }
    for (size_t w = 0; w < kWorks; ++w) {
      const float size = (height - theme.px(4)) *
                         static_cast<float>(static_cast<double>(step.by_work[w]) / static_cast<double>(longest));
      if (size > 0) draw.AddRectFilled({x, y - size}, {x + std::max(1.0F, bar - 1), y}, theme.work[w]);
      y -= size;
    }
    const bool over = mouse.x >= x && mouse.x < x + bar && mouse.y >= origin.y && mouse.y < origin.y + height &&
                      ImGui::IsWindowHovered();
    if (!over) continue;
    ImGui::BeginTooltip();
    if (to - from > 1) ImGui::TextDisabled("the longest of %zu steps", to - from);
    describe_step(app, step);
    ImGui::EndTooltip();
    if (ImGui::IsMouseClicked(0)) go_to(app, step.slice);
  }
  draw.AddText({origin.x + theme.px(4), origin.y}, theme.dim, duration_text(longest).c_str());
  draw.AddText({origin.x + theme.px(4), origin.y + height - ImGui::GetTextLineHeight()}, theme.dim, "0");
}

void draw_cell(App& app, const TokenCell& cell, ImVec2 at, ImVec2 size) {
  const Theme& theme = app.theme;
  const Step& step = app.document().analysis.steps[cell.step];
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  const ImU32 fill = step.end_op > 0 ? theme.of(cell.dominant) : theme.line;  // nothing of it was recorded
  draw.AddRectFilled(at, {at.x + size.x - 2, at.y + size.y - 2}, fill, theme.px(3));
  if (cell.over_median > 1.3)
    draw.AddRect(at, {at.x + size.x - 2, at.y + size.y - 2}, theme.selection, theme.px(3), 0, theme.px(2.5F));
  const ImU32 ink = text_on(fill);
  const ImVec4 clip{at.x, at.y, at.x + size.x - 3, at.y + size.y};
  draw.AddText(nullptr, 0, {at.x + theme.px(5), at.y + theme.px(2)}, ink, cell.text.c_str(), nullptr, 0, &clip);
  const ImVec2 text = {at.x + theme.px(5), at.y + size.y * 0.5F};
  draw.AddText(small_font(), small_font()->FontSize, text, ink, duration_text(cell.duration_ns).c_str(), nullptr, 0,
               &clip);
  if (!ImGui::IsWindowHovered() || !ImGui::IsMouseHoveringRect(at, {at.x + size.x, at.y + size.y})) return;
  ImGui::BeginTooltip();
  if (!cell.text.empty()) ImGui::Text("\"%s\"", cell.text.c_str());
  describe_step(app, step);
  if (cell.n_tokens > 1)
    ImGui::Text("%lld tokens of %lld drafted", static_cast<long long>(cell.n_tokens),
                static_cast<long long>(step.drafted));
  if (step.decodes() && step.end_op > 0)
    ImGui::Text("%.2f of the median; most of the difference: %s", cell.over_median, label(cell.grew));
  ImGui::EndTooltip();
  if (ImGui::IsMouseClicked(0)) go_to(app, step.slice);
}

}  // namespace

void draw_steps(App& app) {
  if (app.document().analysis.steps.empty()) {
    return draw_missing(app,
                        "This trace has no slices ProfilerStep#N, so its steps are not known. Tenon writes them on the "
                        "track \"main\".");
  }
  draw_phase_choice(app);
  ImGui::SameLine(0, app.theme.px(20));
  ImGui::Checkbox("worst first", &app.worst_first);
  draw_legend(app);
  draw_step_strip(app, app.theme.px(190));

  const auto make = [&app] { return step_table(app.document().analysis, app.phase, app.worst_first); };
  draw_table(app, app.steps.get(app.basis() + (app.worst_first ? "w" : ""), make), "steps");
}

void draw_tokens(App& app) {
  const Document& document = app.document();
  const Theme& theme = app.theme;
  if (document.tokens.empty()) {
    return draw_missing(app,
                        "This trace has no generated tokens: no slices ProfilerStep#N with n_ctx_tok or n_gen_tok "
                        "among their arguments.");
  }
  if (!document.analysis.has_tokens)
    draw_missing(app, "The texts of the tokens are not in this trace (no argument \"tokens\" on its steps).");
  int64_t n_tokens = 0, slow = 0;
  for (const TokenCell& cell : document.tokens) {
    n_tokens += cell.n_tokens;
    slow += cell.over_median > 1.3 ? 1 : 0;
  }
  ImGui::Text(
      "%lld tokens of %zu steps; framed: %lld steps that took over 1.3 of the median. Colour: what took most of the "
      "step.",
      static_cast<long long>(n_tokens), document.tokens.size(), static_cast<long long>(slow));
  draw_legend(app);
  draw_step_strip(app, theme.px(90));
  ImGui::BeginChild("cells");
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, height = theme.px(40), least = theme.px(58);
  const float top = ImGui::GetWindowPos().y, bottom = top + ImGui::GetWindowHeight();
  float x = 0, y = 0;
  for (const TokenCell& cell : document.tokens) {
    const float size =
        std::clamp(ImGui::CalcTextSize(cell.text.c_str()).x + theme.px(12), least, std::max(least, width));
    if (x + size > width && x > 0) {
      x = 0;
      y += height;
    }
    if (origin.y + y + height > top && origin.y + y < bottom)
      draw_cell(app, cell, {origin.x + x, origin.y + y}, {size, height});
    x += size;
  }
  ImGui::Dummy({1, y + height});
  ImGui::EndChild();
}

void draw_ops(App& app) {
  const Document& document = app.document();
  if (document.analysis.ops.empty()) return draw_missing(app, "This trace has no slices.");
  if (document.analysis.source == OpSource::kAllSlices) {
    draw_missing(app,
                 "No slices of category \"kernel\" or \"cpu_op\": every slice of a thread counts as an operation, with "
                 "the time that is not its children's.");
  }
  if (!document.analysis.steps.empty()) draw_phase_choice(app);
  ImGui::TextDisabled(
      "%s", document.analysis.source == OpSource::kKernels
                ? "Kernels overlap: a total is what they add, from the latest end of what is ahead to their own end."
                : "A total is the time that is not that of slices within.");
  const auto make = [&] { return op_table(document.file, document.analysis, app.phase, app.peak()); };
  draw_table(app, app.ops.get(app.basis(), make), "ops");
}

}  // namespace tenon::view
