// These draw the tooltip and the panel of a slice, find the marks of the ruler, and search for names; they read the App
// and change only what was selected or found.
#include "ui/timeline_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ui/views.h"

namespace tenon::view {
namespace {

std::string value_text(const TraceFile& file, const profiler::TraceArg& arg) {
  using Kind = profiler::TraceArg::Kind;
  const std::string_view key = file.strings[arg.key];
  if (arg.kind == Kind::kInteger) {
    std::string text = std::to_string(arg.integer);
    if (key.starts_with("bytes")) text += " (" + bytes_text(static_cast<double>(arg.integer)) + ')';
    return text;
  }
  if (arg.kind == Kind::kNumber) {
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%.10g", arg.number);
    return text.data();
  }
  if (arg.kind == Kind::kBool) return arg.integer != 0 ? "true" : "false";
  if (arg.kind == Kind::kNull) return "null";
  return std::string(file.strings[arg.text]);
}

std::string begin_text(const TraceFile& file, const TraceSlice& slice) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.6f ms", static_cast<double>(slice.begin_ns - file.begin_ns) / 1e6);
  return text.data();
}

std::string rate_text(const TraceFile& file, const TraceSlice& slice, std::optional<double> peak) {
  const double bytes = file.number(slice, "bytes_read").value_or(0) + file.number(slice, "bytes_written").value_or(0);
  if (bytes <= 0 || slice.duration_ns <= 0) return {};
  const double gbps = bytes / static_cast<double>(slice.duration_ns);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), peak ? "%.1f GB/s, %.0f %% of peak" : "%.1f GB/s", gbps,
                peak ? 100 * gbps / *peak : 0);
  return text.data();
}

void draw_slice(App& app, uint32_t index) {
  const TraceFile& file = app.document().file;
  const TraceSlice& slice = file.slices[index];
  const profiler::TraceTrack& track = file.tracks[slice.track];
  const std::string name(file.name(slice));
  ImGui::TextUnformatted(name.c_str());
  const std::string rate = rate_text(file, slice, app.peak());
  ImGui::TextDisabled("%s at %s on %s / %s%s%s", duration_text(slice.duration_ns).c_str(),
                      begin_text(file, slice).c_str(), file.processes[track.process].name.c_str(), track.name.c_str(),
                      rate.empty() ? "" : ", ", rate.c_str());
  if (const uint32_t parent = file.parent(index); parent != kNoIndex) {
    ImGui::SameLine();
    if (ImGui::SmallButton("parent")) go_to(app, parent);
  }
  size_t shown = 0;
  for (const profiler::TraceFlow& flow : file.flows) {
    if (flow.from != index && flow.to != index) continue;
    if (++shown > 8) break;
    const uint32_t other = flow.from == index ? flow.to : flow.from;
    ImGui::PushID(static_cast<int>(other));
    if (ImGui::SmallButton(flow.from == index ? "to" : "from")) go_to(app, other);
    ImGui::SameLine();
    const std::string text(file.name(file.slices[other]));
    ImGui::TextUnformatted(text.c_str());
    ImGui::PopID();
  }
  if (!ImGui::BeginTable("args", 2, ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_RowBg)) return;
  for (const profiler::TraceArg& arg : file.args.all(slice.args)) {
    ImGui::TableNextColumn();
    const std::string key(file.strings[arg.key]);
    ImGui::TextDisabled("%s", key.c_str());
    ImGui::TableNextColumn();
    ImGui::TextUnformatted(value_text(file, arg).c_str());
  }
  ImGui::EndTable();
}

}  // namespace

RulerSteps ruler_steps(double least_ns) {
  double ns = 1;
  while (ns < least_ns) {
    for (const double factor : {2.0, 5.0, 10.0}) {
      if (ns * factor >= least_ns || factor == 10.0) {
        ns *= factor;
        break;
      }
    }
  }
  struct Unit {
    double ns;
    const char* name;
  };
  constexpr std::array<Unit, 4> kUnits{{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}}};
  // This takes the largest unit that needs no more than one decimal.
  for (const Unit& unit : kUnits) {
    int decimals = 0;
    while (decimals < 1 && std::fmod(ns * std::pow(10.0, decimals), unit.ns) != 0) ++decimals;
    if (std::fmod(ns * std::pow(10.0, decimals), unit.ns) == 0) return {ns, unit.ns, unit.name, decimals};
  }
  return {ns, 1, "ns", 0};
}

std::string ruler_text(double ns, const RulerSteps& steps) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", steps.decimals, ns / steps.unit_ns, steps.unit);
  return text.data();
}

void describe_box(const App& app, const Document& document, const Box& box) {
  const TraceFile& file = document.file;
  const TraceSlice& slice = file.slices[box.first];
  ImGui::BeginTooltip();
  if (box.count > 1) {
    ImGui::Text("%u slices in %s", box.count, duration_text(box.end_ns - box.begin_ns).c_str());
    ImGui::TextDisabled("zoom in to tell them apart");
  } else {
    const std::string name(file.name(slice)), rate = rate_text(file, slice, app.peak_of(document));
    ImGui::TextUnformatted(name.c_str());
    ImGui::Text("%s%s%s", duration_text(slice.duration_ns).c_str(), rate.empty() ? "" : ", ", rate.c_str());
    for (const char* key : {"component", "op", "phase", "tokens"}) {
      if (const auto text = file.text(slice, key))
        ImGui::TextDisabled("%s: %.*s", key, static_cast<int>(text->size()), text->data());
    }
  }
  ImGui::EndTooltip();
}

void draw_details(App& app) {
  TimelineState& state = app.timeline();
  ImGui::Separator();
  ImGui::BeginChild("details", {0, 0}, false);
  if (!state.found.empty()) {
    ImGui::Text("\"%s\": %zu of %zu", state.searched.c_str(), state.found_at + 1, state.found.size());
    ImGui::SameLine();
    if (ImGui::SmallButton("previous")) search_timeline(app, -1);
    ImGui::SameLine();
    if (ImGui::SmallButton("next")) search_timeline(app, 1);
  }
  if (state.area) {
    const uint32_t tracks = state.area->end_track - state.area->first_track;
    ImGui::Text("%s on %u track%s", duration_text(state.area->to_ns - state.area->from_ns).c_str(), tracks,
                tracks == 1 ? "" : "s");
    draw_table(app, state.area_sums, "area");
  } else if (state.selected != kNoIndex) {
    draw_slice(app, state.selected);
  }
  ImGui::EndChild();
}

void search_timeline(App& app, int direction) {
  TimelineState& state = app.timeline();
  const std::string text = app.search_text.data();
  const TraceFile& file = app.document().file;
  if (text.empty()) return;
  if (text != state.searched || state.found.empty()) {
    state.searched = text;
    state.found = search(file, text);
    state.found_at = 0;
    state.is_found.assign(state.found.empty() ? 0 : file.slices.size(), false);
    for (const uint32_t i : state.found) state.is_found[i] = true;
    if (state.found.empty()) {
      app.message = "nothing is called \"" + text + "\", nor is an argument";
      return;
    }
    const int64_t middle = file.begin_ns + static_cast<int64_t>((state.from_ns + state.to_ns) / 2);
    const auto at =
        std::ranges::lower_bound(state.found, middle, {}, [&](uint32_t i) { return file.slices[i].begin_ns; });
    if (at != state.found.end()) state.found_at = static_cast<size_t>(at - state.found.begin());
  } else {
    const size_t n = state.found.size();
    state.found_at = (state.found_at + (direction > 0 ? 1 : n - 1)) % n;
  }
  go_to(app, state.found[state.found_at]);
}

}  // namespace tenon::view
