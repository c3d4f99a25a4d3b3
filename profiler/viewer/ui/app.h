// This has the state of the viewer, and draws one frame of it. It knows ImGui, but no window.
#pragma once

#include <imgui.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/analysis.h"
#include "model/flame.h"
#include "model/reports.h"
#include "model/request_rows.h"
#include "model/selection.h"
#include "model/side_by_side.h"
#include "ui/theme.h"

namespace tenon::view {

// These are keys as ImGui's backend for GLFW numbers them.
namespace key {
inline constexpr int kEscape = 256, kEnter = 257, kRight = 262, kLeft = 263, kDown = 264, kUp = 265;
}

enum class ViewId : uint8_t {
  kStart,
  kTimeline,
  kSteps,
  kTokens,
  kHeatMap,
  kWaterfall,
  kOps,
  kFlame,
  kPlots,
  kPipeline,
  kCompare,
  kRequests
};
inline constexpr size_t kViews = 12;
struct ViewName {
  const char* option;  // it is the value of --view
  const char* title;
};
inline constexpr std::array<ViewName, kViews> kViewNames{{{"start", "Start"},
                                                          {"timeline", "Timeline"},
                                                          {"steps", "Steps"},
                                                          {"token-strip", "Tokens"},
                                                          {"heat-map", "Layers x operations"},
                                                          {"waterfall", "Where the step goes"},
                                                          {"operations", "Operations"},
                                                          {"flame", "Flame"},
                                                          {"plots", "Plots"},
                                                          {"pipeline", "Pipeline"},
                                                          {"compare", "Compare"},
                                                          {"requests", "Requests"}}};
std::optional<ViewId> view_of(std::string_view option);

// This holds a trace and what does not depend on how it is looked at.
struct Document {
  explicit Document(TraceFile trace);

  TraceFile file;
  Analysis analysis;
  PipelineInfo info;
  std::vector<TokenCell> tokens;
  Requests requests;
  std::vector<uint8_t> work;    // [slices]: the Work of an operation; 255 for other slices
  std::vector<uint32_t> shade;  // [strings]: the shade of each one that is a slice's name
  std::string name;             // it is the file's name without its folder
};

struct TimelineState {
  double from_ns = 0, to_ns = 0;  // this time is shown, since the begin of the trace; equal = not yet set
  uint32_t selected = kNoIndex;   // it is a slice
  std::optional<Area> area;
  Table area_sums;
  bool dragging = false, panning = false;  // true: it began here
  ImVec2 drag_from{};
  double drag_from_ns = 0;
  std::vector<uint32_t> found;  // the search found these slices
  std::vector<bool> is_found;   // [slices]: true: the search found it; empty if it found nothing
  size_t found_at = 0;
  std::string searched;
  uint32_t scroll_to = kNoIndex;  // the next frame scrolls to this slice
  std::vector<bool> collapsed;    // tracks
};

// These are two timelines over one another, see SideBySide.
struct PairState {
  SideBySide pair;
  std::array<TimelineState, 2> timelines{};
  double from_ns = 0, to_ns = 0;  // both show this time, since the aligned moment
  size_t keys_side = 0;           // the mouse was last on this side

  struct Mark {
    size_t side = 0;
    uint32_t slice = kNoIndex;  // it is the slice that is hovered, else the one that is selected
    std::string path{};         // it is the path of a row of the table, if no slice is meant
    bool operator==(const Mark&) const = default;
  };
  Mark hovered{}, selected{}, marked{};
  std::array<PathMatch, 2> same{};                    // everything that has the same name as what is marked
  std::array<uint32_t, 2> twins{kNoIndex, kNoIndex};  // it, and what it is in the other trace
};

// This is the state of the view of a trace's requests.
struct RequestsState {
  explicit RequestsState(const Requests& requests);
  // kNoIndex selects none.
  void select(const Requests& requests, uint32_t request);
  void fit(const Requests& requests, const TraceFile& file);

  double from_ns = 0, to_ns = 0;  // this time is shown, since the begin of the trace; equal = not yet set
  RequestOrder order = RequestOrder::kArrival;
  RequestFilter filter = RequestFilter::kAll;
  float min_wait_ms = 0;
  std::vector<uint32_t> rows;  // these are indices of the requests that are shown
  Table percentiles;
  uint32_t selected = kNoIndex;     // it is a request
  uint32_t scroll_to = kNoIndex;    // the next frame scrolls to this request
  std::vector<uint32_t> holders{};  // they had slots while it waited; sorted
  Table facts{}, held_by{};
};

// This keeps a value until it is wanted of something else.
template <typename T>
struct Cached {
  T value;
  std::string of;

  template <typename Make>
  T& get(const std::string& wanted, Make make) {
    if (of != wanted) value = make();
    of = wanted;
    return value;
  }
};

struct App {
  App(bool dark, float scale) : theme(make_theme(dark, scale)) {}

  std::vector<std::shared_ptr<const Document>> documents;
  std::vector<TimelineState> timelines;  // each document has one
  size_t current = 0;
  ViewId view = ViewId::kStart;
  Theme theme;
  Phase phase = Phase::kAll;
  std::optional<double> bandwidth;  // GB/s, where the trace does not say
  bool heat_by_share = false;
  uint32_t flame_root = 0;
  Cached<Flame> flame;
  Cached<Table> ops, steps, comparison;
  Cached<std::optional<PairState>> pair;
  Cached<std::shared_ptr<RequestsState>> requests;
  Cached<HeatMap> heat;
  Cached<Waterfall> fall;
  bool worst_first = true;
  std::array<char, 256> search_text{};
  bool focus_search = false;
  std::vector<std::string> recent;
  std::string message;  // it tells of the last action, or of an error
  bool reads_file = false;
  Cached<double> message_since{};  // a message about an open trace goes away after a while

  // The frame asks its window to do these.
  std::string wants_open;
  bool wants_picture = false;
  bool wants_theme = false;
  bool wants_quit = false;
  float wants_scale = 0;  // a factor; 0 = none

  // Names what tables and figures depend on.
  std::string basis() const;
  const Document& document() const { return *documents[current]; }
  TimelineState& timeline() { return timelines[current]; }
  std::optional<double> peak() const { return peak_of(document()); }
  std::optional<double> peak_of(const Document& d) const {
    return d.analysis.peak_gbps ? d.analysis.peak_gbps : bandwidth;
  }
};

void add_document(App& app, std::shared_ptr<const Document> document);
// Shows the slice in the timeline, with some of what is around it.
void go_to(App& app, uint32_t slice);
// Draws one frame, over the whole display.
void draw(App& app);

}  // namespace tenon::view
