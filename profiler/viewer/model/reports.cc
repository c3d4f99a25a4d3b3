// Each function makes the data of one view from the analysis, without drawing: tables by operation and by step, the
// strip of tokens, the heat map, the waterfall, and what the trace says of its pipeline.
#include "model/reports.h"

#include <algorithm>
#include <numeric>

#include "model/sum.h"

namespace tenon::view {
namespace {

double us(int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

int64_t quantile(std::vector<int64_t>& values, double q) {
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(at));
  return values[at];
}

bool counts(const Analysis& analysis, const OpEvent& op, Phase phase) {
  return op.step == kNoIndex ? phase == Phase::kAll : is_in(analysis.steps[op.step], phase);
}

// Line ends and tabs as they are escaped.
std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : std::string(1, c);
  return out;
}

Work most(const std::array<int64_t, kWorks>& by_work) {
  return static_cast<Work>(std::ranges::max_element(by_work) - by_work.begin());
}

}  // namespace

Table op_table(const TraceFile& file, const Analysis& analysis, Phase phase, std::optional<double> peak_gbps) {
  struct Sum {
    std::vector<int64_t> durations;
    int64_t added_ns = 0, longest_ns = -1;
    double bytes = 0;
    uint32_t longest = 0;
  };
  std::vector<Sum> sums(analysis.paths.size());
  int64_t total = 0;
  for (const OpEvent& op : analysis.ops) {
    if (!counts(analysis, op, phase)) continue;
    const int64_t duration = file.slices[op.slice].duration_ns;
    Sum& sum = sums[op.path];
    sum.durations.push_back(duration);
    add_to(sum.added_ns, op.added_ns);
    sum.bytes += op.bytes;
    add_to(total, op.added_ns);
    if (duration > sum.longest_ns) {
      sum.longest_ns = duration;
      sum.longest = op.slice;
    }
  }
  const std::vector<uint32_t> steps = steps_of(analysis, phase);
  if (!steps.empty()) {
    total = 0;
    for (const uint32_t i : steps) add_to(total, analysis.steps[i].duration_ns);
  }
  Table table;
  table.columns = {{"operation", false}, {"component", false}, {"kind", false}, {"calls"}, {"total us"},
                   {"p50 us"},           {"p99 us"},           {"MB"},          {"GB/s"},  {"% peak"},
                   {"share %"}};
  for (size_t i = 0; i < sums.size(); ++i) {
    Sum& sum = sums[i];
    if (sum.durations.empty()) continue;
    const double gbps = sum.bytes > 0 && sum.added_ns > 0 ? sum.bytes / static_cast<double>(sum.added_ns) : kUnknown;
    const OpPath& path = analysis.paths[i];
    table.rows.push_back(
        {{text_cell(path.name), text_cell(path.component), text_cell(label(path.work)),
          number_cell(static_cast<double>(sum.durations.size()), 0), number_cell(us(sum.added_ns), 1),
          number_cell(us(quantile(sum.durations, 0.5)), 2), number_cell(us(quantile(sum.durations, 0.99)), 2),
          number_cell(sum.bytes > 0 ? sum.bytes / 1e6 : kUnknown, 2), number_cell(gbps, 1),
          number_cell(peak_gbps ? 100 * gbps / *peak_gbps : kUnknown, 1),
          number_cell(100.0 * static_cast<double>(sum.added_ns) / static_cast<double>(std::max<int64_t>(1, total)), 2)},
         sum.longest});
  }
  sort_by(table, 4, true);
  return table;
}

