// This has the state of the view of requests (what is selected, who ran while that waited, which time is shown) and the
// panel of the selected request. The tables are made when a request is selected, not in each frame.
#include <algorithm>
#include <charconv>

#include "ui/views.h"

namespace tenon::view {
namespace {

// Draws its slices, and buttons for the steps that carried each.
void draw_parts(App& app, const RequestLife& life) {
  const Analysis& analysis = app.document().analysis;
  int id = 0;
  const auto button = [&](const std::string& text, uint32_t slice) {
    ImGui::PushID(++id);
    if (ImGui::SmallButton(text.c_str())) go_to(app, slice);
    ImGui::PopID();
  };
  for (const RequestStay& stay : life.stays) {
    button(stay.waits() ? "waits" : "slot " + std::to_string(stay.slot), stay.slice);
    ImGui::SameLine();
    ImGui::TextDisabled("%s", duration_text(stay.duration_ns()).c_str());
    for (const RequestPart& part : stay.parts) {
      ImGui::Indent();
      ImGui::Text("%s, %lld tokens, %s", part.is_prompt ? "prompt" : "decode", static_cast<long long>(part.rows),
                  duration_text(part.end_ns - part.begin_ns).c_str());
      const auto [first, end] = steps_of(analysis, part);
      if (first < end) {
        ImGui::SameLine();
        button("step " + std::to_string(analysis.steps[first].number), analysis.steps[first].slice);
      }
      if (first + 1 < end) {
        ImGui::SameLine();
        button("to " + std::to_string(analysis.steps[end - 1].number), analysis.steps[end - 1].slice);
      }
      ImGui::Unindent();
    }
  }
}

}  // namespace

void draw_request_details(App& app, RequestsState& state) {
  const RequestLife& life = app.document().requests.all[state.selected];
  ImGui::Separator();
  const float width = ImGui::GetContentRegionAvail().x;
  ImGui::BeginChild("facts", {width * 0.3F, 0});
  ImGui::Text("req %lld", static_cast<long long>(life.id));
  draw_table(app, state.facts, "facts");
  ImGui::EndChild();
  ImGui::SameLine();
  ImGui::BeginChild("parts", {width * 0.3F, 0});
  draw_parts(app, life);
  ImGui::EndChild();
  ImGui::SameLine();
  ImGui::BeginChild("holders", {0, 0});
  if (state.held_by.rows.empty()) {
    ImGui::TextDisabled("Nobody had a slot while it waited.");
  } else {
    draw_table(app, state.held_by, "holders");
  }
  ImGui::EndChild();
}

RequestsState::RequestsState(const Requests& requests)
    : rows(request_rows(requests, order, filter)), percentiles(percentile_table(requests)) {}

void RequestsState::select(const Requests& requests, uint32_t request) {
  selected = request;
  holders.clear();
  if (request == kNoIndex) return;
  facts = request_facts(requests, request);
  held_by = holder_table(requests, request);
  for (const profiler::RequestHolder& holder : profiler::who_ran_meanwhile(requests, request).holders) {
    holders.push_back(holder.request);
  }
  std::ranges::sort(holders);
}

// Shows the selected request, or everything if that is shown already.
void RequestsState::fit(const Requests& requests, const TraceFile& file) {
  double from = 0, to = static_cast<double>(std::max<int64_t>(1, file.end_ns - file.begin_ns));
  if (selected != kNoIndex) {
    const RequestLife& life = requests.all[selected];
    const auto begin = static_cast<double>(life.arrived_ns - file.begin_ns);
    const auto end = static_cast<double>(life.ended_ns - file.begin_ns), margin = std::max(1000.0, (end - begin) / 20);
    if (from_ns != begin - margin || to_ns != end + margin) {
      from = begin - margin;
      to = end + margin;
    }
  }
  from_ns = from;
  to_ns = to;
}

RequestsState& requests_state(App& app) {
  const Requests& requests = app.document().requests;
  const auto make = [&] { return std::make_shared<RequestsState>(requests); };
  return *app.requests.get(app.document().file.path + ' ' + std::to_string(app.current), make);
}

void search_requests(App& app) {
  const std::string_view text = app.search_text.data();
  const size_t at = std::min(text.find_first_of("0123456789"), text.size());
  int64_t id = -1;
  std::from_chars(text.data() + at, text.data() + text.size(), id);
  const Requests& requests = app.document().requests;
  const auto found = std::ranges::find(requests.all, id, &RequestLife::id);
  if (found == requests.all.end()) {
    app.message = "no request \"" + std::string(text) + '"';
    return;
  }
  RequestsState& state = requests_state(app);
  state.scroll_to = static_cast<uint32_t>(found - requests.all.begin());
  state.select(requests, state.scroll_to);
}

}  // namespace tenon::view
