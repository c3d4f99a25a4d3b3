// This makes everything that the viewer makes of a trace out of arbitrary bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/compare.h"
#include "model/flame.h"
#include "model/fold.h"
#include "model/reports.h"
#include "model/request_rows.h"
#include "model/selection.h"
#include "model/side_by_side.h"
#include "tenon/core/error.h"

namespace view = tenon::view;

static void look_at_requests(const view::TraceFile& file, const view::Analysis& analysis) {
  const view::Requests requests = tenon::profiler::requests_of(file);
  view::request_summary(requests);
  view::percentile_table(requests);
  for (size_t order = 0; order < view::kRequestOrders.size(); ++order) {
    const auto rows = view::request_rows(requests, static_cast<view::RequestOrder>(order), view::RequestFilter::kAll);
    if (rows.size() != requests.all.size()) std::abort();
  }
  for (uint32_t i = 0; i < std::min<size_t>(requests.all.size(), 20); ++i) {
    view::request_facts(requests, i);
    view::holder_table(requests, i);
    for (const view::RequestStay& stay : requests.all[i].stays) {
      for (const view::RequestPart& part : stay.parts) view::steps_of(analysis, part);
    }
  }
}

static void look(const view::TraceFile& file) {
  const view::Analysis analysis = view::analyse(file);
  std::vector<uint32_t> tracks;
  std::vector<view::Box> boxes;
  for (uint32_t t = 0; t < file.tracks.size(); ++t) {
    tracks.push_back(t);
    const auto& lanes = file.tracks[t].lanes;
    for (size_t d = 0; d + 1 < lanes.size(); ++d) {
      const int64_t least = (file.end_ns - file.begin_ns) / 100 + 1;
      view::fold(file, {lanes[d], lanes[d + 1], file.begin_ns, file.end_ns + 1, least}, boxes);
      size_t n = 0;
      for (const view::Box& box : boxes) n += box.count;
      if (n != lanes[d + 1] - lanes[d] || boxes.size() > 103) std::abort();
    }
  }
  view::flame_of(file, tracks);
  view::sum_area(file, {file.begin_ns, file.end_ns, 0, static_cast<uint32_t>(tracks.size())});
  view::search(file, "a");
  view::token_strip(analysis);
  view::SideBySide pair({&file, &analysis}, {&file, &analysis});
  pair.align(1);
  if (!(pair.step_range().first < pair.step_range().second)) std::abort();
  for (uint32_t i = 0; i < std::min<size_t>(file.slices.size(), 100); ++i) {
    const uint32_t same = pair.counterpart(0, i);
    if (same != view::kNoIndex && file.name(file.slices[same]) != file.name(file.slices[i])) std::abort();
  }
  view::pipeline_info(file, analysis);
  look_at_requests(file, analysis);
  for (const view::Phase phase : {view::Phase::kAll, view::Phase::kPrefill, view::Phase::kDecode}) {
    view::to_text(view::op_table(file, analysis, phase, 3.0));
    view::to_text(view::step_table(analysis, phase, true));
    view::heat_map(analysis, phase);
    view::waterfall(analysis, phase, analysis.peak_gbps);
    view::comparison(file, file, phase);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    look(tenon::profiler::read_trace_bytes(bytes, "input", {.max_bytes = uint64_t{1} << 20U}));
  } catch (const tenon::Error&) {
  }
  return 0;
}
