// This view shows two traces, A and B: their timelines over one another, aligned at a step, and which operations
// differ. Both timelines show the same time, which counts from the aligned moment: what moves one moves the other. What
// is selected in one is selected in the other, too, if that has it; what is hovered, or else selected, is framed in
// both. Differences are medians over the steps of the chosen phase. An area that was dragged replaces their table by
// its sums.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "model/compare.h"
#include "ui/timeline.h"
#include "ui/views.h"

namespace tenon::view {
namespace {

constexpr std::array<const char*, 2> kSides{"A", "B"};

class CompareView {
 public:
  CompareView(App& app, const Document& a, const Document& b, PairState& state)
      : app_(app), theme_(app.theme), documents_{&a, &b}, state_(state) {}

  void run();
  void search(int direction);

 private:
  using Mark = PairState::Mark;

  void keys();
  void align(int64_t step);
  void choose_step();
  std::string step_text(size_t side) const;
  void pane(size_t side, float height);
  void select(const Mark& mark);
  void mark();
  void describe_marked() const;
  void differences();
  void splits() const;

  App& app_;
  const Theme& theme_;
  std::array<const Document*, 2> documents_;
  PairState& state_;
};

// Fills in the mean time by sort of work, and returns the sum.
double mean_step(const Analysis& analysis, Phase phase, std::array<double, kWorks>& mean) {
  const std::vector<uint32_t> steps = steps_of(analysis, phase);
  mean = {};
  double total = 0;
  for (const uint32_t i : steps) {
    for (size_t w = 0; w < kWorks; ++w)
      mean[w] += static_cast<double>(analysis.steps[i].by_work[w]) / static_cast<double>(steps.size());
  }
  for (const double ns : mean) total += ns;
  return total;
}

std::string CompareView::step_text(size_t side) const {
  const uint32_t index = state_.pair.step_index(side, state_.pair.aligned());
  if (index == kNoIndex) return {};
  const TraceFile& file = documents_[side]->file;
  return std::string(file.name(file.slices[documents_[side]->analysis.steps[index].slice])) + " of " + kSides[side];
}

void CompareView::align(int64_t step) {
  state_.pair.align(step);
  std::tie(state_.from_ns, state_.to_ns) = state_.pair.step_range();
}

void CompareView::choose_step() {
  const auto [first, last] = state_.pair.steps();
  if (last < first) {
    return draw_missing(app_,
                        "One of the two has no steps (slices ProfilerStep#N): they are aligned at their begins, and "
                        "their operations cannot be compared.");
  }
  const int64_t step = state_.pair.aligned();
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("aligned at the begin of");
  ImGui::SameLine();
  if (ImGui::ArrowButton("before", ImGuiDir_Left)) align(step - 1);
  ImGui::SameLine(0, theme_.px(4));
  if (ImGui::ArrowButton("after", ImGuiDir_Right)) align(step + 1);
  ImGui::SameLine();
  const bool decodes = documents_[0]->analysis.steps[state_.pair.step_index(0, 0)].decodes();
  std::string which = decodes ? "the first decode step" : "the first step";
  if (step != 0) which += (step > 0 ? " + " : " - ") + std::to_string(std::abs(step));
  ImGui::Text("%s: %s, %s", which.c_str(), step_text(0).c_str(), step_text(1).c_str());
}

void CompareView::keys() {
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput || io.KeyCtrl) return;
  if (ImGui::IsKeyPressed('N', false)) search(io.KeyShift ? -1 : 1);
  if (ImGui::IsKeyPressed('.')) align(state_.pair.aligned() + 1);
  if (ImGui::IsKeyPressed(',')) align(state_.pair.aligned() - 1);
  if (ImGui::IsKeyPressed(key::kEscape, false)) select({});
}

void CompareView::pane(size_t side, float height) {
  ImGui::BeginChild(kSides[side], {0, height}, false,
                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_NoScrollWithMouse);
  TimelineState& t = state_.timelines[side];
  const double origin = state_.pair.origin_ns(side);
  const auto [whole_from, whole_to] = state_.pair.whole_range();
  show_range(t, origin + state_.from_ns, origin + state_.to_ns);
  const double from = t.from_ns, to = t.to_ns;
  const uint32_t selected = t.selected;
  Timeline timeline(app_, {.document = *documents_[side],
                           .state = t,
                           .whole_from_ns = origin + whole_from,
                           .whole_to_ns = origin + whole_to,
                           .takes_keys = side == state_.keys_side,
                           .is_alone = false,
                           .label = std::string(kSides[side]) + "  " + documents_[side]->name,
                           .origin_ns = origin,
                           .same = &state_.same[side],
                           .twin = state_.twins[side]});
  const uint32_t hovered = timeline.run();
  if (hovered != kNoIndex) state_.hovered = {side, hovered};
  if (t.selected != selected) select({side, t.selected});
  if (t.from_ns != from || t.to_ns != to) {
    state_.from_ns = t.from_ns - origin;
    state_.to_ns = t.to_ns - origin;
  }
  if (ImGui::IsWindowHovered(ImGuiHoveredFlags_ChildWindows)) state_.keys_side = side;
  ImGui::EndChild();
}

// Selects in the other trace what is selected in one.
void CompareView::select(const Mark& mark) {
  state_.selected = mark;
  for (size_t side = 0; side < 2; ++side) {
    TimelineState& t = state_.timelines[side];
    if (side != mark.side || mark.slice == kNoIndex) t.area.reset();
    t.selected =
        side == mark.side || mark.slice == kNoIndex ? mark.slice : state_.pair.counterpart(mark.side, mark.slice);
    if (side != mark.side) t.scroll_to = t.selected;
  }
}

// Searches in A; what A does not have is looked for in B.
void CompareView::search(int direction) {
  const std::string text = app_.search_text.data();
  if (text.empty()) return;
  for (size_t side = 0; side < 2; ++side) {
    const TraceFile& file = documents_[side]->file;
    const std::vector<uint32_t> found = view::search(file, text);
    if (found.empty()) continue;
    const double origin = state_.pair.origin_ns(side);
    const auto begin = [&](uint32_t i) {
      return static_cast<double>(file.slices[i].begin_ns - file.begin_ns) - origin;
    };
    auto at = static_cast<size_t>(std::ranges::find(found, state_.timelines[side].selected) - found.begin());
    if (at < found.size()) {
      at = (at + (direction > 0 ? 1 : found.size() - 1)) % found.size();
    } else {
      at = static_cast<size_t>(std::ranges::lower_bound(found, 0.0, {}, begin) - found.begin()) % found.size();
    }
    const double middle = begin(found[at]), half = (state_.to_ns - state_.from_ns) / 2;
    if (middle < state_.from_ns || middle > state_.to_ns) {
      state_.from_ns = middle - half;
      state_.to_ns = middle + half;
    }
    select({side, found[at]});
    state_.timelines[side].scroll_to = found[at];
    return;
  }
  app_.message = "nothing in either is called \"" + text + "\", nor is an argument";
}

void CompareView::mark() {
  const Mark& wanted = state_.hovered.slice != kNoIndex ? state_.hovered : state_.selected;
  if (state_.marked == wanted) return;
  state_.marked = wanted;
  state_.same = {};
  state_.twins = {kNoIndex, kNoIndex};
  std::string path = wanted.path;
  if (wanted.slice != kNoIndex) {
    const TraceFile& file = documents_[wanted.side]->file;
    path = path_of(file, file.slices[wanted.slice]);
    state_.twins[wanted.side] = wanted.slice;
    state_.twins[1 - wanted.side] = state_.pair.counterpart(wanted.side, wanted.slice);
  }
  if (path.empty()) return;
  for (size_t side = 0; side < 2; ++side) state_.same[side] = PathMatch(documents_[side]->file, path);
}

void CompareView::describe_marked() const {
  const std::string& path = state_.same[0].path();
  if (path.empty())
    return ImGui::TextDisabled("Hover or click a slice, or click a row: the same one is framed in the other trace.");
  ImGui::TextUnformatted(path.c_str());
  if (state_.marked.slice == kNoIndex) return;
  std::array<int64_t, 2> ns{};
  for (size_t side = 0; side < 2; ++side) {
    const uint32_t slice = state_.twins[side];
    if (slice != kNoIndex) ns[side] = documents_[side]->file.slices[slice].duration_ns;
    ImGui::SameLine(0, theme_.px(16));
    ImGui::Text("%s %s", kSides[side], slice == kNoIndex ? "has none in this step" : duration_text(ns[side]).c_str());
  }
  if (ns[0] <= 0 || state_.twins[1] == kNoIndex) return;
  ImGui::SameLine(0, theme_.px(16));
  ImGui::TextColored(ImGui::ColorConvertU32ToFloat4(ns[1] > ns[0] ? theme_.bad : theme_.good), "%+.1f %%",
                     100 * (static_cast<double>(ns[1]) / static_cast<double>(ns[0]) - 1));
}

// Draws the mean step of each, by work.
void CompareView::splits() const {
  std::array<std::array<double, kWorks>, 2> mean;
  std::array<double, 2> total;
  for (size_t side = 0; side < 2; ++side) total[side] = mean_step(documents_[side]->analysis, app_.phase, mean[side]);
  const float left = theme_.px(150), height = theme_.px(22), width = ImGui::GetContentRegionAvail().x - left;
  for (size_t side = 0; side < 2; ++side) {
    ImDrawList& draw = *ImGui::GetWindowDrawList();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const std::string text = std::string(kSides[side]) + "  " + duration_text(static_cast<int64_t>(total[side]));
    draw.AddText({at.x, at.y + theme_.px(1)}, theme_.text, text.c_str());
    float x = at.x + left;
    for (size_t w = 0; w < kWorks; ++w) {
      const float size = width * static_cast<float>(mean[side][w] / std::max({1.0, total[0], total[1]}));
      draw.AddRectFilled({x, at.y}, {x + size, at.y + height - theme_.px(3)}, theme_.work[w]);
      x += size;
    }
    ImGui::Dummy({width, height});
  }
}

void CompareView::differences() {
  for (const TimelineState& t : state_.timelines) {
    if (!t.area) continue;
    const size_t side = &t == state_.timelines.data() ? 0 : 1;
    ImGui::Text("%s of %s; Esc shows the differences again", duration_text(t.area->to_ns - t.area->from_ns).c_str(),
                kSides[side]);
    Table sums = t.area_sums;
    for (Table::Row& row : sums.rows) row.slice = kNoIndex;
    draw_table(app_, sums, "area");
    return;
  }
  const size_t steps_a = steps_of(documents_[0]->analysis, app_.phase).size(),
               steps_b = steps_of(documents_[1]->analysis, app_.phase).size();
  Table& changes = app_.comparison.get(
      app_.basis(), [this] { return comparison(documents_[0]->file, documents_[1]->file, app_.phase); });
  if (changes.rows.empty() || steps_a == 0 || steps_b == 0) {
    return draw_missing(app_, "One of the two has no such steps with operations in them, so there are no differences.");
  }
  splits();
  ImGui::TextDisabled(
      "Medians over %zu and %zu steps. \"noise\": a rank test gives p > 0.01, the medians differ by less than 5 %%, or "
      "it is below 1 %% of a step.",
      steps_a, steps_b);
  const Table::Row* clicked = draw_table(app_, changes, "changes", without_numbers(state_.same[0].path()));
  if (clicked != nullptr) select({.path = clicked->cells[0].text});
}

void CompareView::run() {
  keys();
  draw_phase_choice(app_);
  ImGui::SameLine(0, theme_.px(24));
  choose_step();
  draw_legend(app_);
  const float height = std::floor(ImGui::GetContentRegionAvail().y * 0.3F);
  state_.hovered = {};
  for (size_t side = 0; side < 2; ++side) pane(side, height);
  mark();
  ImGui::Separator();
  describe_marked();
  ImGui::BeginChild("differences");
  differences();
  ImGui::EndChild();
}

// The first decode step is shown first, with its operations in sight.
std::optional<PairState> make_pair(const Document& a, const Document& b) {
  PairState state{.pair = SideBySide({&a.file, &a.analysis}, {&b.file, &b.analysis})};
  std::tie(state.from_ns, state.to_ns) = state.pair.step_range();
  for (size_t side = 0; side < 2; ++side) {
    const Document& d = side == 0 ? a : b;
    state.timelines[side].collapsed.resize(d.file.tracks.size());
    if (!d.analysis.ops.empty()) state.timelines[side].scroll_to = d.analysis.ops.front().slice;
  }
  return state;
}

}  // namespace

static CompareView compare_view(App& app) {
  const size_t other = std::max<size_t>(1, app.current);  // A is the first one
  const Document &a = *app.documents[0], &b = *app.documents[other];
  return {app, a, b, *app.pair.get(std::to_string(other), [&] { return make_pair(a, b); })};
}

void draw_compare(App& app) {
  if (app.documents.size() < 2) {
    return draw_missing(app, "To compare, open a second trace: drop it here, or start tenon-view with two files.");
  }
  compare_view(app).run();
}

void search_from(App& app, int direction) {
  if (app.view == ViewId::kCompare && app.documents.size() > 1) return compare_view(app).search(direction);
  if (app.view == ViewId::kRequests) return search_requests(app);
  search_timeline(app, direction);
}

}  // namespace tenon::view
