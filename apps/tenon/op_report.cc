// This prints the times of a decode step's ops, as lines for people, as JSON and as CSV (RFC 4180).
#include "op_report.h"

#include <spdlog/fmt/fmt.h>

#include "tenon/core/memory_plan.h"

namespace tenon::app {
namespace {

constexpr const char* kBetween = "between steps";

// This holds a line of the table, as text. The first three columns are aligned to the left.
struct OpLine {
  std::string path, component = {}, op = {};
  std::string calls = {}, us = {}, share = {}, bytes = {}, gbps = {};
};

}  // namespace

profiler::OpGroup OpReport::total() const {
  profiler::OpGroup sum{.path = "step", .us = step_us};
  for (const profiler::OpGroup& g : groups) {
    sum.calls += g.calls;
    sum.bytes += g.bytes;
  }
  return sum;
}

std::string op_table(const OpReport& r) {
  if (!r.problem.empty()) return "  no times of the ops: " + r.problem + "\n";
  size_t path = std::string_view(kBetween).size(), component = 9, op = 2;
  for (const profiler::OpGroup& g : r.groups) {
    path = std::max(path, g.path.size());
    component = std::max(component, g.component.size());
    op = std::max(op, g.op.size());
  }
  std::string out =
      fmt::format("  mean of {} steps at a context of {:.0f} tokens; times by {}\n", r.steps, r.context, r.clock);
  const auto put = [&](const OpLine& l) {
    std::string text = fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:>5}  {:>9}  {:>7}  {:>8}  {:>7}", l.path, path,
                                   l.component, component, l.op, op, l.calls, l.us, l.share, l.bytes, l.gbps);
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  const auto put_group = [&](const profiler::OpGroup& g) {
    put({.path = g.path,
         .component = g.component,
         .op = g.op,
         .calls = std::to_string(g.calls),
         .us = fmt::format("{:.1f}", g.us),
         .share = fmt::format("{:.1f} %", 100 * r.share(g.us)),
         .bytes = format_bytes(static_cast<uint64_t>(g.bytes)),
         .gbps = fmt::format("{:.1f}", g.gbps())});
  };
  put({"module", "component", "op", "calls", "us a step", "share", "bytes", "GB/s"});
  for (const profiler::OpGroup& g : r.groups) put_group(g);
  put({.path = kBetween,
       .us = fmt::format("{:.1f}", r.between_us),
       .share = fmt::format("{:.1f} %", 100 * r.share(r.between_us))});
  put_group(r.total());
  const double change = r.unrecorded_tok_per_s > 0 ? 100 * (r.tok_per_s / r.unrecorded_tok_per_s - 1) : 0;
  return out + fmt::format("  decode {:.1f} tok/s while recording, {:.1f} without: {:+.1f} %\n", r.tok_per_s,
                           r.unrecorded_tok_per_s, change);
}

boost::json::object to_json(const OpReport& r) {
  if (!r.problem.empty()) return {{"error", r.problem}};
  boost::json::array groups;
  for (const profiler::OpGroup& g : r.groups) {
    groups.push_back(boost::json::object{{"module", g.path},
                                         {"component", g.component},
                                         {"op", g.op},
                                         {"calls", g.calls},
                                         {"us", g.us},
                                         {"bytes", g.bytes},
                                         {"gbps", g.gbps()},
                                         {"share", r.share(g.us)}});
  }
  return {{"clock", r.clock},
          {"steps", r.steps},
          {"context", r.context},
          {"step_us", r.step_us},
          {"between_us", r.between_us},
          {"recorded_tok_per_s", r.tok_per_s},
          {"unrecorded_tok_per_s", r.unrecorded_tok_per_s},
          {"groups", groups}};
}

std::string csv_field(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string op_csv_summary(const OpReport& r) {
  if (!r.problem.empty() || r.groups.empty()) return ",," + csv_field(r.problem) + ",,,,,,,,";
  return fmt::format("{:.3f},{:.3f},,,,,,,,,", r.step_us, r.tok_per_s);
}

std::vector<std::string> op_csv_lines(const OpReport& r) {
  std::vector<std::string> lines;
  if (!r.problem.empty() || r.groups.empty()) return lines;
  for (const profiler::OpGroup& g : r.groups) {
    lines.push_back(fmt::format(",,,{},{},{},{},{:.3f},{:.0f},{:.3f},{:.4f}", csv_field(g.path), csv_field(g.component),
                                csv_field(g.op), g.calls, g.us, g.bytes, g.gbps(), r.share(g.us)));
  }
  lines.push_back(fmt::format(",,,{},,,,{:.3f},,,{:.4f}", csv_field(kBetween), r.between_us, r.share(r.between_us)));
  return lines;
}

}  // namespace tenon::app
