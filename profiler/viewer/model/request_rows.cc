// Its texts and tables are made anew from the requests that request_stats.h has found; nothing here draws. A time that
// a request does not have is a dash.
#include "model/request_rows.h"

#include <algorithm>
#include <map>

namespace tenon::view {
namespace {

using profiler::kNoTime;

bool was_cut_short(const RequestLife& life) {
  return !life.end.empty() && life.end != "length" && life.end != "end_of_text" && life.end != "stop_string";
}

bool passes(const RequestLife& life, RequestFilter filter) {
  switch (filter) {
    case RequestFilter::kAll:
      return true;
    case RequestFilter::kPreempted:
      return life.preemptions() > 0;
    case RequestFilter::kCutShort:
      return was_cut_short(life);
    case RequestFilter::kOpen:
      return life.end.empty();
  }
  return true;
}

// The row with the least comes first.
int64_t key_of(const RequestLife& life, RequestOrder order) {
  switch (order) {
    case RequestOrder::kArrival:
      return life.arrived_ns;
    case RequestOrder::kWait:
      return -life.waited_ns();
    case RequestOrder::kFirstToken:
      return -life.first_token_took_ns();
    case RequestOrder::kPerToken:
      return -life.token_ns();
    case RequestOrder::kTokens:
      return -life.generated;
    case RequestOrder::kEnd:
      return life.ended_ns;
  }
  return 0;
}

double ms(int64_t ns) {
  return ns == kNoTime ? kUnknown : static_cast<double>(ns) / 1e6;
}

std::string time_text(int64_t ns) {
  return ns == kNoTime ? "-" : duration_text(ns);
}

const char* lost_text(const RequestStay& stay) {
  if (stay.lost == "slot") return "its slot went to";
  if (stay.lost == "pages") return "its pages went to";
  return "the cache had no room for its next rows";
}

}  // namespace

std::vector<uint32_t> request_rows(const Requests& requests, RequestOrder order, RequestFilter filter,
                                   int64_t min_wait_ns) {
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < requests.all.size(); ++i) {
    const RequestLife& life = requests.all[i];
    if (passes(life, filter) && life.waited_ns() >= min_wait_ns) rows.push_back(i);
  }
  std::ranges::stable_sort(rows, {}, [&](uint32_t i) { return key_of(requests.all[i], order); });
  return rows;
}

std::string request_summary(const Requests& requests) {
  std::map<std::string_view, size_t> ends;
  size_t preempted = 0;
  for (const RequestLife& life : requests.all) {
    ++ends[life.end.empty() ? "open" : life.end];
    preempted += life.preemptions() > 0 ? 1 : 0;
  }
  std::string text = std::to_string(requests.all.size()) + " requests, " + std::to_string(requests.slots) + " slots";
  const char* before = "; ";
  for (const auto& [end, count] : ends) {
    text += before + std::to_string(count) + ' ' + std::string(end);
    before = ", ";
  }
  return text + "; " + std::to_string(preempted) + " pre-empted";
}

Table percentile_table(const Requests& requests) {
  Table table;
  table.columns = {{"time", false}, {"requests"}, {"p50 ms"}, {"p90 ms"}, {"p99 ms"}, {"max ms"}};
  for (const profiler::RequestPercentiles& p : profiler::request_percentiles(requests)) {
    Table::Row row;
    row.cells = {text_cell(p.what), number_cell(static_cast<double>(p.requests), 0)};
    for (const int64_t ns : {p.p50_ns, p.p90_ns, p.p99_ns, p.max_ns}) {
      row.cells.push_back(number_cell(p.requests > 0 ? ms(ns) : kUnknown, 3));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table request_facts(const Requests& requests, uint32_t request) {
  const RequestLife& life = requests.all[request];
  Table table;
  table.columns = {{"what", false}, {"value", false}};
  const auto fact = [&](std::string what, std::string value, uint32_t slice = kNoIndex) {
    table.rows.push_back({{text_cell(std::move(what)), text_cell(std::move(value))}, slice});
  };
  fact("prompt", std::to_string(life.prompt) + " tokens, " + std::to_string(life.cached) + " found in the cache");
  fact("generated", std::to_string(life.generated) + " tokens");
  fact("priority", std::to_string(life.priority));
  fact("queue", time_text(life.queue_ns()));
  fact("first token", time_text(life.first_token_took_ns()));
  fact("per token", time_text(life.token_ns()));
  fact("total", time_text(life.total_ns()));
  fact("ended", life.end.empty() ? "not when the trace did" : std::string(life.end));
  for (const RequestStay& stay : life.stays) {
    if (stay.lost.empty()) continue;
    const std::string taker = stay.taker < 0 ? "" : " req " + std::to_string(stay.taker);
    fact("pre-empted", lost_text(stay) + taker, stay.slice);
  }
  const profiler::RequestWait wait = profiler::who_ran_meanwhile(requests, request);
  fact("waited", duration_text(wait.waited_ns) + ", " + duration_text(wait.no_slot_ns) + " of it without a free slot");
  return table;
}

Table holder_table(const Requests& requests, uint32_t request) {
  Table table;
  table.columns = {{"ran meanwhile"}, {"slot"}, {"for ms"}, {"% of the wait"}, {"tokens in the cache"}};
  const profiler::RequestWait wait = profiler::who_ran_meanwhile(requests, request);
  for (const profiler::RequestHolder& holder : wait.holders) {
    const RequestLife& life = requests.all[holder.request];
    const auto with_slot = std::ranges::find_if(life.stays, [](const RequestStay& stay) { return !stay.waits(); });
    const double share =
        static_cast<double>(holder.overlap_ns) / static_cast<double>(std::max<int64_t>(1, wait.waited_ns));
    table.rows.push_back({{number_cell(static_cast<double>(life.id), 0),
                           number_cell(static_cast<double>(holder.slot), 0), number_cell(ms(holder.overlap_ns), 3),
                           number_cell(100 * share, 1), number_cell(static_cast<double>(holder.tokens), 0)},
                          with_slot->slice});
  }
  return table;
}

std::pair<uint32_t, uint32_t> steps_of(const Analysis& analysis, const RequestPart& part) {
  const std::vector<Step>& steps = analysis.steps;
  const auto first = std::ranges::lower_bound(steps, part.first_step, {}, &Step::number);
  const auto end = std::ranges::upper_bound(first, steps.end(), part.last_step, {}, &Step::number);
  const auto index = [&](auto step) { return static_cast<uint32_t>(step - steps.begin()); };
  return {index(first), index(end)};
}

}  // namespace tenon::view
