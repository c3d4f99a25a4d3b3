#include "model/compare.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tenon::view {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

OpChange change_of(std::string name, const std::vector<double>& a, const std::vector<double>& b) {
  OpChange change{.name = std::move(name), .a_us = median(a), .b_us = median(b), .p = rank_test(a, b)};
  const bool in_one = (change.a_us > 0) != (change.b_us > 0);
  const double size = std::max(change.a_us, change.b_us);
  change.changed = in_one || (change.p < 0.01 && std::abs(change.b_us - change.a_us) > 0.01 * size);
  return change;
}

// Microseconds that each operation adds, for each step.
std::map<std::string, std::vector<double>> per_step(const Analysis& analysis, const std::vector<uint32_t>& steps) {
  std::map<std::string, std::vector<double>> all;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = analysis.steps[steps[i]];
    for (uint32_t o = step.first_op; o < step.end_op; ++o) {
      std::vector<double>& times = all[analysis.paths[analysis.ops[o].path].name];
      times.resize(steps.size());
      times[i] += static_cast<double>(analysis.ops[o].added_ns) / 1e3;
    }
  }
  std::vector<double>& gaps = all["(gaps)"];
  for (const uint32_t i : steps) {
    gaps.push_back(static_cast<double>(analysis.steps[i].by_work[static_cast<size_t>(Work::kGap)]) / 1e3);
  }
  return all;
}

std::vector<double> durations(const Analysis& analysis, const std::vector<uint32_t>& steps) {
  std::vector<double> out;
  for (const uint32_t i : steps) out.push_back(static_cast<double>(analysis.steps[i].duration_ns) / 1e3);
  return out;
}

}  // namespace

double rank_test(std::vector<double> a, std::vector<double> b) {
  if (a.size() < 4 || b.size() < 4) return 1;
  std::vector<std::pair<double, bool>> all;  // value, is of a
  for (const double x : a) all.emplace_back(x, true);
  for (const double x : b) all.emplace_back(x, false);
  std::ranges::sort(all);
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size()), n = na + nb;
  double rank_sum = 0, ties = 0;
  for (size_t i = 0; i < all.size();) {
    size_t j = i;
    while (j < all.size() && all[j].first == all[i].first) ++j;
    const double rank = (static_cast<double>(i + j) + 1) / 2;
    for (size_t k = i; k < j; ++k) rank_sum += all[k].second ? rank : 0;
    const auto t = static_cast<double>(j - i);
    ties += t * t * t - t;
    i = j;
  }
  const double u = rank_sum - na * (na + 1) / 2;
  const double deviation = std::sqrt(na * nb / 12 * (n + 1 - ties / (n * (n - 1))));
  if (!(deviation > 0)) return 1;
  const double z = std::max(0.0, std::abs(u - na * nb / 2) - 0.5) / deviation;
  return std::erfc(z / std::sqrt(2.0));
}

Comparison compare(const Analysis& a, const Analysis& b, Phase phase) {
  Comparison out;
  const std::vector<uint32_t> a_steps = steps_of(a, phase), b_steps = steps_of(b, phase);
  out.a_steps = a_steps.size();
  out.b_steps = b_steps.size();
  if (a_steps.empty() || b_steps.empty()) return out;
  auto in_a = per_step(a, a_steps), in_b = per_step(b, b_steps);
  for (auto& [name, times] : in_a) out.ops.push_back(change_of(name, times, in_b[name]));
  for (auto& [name, times] : in_b) {
    if (!in_a.contains(name)) out.ops.push_back(change_of(name, {}, times));
  }
  std::ranges::stable_sort(out.ops, {}, [](const OpChange& c) { return -std::abs(c.b_us - c.a_us); });
  out.step = change_of("(step)", durations(a, a_steps), durations(b, b_steps));
  return out;
}

Table to_table(const Comparison& comparison) {
  Table table;
  table.columns = {{"operation", false}, {"A us a step"}, {"B us a step"},   {"B - A us"},
                   {"change %"},         {"p"},           {"verdict", false}};
  const auto add = [&](const OpChange& c) {
    const double more = c.b_us - c.a_us;
    const char* verdict = c.a_us == 0 && c.b_us > 0   ? "new"
                          : c.b_us == 0 && c.a_us > 0 ? "gone"
                          : !c.changed                ? "noise"
                          : more > 0                  ? "slower"
                                                      : "faster";
    Cell last = text_cell(verdict);
    if (c.changed) last.tone = more > 0 ? Cell::Tone::kBad : Cell::Tone::kGood;
    table.rows.push_back({{text_cell(c.name), number_cell(c.a_us, 2), number_cell(c.b_us, 2), number_cell(more, 2),
                           number_cell(c.a_us > 0 ? 100 * more / c.a_us : kUnknown, 1), number_cell(c.p, 4), last}});
  };
  if (comparison.a_steps == 0 || comparison.b_steps == 0) return table;
  add(comparison.step);
  for (const OpChange& change : comparison.ops) add(change);
  return table;
}

}  // namespace tenon::view
