// These draw the views, each into the current ImGui window.
#pragma once

#include "ui/app.h"

namespace tenon::view {

void draw_start(App& app);
void draw_timeline(App& app);
void draw_steps(App& app);
void draw_tokens(App& app);
void draw_heat_map(App& app);
void draw_waterfall(App& app);
void draw_ops(App& app);
void draw_flame(App& app);
void draw_plots(App& app);
void draw_pipeline(App& app);
void draw_compare(App& app);
void draw_requests(App& app);

// Draws a chooser of decode, prefill or all steps.
void draw_phase_choice(App& app);
// Says what the trace lacks for a view.
void draw_missing(const App& app, const char* text);
void draw_legend(const App& app);
// A table can be sorted by its headers; a click on a row goes to its slice; a button copies it. `id` is unique in the
// window; `marked` is the first cell of rows that stand out. Returns the row that was clicked.
const Table::Row* draw_table(App& app, Table& table, const char* id, std::string_view marked = {});
// Writes the lines of a tooltip that say how a step splits.
void describe_step(const App& app, const Step& step);

// Starts a search, or goes to its next (1) or previous (-1) result.
void search_timeline(App& app, int direction);
// Draws the panel below: the selected request's times, its steps, and who ran while it waited.
void draw_request_details(App& app, RequestsState& state);
RequestsState& requests_state(App& app);
// Selects the request whose number stands in the search's text.
void search_requests(App& app);
// Searches the comparison, the requests or the timeline, whichever is shown.
void search_from(App& app, int direction);
// Shows [from_ns, to_ns].
void show_range(TimelineState& state, double from_ns, double to_ns);

}  // namespace tenon::view
