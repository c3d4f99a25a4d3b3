// draw() draws one frame: the bar, the files that are open, and the view that is chosen. A Document is a trace with all
// that is computed of it when it is made (analysis, tokens, requests, colours), so that a frame only reads it.
#include "ui/app.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "ui/views.h"

namespace tenon::view {
namespace {

using Draw = void (*)(App&);
constexpr std::array<Draw, kViews> kDraw{draw_start,    draw_timeline,  draw_steps,   draw_tokens,
                                         draw_heat_map, draw_waterfall, draw_ops,     draw_flame,
                                         draw_plots,    draw_pipeline,  draw_compare, draw_requests};

std::vector<uint8_t> works_of(const TraceFile& file) {
  constexpr uint8_t kNone = 255;
  std::vector<uint8_t> works(file.slices.size(), kNone);
  const uint32_t op = file.strings.find("op"), component = file.strings.find("component");
  std::vector<bool> is_op(file.categories.size());
  for (const char* name : {"kernel", "cpu_op", "gpu_memcpy", "gpu_memset"}) {
    const uint32_t index = file.category_index(name);
    if (index != kNoIndex) is_op[index] = true;
  }
  std::unordered_map<uint64_t, uint8_t> known;  // keyed by name and operation
  for (size_t i = 0; i < works.size(); ++i) {
    const TraceSlice& s = file.slices[i];
    if (!is_op[s.category]) continue;
    const uint32_t op_text = file.args.text(s.args, op).value_or(0);
    const auto [at, is_new] = known.try_emplace(uint64_t{s.name} << 32U | op_text, kNone);
    if (is_new) {
      const std::string_view by = file.strings[file.args.text(s.args, component).value_or(0)];
      at->second = static_cast<uint8_t>(work_of(by, file.strings[op_text], file.name(s)));
    }
    works[i] = at->second;
  }
  return works;
}

// Slices that differ in a number only get one colour.
std::vector<uint32_t> shades_of(const TraceFile& file) {
  std::vector<uint32_t> shades(file.strings.size());
  std::vector<bool> known(file.strings.size());
  for (const TraceSlice& s : file.slices) {
    if (known[s.name]) continue;
    known[s.name] = true;
    shades[s.name] = static_cast<uint32_t>(std::hash<std::string>{}(without_numbers(file.name(s))));
  }
  return shades;
}

// The bar wraps where the window is narrow.
void draw_bar(App& app) {
  const Theme& theme = app.theme;
  const float right = ImGui::GetWindowWidth() - theme.px(124);
  auto place = [&, first = true](float width) mutable {
    if (!first) ImGui::SameLine(0, theme.px(2));
    if (!first && ImGui::GetCursorPosX() + width > right) ImGui::NewLine();
    first = false;
  };
  const float top = ImGui::GetCursorPosY();
  for (size_t v = 0; v < kViews; ++v) {
    if (v != 0 && app.documents.empty()) continue;
    place(ImGui::CalcTextSize(kViewNames[v].title).x + 2 * ImGui::GetStyle().FramePadding.x);
    const bool active = app.view == static_cast<ViewId>(v);
    ImGui::PushStyleColor(ImGuiCol_Button,
                          active ? ImGui::GetStyleColorVec4(ImGuiCol_ButtonActive) : ImVec4(0, 0, 0, 0));
    if (ImGui::Button(kViewNames[v].title)) app.view = static_cast<ViewId>(v);
    ImGui::PopStyleColor();
  }
  if (!app.documents.empty()) {
    place(theme.px(180));
    ImGui::SetNextItemWidth(theme.px(180));
    if (app.focus_search) ImGui::SetKeyboardFocusHere();
    app.focus_search = false;
    if (ImGui::InputTextWithHint("##search", "search (/)", app.search_text.data(), app.search_text.size(),
                                 ImGuiInputTextFlags_EnterReturnsTrue)) {
      search_from(app, ImGui::GetIO().KeyShift ? -1 : 1);
    }
  }
  const ImVec2 below = ImGui::GetCursorPos();
  ImGui::SetCursorPos({right, top});
  if (ImGui::SmallButton(theme.dark ? "light" : "dark ")) app.wants_theme = true;
  ImGui::SameLine(0, theme.px(2));
  if (ImGui::SmallButton("-")) app.wants_scale = 1 / 1.15F;
  ImGui::SameLine(0, theme.px(2));
  if (ImGui::SmallButton("+")) app.wants_scale = 1.15F;
  ImGui::SetCursorPos(below);
}

void draw_files(App& app) {
  for (size_t i = 0; i < app.documents.size(); ++i) {
    if (i > 0) ImGui::SameLine();
    const Document& d = *app.documents[i];
    const std::string text =
        (app.documents.size() > 1 ? std::string(1, static_cast<char>('A' + i)) + ": " : std::string()) + d.name;
    if (ImGui::RadioButton(text.c_str(), app.current == i)) app.current = i;
    ImGui::SameLine();
    ImGui::TextDisabled("%zu events, %zu steps, %s", static_cast<size_t>(d.file.n_events), d.analysis.steps.size(),
                        duration_text(d.file.end_ns - d.file.begin_ns).c_str());
  }
  const std::vector<std::string>& notices = app.document().file.notices;
  if (!notices.empty()) {
    ImGui::SameLine();
    ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(app.theme.warning), "%zu notices: %s", notices.size(),
                       notices[0].c_str());
    if (ImGui::IsItemHovered()) {
      ImGui::BeginTooltip();
      for (const std::string& notice : notices) ImGui::TextUnformatted(notice.c_str());
      ImGui::EndTooltip();
    }
  }
  constexpr double kSeconds = 10;
  const double since = app.message_since.get(app.message, [] { return ImGui::GetTime(); });
  if (!app.reads_file && ImGui::GetTime() - since > kSeconds) app.message.clear();
  if (!app.message.empty()) {
    ImGui::SameLine();
    ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(app.theme.selection), "%s", app.message.c_str());
  }
}