Table step_table(const Analysis& analysis, Phase phase, bool worst_first) {
  Table table;
  table.columns = {{"step"},     {"phase", false}, {"text", false}, {"prompt tok"}, {"new tok"},
                   {"accepted"}, {"ms"},           {"tok/s"},       {"GB/s"}};
  for (size_t i = 0; i < kWorks; ++i) table.columns.push_back({std::string(label(static_cast<Work>(i))) + " ms"});
  table.columns.push_back({"between ms"});
  for (const Step& step : analysis.steps) {
    if (!is_in(step, phase)) continue;
    const auto duration = static_cast<double>(std::max<int64_t>(1, step.duration_ns));
    const auto n_tokens = static_cast<double>(step.n_tokens);
    Table::Row row{
        {number_cell(static_cast<double>(step.number), 0), text_cell(std::string(step.phase)),
         text_cell(visible(step.tokens)), number_cell(static_cast<double>(step.n_ctx_tok), 0), number_cell(n_tokens, 0),
         number_cell(step.drafted > 0 ? static_cast<double>(step.accepted) : kUnknown, 0),
         number_cell(duration / 1e6, 3), number_cell(n_tokens > 0 ? n_tokens * 1e9 / duration : kUnknown, 1),
         number_cell(step.bytes > 0 ? step.bytes / duration : kUnknown, 1)},
        step.slice};
    for (const int64_t ns : step.by_work) row.cells.push_back(number_cell(static_cast<double>(ns) / 1e6, 3));
    row.cells.push_back(number_cell(static_cast<double>(step.between_ns) / 1e6, 3));
    table.rows.push_back(std::move(row));
  }
  if (worst_first) sort_by(table, 6, true);
  return table;
}

std::vector<TokenCell> token_strip(const Analysis& analysis) {
  std::vector<TokenCell> cells;
  std::vector<int64_t> times;
  std::array<std::vector<int64_t>, kWorks> by_work;
  for (const Step& step : analysis.steps) {
    if (!step.decodes() || step.n_tokens == 0) continue;
    times.push_back(step.duration_ns / step.n_tokens);
    for (size_t w = 0; w < kWorks; ++w) by_work[w].push_back(step.by_work[w] / step.n_tokens);
  }
  const int64_t median = times.empty() ? 0 : quantile(times, 0.5);
  std::array<int64_t, kWorks> usual{};
  for (size_t w = 0; w < kWorks; ++w) usual[w] = by_work[w].empty() ? 0 : quantile(by_work[w], 0.5);
  for (uint32_t i = 0; i < analysis.steps.size(); ++i) {
    const Step& step = analysis.steps[i];
    if (step.n_tokens == 0) continue;
    TokenCell cell{.step = i,
                   .n_tokens = step.n_tokens,
                   .duration_ns = step.duration_ns,
                   .dominant = step.end_op > 0 ? most(step.by_work) : Work::kGap};
    cell.text = visible(step.tokens);
    if (step.decodes() && median > 0) {
      const int64_t ns_a_token = step.duration_ns / step.n_tokens;
      cell.over_median = static_cast<double>(ns_a_token) / static_cast<double>(median);
    }
    std::array<int64_t, kWorks> more = step.by_work;
    for (size_t w = 0; w < kWorks; ++w) more[w] = more[w] / step.n_tokens - usual[w];
    cell.grew = most(more);
    cells.push_back(std::move(cell));
  }
  return cells;
}

HeatMap heat_map(const Analysis& analysis, Phase phase) {
  HeatMap map;
  std::vector<uint32_t> column_of(analysis.paths.size(), kNoIndex);
  std::vector<const OpEvent*> used;
  constexpr int kMaxLayers = 4096;
  for (const OpEvent& op : analysis.ops) {
    if (!counts(analysis, op, phase) || op.layer >= kMaxLayers) continue;
    used.push_back(&op);
    map.n_layers = std::max(map.n_layers, op.layer + 1);
    if (column_of[op.path] != kNoIndex) continue;
    column_of[op.path] = static_cast<uint32_t>(map.columns.size());
    map.columns.push_back(analysis.paths[op.path].name);
  }
  map.fields.resize(static_cast<size_t>(map.n_layers + 1) * map.columns.size());
  for (const OpEvent* op : used) {
    const int row = op->layer < 0 ? map.n_layers : op->layer;
    HeatMap::Field& field = map.fields[static_cast<size_t>(row) * map.columns.size() + column_of[op->path]];
    add_to(field.ns, op->added_ns);
    field.bytes += op->bytes;
    if (op->added_ns > field.longest_ns) {
      field.longest_ns = op->added_ns;
      field.longest = op->slice;
    }
    add_to(map.total_ns, op->added_ns);
  }
  const std::vector<uint32_t> steps = steps_of(analysis, phase);
  map.n_steps = steps.size();
  if (!steps.empty()) {
    map.total_ns = 0;
    for (const uint32_t i : steps) add_to(map.total_ns, analysis.steps[i].duration_ns);
  }
  return map;
}

