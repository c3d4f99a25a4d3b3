// Several views draw these: tables, legends, the choice of steps.
#include <imgui_internal.h>

#include "ui/views.h"

namespace tenon::view {

void draw_phase_choice(App& app) {
  constexpr std::array<const char*, 3> kNames{"all", "prefill", "decode"};
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("steps:");
  for (size_t i = 0; i < kNames.size(); ++i) {
    ImGui::SameLine();
    if (ImGui::RadioButton(kNames[i], app.phase == static_cast<Phase>(i))) app.phase = static_cast<Phase>(i);
  }
}

void draw_missing(const App& app, const char* text) {
  ImGui::PushTextWrapPos(0);
  ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(app.theme.warning), "%s", text);
  ImGui::PopTextWrapPos();
}

void draw_legend(const App& app) {
  ImDrawList& draw = *ImGui::GetWindowDrawList();
  for (size_t i = 0; i < kWorks; ++i) {
    const auto work = static_cast<Work>(i);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float size = ImGui::GetTextLineHeight();
    draw.AddRectFilled({at.x, at.y + 2}, {at.x + size - 4, at.y + size - 2}, app.theme.of(work));
    ImGui::Dummy({size, size});
    ImGui::SameLine(0, app.theme.px(2));
    ImGui::TextUnformatted(label(work));
    if (i + 1 == kWorks) break;
    ImGui::SameLine(0, app.theme.px(12));
    const float next = size + app.theme.px(2) + ImGui::CalcTextSize(label(static_cast<Work>(i + 1))).x;
    if (ImGui::GetContentRegionAvail().x < next) ImGui::NewLine();
  }
}

void describe_step(const App& app, const Step& step) {
  ImGui::Text("step %lld  %.*s  %s", static_cast<long long>(step.number), static_cast<int>(step.phase.size()),
              step.phase.data(), duration_text(step.duration_ns).c_str());
  if (step.end_op == 0) ImGui::TextDisabled("no operation of it was recorded");
  for (size_t i = 0; i < kWorks; ++i) {
    if (step.by_work[i] == 0) continue;
    const double share =
        100.0 * static_cast<double>(step.by_work[i]) / static_cast<double>(std::max<int64_t>(1, step.duration_ns));
    ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(app.theme.work[i]), "%5.1f %%", share);
    ImGui::SameLine();
    ImGui::Text("%s  %s", label(static_cast<Work>(i)), duration_text(step.by_work[i]).c_str());
  }
  if (step.bytes > 0 && step.duration_ns > 0) {
    ImGui::TextDisabled("%s, %.1f GB/s", bytes_text(step.bytes).c_str(),
                        step.bytes / static_cast<double>(step.duration_ns));
  }
}

namespace {

// Names the columns, and sorts the rows by the one that was clicked.
void draw_head(Table& table) {
  ImGui::TableSetupScrollFreeze(1, 1);
  for (const Table::Column& column : table.columns) {
    ImGui::TableSetupColumn(column.name.c_str(), column.is_number ? ImGuiTableColumnFlags_PreferSortDescending : 0);
  }
  ImGui::TableHeadersRow();
  ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (specs == nullptr || !specs->SpecsDirty) return;
  if (specs->SpecsCount > 0) {
    sort_by(table, static_cast<size_t>(specs->Specs->ColumnIndex),
            specs->Specs->SortDirection == ImGuiSortDirection_Descending);
  }
  specs->SpecsDirty = false;
}

void draw_cell(const Theme& theme, const Cell& cell, bool is_number) {
  if (is_number) {
    const float gap = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(cell.text.c_str()).x;
    if (gap > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + gap);
  }
  const ImU32 colour = cell.tone == Cell::Tone::kGood  ? theme.good
                       : cell.tone == Cell::Tone::kBad ? theme.bad
                                                       : theme.text;
  ImGui::PushStyleColor(ImGuiCol_Text, colour);
  ImGui::TextUnformatted(cell.text.c_str());
  ImGui::PopStyleColor();
}

// Draws a row of cells, and says whether it was clicked.
bool draw_row(const Theme& theme, const Table& table, int r, std::string_view marked) {
  const Table::Row& row = table.rows[static_cast<size_t>(r)];
  bool clicked = false;
  ImGui::TableNextRow();
  for (size_t c = 0; c < row.cells.size(); ++c) {
    ImGui::TableNextColumn();
    if (c == 0) {
      ImGui::PushID(r);
      const bool stands_out = !marked.empty() && row.cells[c].text == marked;
      clicked = ImGui::Selectable("##row", stands_out, ImGuiSelectableFlags_SpanAllColumns);
      ImGui::PopID();
      ImGui::SameLine(0, 0);
    }
    draw_cell(theme, row.cells[c], table.columns[c].is_number);
  }
  return clicked;
}

}  // namespace

const Table::Row* draw_table(App& app, Table& table, const char* id, std::string_view marked) {
  if (table.columns.empty() || table.columns.size() >= IMGUI_TABLE_MAX_COLUMNS) return nullptr;
  const Table::Row* clicked = nullptr;
  ImGui::PushID(id);
  if (ImGui::SmallButton("copy as text")) {
    ImGui::SetClipboardText(to_text(table).c_str());
    app.message = "copied " + std::to_string(table.rows.size()) + " rows";
  }
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_Sortable | ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollY |
                                     ImGuiTableFlags_ScrollX | ImGuiTableFlags_Resizable |
                                     ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_SortTristate |
                                     ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_Hideable;
  if (ImGui::BeginTable("table", static_cast<int>(table.columns.size()), kFlags)) {
    draw_head(table);
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(table.rows.size()));
    while (clipper.Step()) {
      for (int r = clipper.DisplayStart; r < clipper.DisplayEnd; ++r) {
        if (draw_row(app.theme, table, r, marked)) clicked = &table.rows[static_cast<size_t>(r)];
      }
    }
    ImGui::EndTable();
  }
  ImGui::PopID();
  if (clicked != nullptr && clicked->slice != kNoIndex) go_to(app, clicked->slice);
  return clicked;
}

}  // namespace tenon::view