void global_keys(App& app) {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput) return;
  for (size_t v = 0; v < kViews && !app.documents.empty(); ++v) {
    constexpr std::array<int, kViews> kKeys{'0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'C', 'R'};
    if (!io.KeyCtrl && ImGui::IsKeyPressed(kKeys[v], false)) app.view = static_cast<ViewId>(v);
  }
  if (ImGui::IsKeyPressed('/', false) || (io.KeyCtrl && ImGui::IsKeyPressed('F', false))) app.focus_search = true;
  if (io.KeyCtrl && ImGui::IsKeyPressed('Q', false)) app.wants_quit = true;
  if (ImGui::IsKeyPressed('T', false)) app.wants_theme = true;
  if (ImGui::IsKeyPressed('P', false)) app.wants_picture = true;
  if (ImGui::IsKeyPressed('=', false)) app.wants_scale = 1.15F;
  if (ImGui::IsKeyPressed('-', false)) app.wants_scale = 1 / 1.15F;
  if (ImGui::IsKeyPressed('B', false) && app.documents.size() > 1)
    app.current = (app.current + 1) % app.documents.size();
}

}  // namespace

Document::Document(TraceFile trace)
    : file(std::move(trace)),
      analysis(analyse(file)),
      info(pipeline_info(file, analysis)),
      tokens(token_strip(analysis)),
      requests(profiler::requests_of(file)),
      work(works_of(file)),
      shade(shades_of(file)),
      name(file.path.substr(file.path.find_last_of('/') + 1)) {}

std::optional<ViewId> view_of(std::string_view option) {
  const auto at =
      std::ranges::find(kViewNames, option, [](const ViewName& name) { return std::string_view(name.option); });
  if (at == kViewNames.end()) return std::nullopt;
  return static_cast<ViewId>(at - kViewNames.begin());
}

std::string App::basis() const {
  std::string text = std::to_string(static_cast<int>(phase)) + ' ' + std::to_string(peak().value_or(0)) + ' ' +
                     std::to_string(current);
  for (const auto& d : documents) text += '\n' + d->file.path;
  return text;
}

void add_document(App& app, std::shared_ptr<const Document> document) {
  app.documents.push_back(std::move(document));
  app.timelines.emplace_back().collapsed.resize(app.documents.back()->file.tracks.size());
  app.current = app.documents.size() - 1;
  if (app.documents.size() == 1) app.phase = usual_phase(app.document().analysis);
  if (app.view == ViewId::kStart) app.view = ViewId::kTimeline;
}

void go_to(App& app, uint32_t slice) {
  if (slice == kNoIndex) return;
  const TraceFile& file = app.document().file;
  const TraceSlice& s = file.slices[slice];
  TimelineState& state = app.timeline();
  app.view = ViewId::kTimeline;
  state.selected = slice;
  state.area.reset();
  state.scroll_to = slice;
  state.collapsed[s.track] = false;
  const auto begin = static_cast<double>(s.begin_ns - file.begin_ns),
             length = static_cast<double>(std::max<int64_t>(1, s.duration_ns));
  const double width = state.to_ns - state.from_ns;
  const bool fits = width > 0 && length > 0.02 * width && length < width;  // then the scale stays
  const double shown = fits ? width : 2 * length;
  if (fits && begin >= state.from_ns && begin + length <= state.to_ns) return;
  show_range(state, begin + length / 2 - shown / 2, begin + length / 2 + shown / 2);
}

void draw(App& app) {
  const ImGuiIO& io = ImGui::GetIO();
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(io.DisplaySize);
  ImGui::Begin("tenon-view", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoBringToFrontOnFocus | ImGuiWindowFlags_NoScrollWithMouse);
  global_keys(app);
  if (app.documents.empty()) app.view = ViewId::kStart;
  draw_bar(app);
  if (!app.documents.empty()) draw_files(app);
  ImGui::Separator();
  kDraw[static_cast<size_t>(app.view)](app);
  ImGui::End();
}

}  // namespace tenon::view