Waterfall waterfall(const Analysis& analysis, Phase phase, std::optional<double> peak_gbps) {
  struct Group {
    const char* name;
    std::initializer_list<Work> works;
  };
  static const Group kGroups[] = {{"weights", {Work::kGemv, Work::kGemm, Work::kEmbedding}},
                                  {"attention", {Work::kAttention}},
                                  {"KV cache", {Work::kKvCache}},
                                  {"norm, other small ones", {Work::kNorm, Work::kCopy, Work::kOther}},
                                  {"sampling", {Work::kSampling}},
                                  {"gaps between operations", {Work::kGap}},
                                  {"host, in steps", {Work::kHost}}};
  Waterfall out;
  const std::vector<uint32_t> steps = steps_of(analysis, phase);
  out.n_steps = steps.size();
  if (steps.empty()) return out;
  const auto n = static_cast<int64_t>(steps.size());
  std::array<double, kWorks> bytes{};
  for (const uint32_t i : steps) {
    const Step& step = analysis.steps[i];
    for (uint32_t o = step.first_op; o < step.end_op; ++o) {
      bytes[static_cast<size_t>(analysis.paths[analysis.ops[o].path].work)] += analysis.ops[o].bytes;
    }
  }
  for (const Group& group : kGroups) {
    Waterfall::Part part{.name = group.name};
    for (const Work work : group.works) {
      for (const uint32_t i : steps) add_to(part.ns, analysis.steps[i].by_work[static_cast<size_t>(work)]);
      part.bytes += bytes[static_cast<size_t>(work)];
    }
    part.ns /= n;
    part.bytes /= static_cast<double>(n);
    if (peak_gbps) part.limit_ns = part.bytes / *peak_gbps;
    out.bytes += part.bytes;
    out.limit_ns += part.limit_ns;
    out.parts.push_back(std::move(part));
  }
  Waterfall::Part host{.name = "host, between steps"};
  for (const uint32_t i : steps) add_to(host.ns, analysis.steps[i].between_ns);
  host.ns /= n;
  out.parts.push_back(std::move(host));
  for (const Waterfall::Part& part : out.parts) add_to(out.step_ns, part.ns);
  return out;
}

PipelineInfo pipeline_info(const TraceFile& file, const Analysis& analysis) {
  struct Known {
    const char *key, *title;
  };
  constexpr Known kTexts[] = {
      {"pipeline_toml", "Pipeline (TOML)"}, {"negotiation", "Negotiation"}, {"memory_plan", "Memory plan"}};
  PipelineInfo info;
  for (const Known& known : kTexts) {
    if (const auto text = file.meta(known.key)) {
      info.texts.push_back({known.title, std::string(*text)});
    } else {
      info.missing.push_back(std::string(known.title) + ": no metadata \"" + known.key + '"');
    }
  }
  if (analysis.steps.empty()) info.missing.emplace_back("steps: no slices ProfilerStep#N");
  if (!analysis.has_tokens) info.missing.emplace_back("texts of tokens: no argument \"tokens\" on the steps");
  if (!analysis.has_bytes) info.missing.emplace_back("bandwidth: no argument \"bytes_read\" on the operations");
  if (!analysis.peak_gbps) info.missing.emplace_back("the memory limit: no metadata \"read_bandwidth_gbps\"");
  if (analysis.source == OpSource::kAllSlices) {
    info.missing.emplace_back(
        "operations: no slices of category \"kernel\" or \"cpu_op\", so every slice counts as one");
  }
  info.facts.columns = {{"what", false}, {"value", false}};
  const auto fact = [&](std::string what, std::string value) {
    info.facts.rows.push_back({{text_cell(std::move(what)), text_cell(std::move(value))}});
  };
  for (const auto& [key, value] : file.metadata) {
    if (std::ranges::none_of(kTexts, [&key = key](const Known& known) { return key == known.key; })) fact(key, value);
  }
  fact("events", std::to_string(file.n_events));
  fact("slices", std::to_string(file.slices.size()));
  fact("steps", std::to_string(analysis.steps.size()));
  fact("time", duration_text(file.end_ns - file.begin_ns));
  fact("memory", bytes_text(static_cast<double>(file.bytes())));
  return info;
}

}  // namespace tenon::view
