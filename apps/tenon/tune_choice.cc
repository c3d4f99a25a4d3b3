// choose() takes for each site the cheapest candidate whose loss is within the bounds, and throws if there is none,
// with what was found. The other functions read candidates from the command line and write the result: as a table, as
// JSON, and as overrides in TOML.
#include "tune_choice.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <numeric>

#include "table.h"
#include "tenon/core/error.h"

namespace tenon::app {

Candidate Candidate::parse(const std::string& text) {
  Candidate c{.text = text, .scheme = text.substr(0, text.find(':')), .params = {}};
  const auto wrong = [&] {
    throw Error(ErrorCode::kUsage, "--candidates: \"" + text + "\": write NAME or NAME:KEY=VALUE:KEY=VALUE");
  };
  if (c.scheme.empty()) wrong();
  for (size_t at = c.scheme.size(); at < text.size();) {
    const size_t end = std::min(text.find(':', at + 1), text.size());
    const std::string setting = text.substr(at + 1, end - at - 1);
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == setting.size()) wrong();
    c.params.emplace_back(setting.substr(0, equals), setting.substr(equals + 1));
    at = end;
  }
  return c;
}

std::string Candidate::toml() const {
  std::string keys = "use = \"" + scheme + "\"";
  for (const auto& [name, value] : params) keys += ", " + name + " = " + value;
  return keys;
}

double SiteCost::total() const {
  return std::accumulate(cost.begin(), cost.end(), 0.0);
}

bool LossBounds::allow(const Loss& loss) const {
  const bool diverges = max_divergence && loss.divergence && *loss.divergence > *max_divergence;
  const bool noisy = min_sqnr && loss.sqnr && *loss.sqnr < *min_sqnr;
  return !diverges && !noisy;
}

std::string LossBounds::text() const {
  std::string text;
  if (max_divergence) text = fmt::format("a divergence of {:.4g}", *max_divergence);
  if (min_sqnr) text += fmt::format("{}an SQNR of {:.4g} dB", text.empty() ? "" : " and ", *min_sqnr);
  return text;
}

void choose(std::vector<TunedSite>& sites, const std::vector<Candidate>& candidates, const LossBounds& bounds) {
  for (TunedSite& site : sites) {
    std::optional<size_t> best;
    std::string found;
    for (size_t c = 0; c < site.candidates.size(); ++c) {
      if (!site.candidates[c]) continue;
      const SiteCost& cost = *site.candidates[c];
      if (cost.loss.divergence)
        found += fmt::format("{}{} {:.4g}", found.empty() ? "" : ", ", candidates[c].text, *cost.loss.divergence);
      if (cost.loss.sqnr) found += fmt::format(" ({:.4g} dB)", *cost.loss.sqnr);
      if (!bounds.allow(cost.loss)) continue;
      if (!best || cost.total() < site.candidates[*best]->total()) best = c;
    }
    if (!best) {
      throw Error(ErrorCode::kRequest, site.path + ": no candidate is within " + bounds.text() + "; found: " + found);
    }
    site.chosen = *best;
  }
}

std::string tune_table(const TuneReport& report) {
  std::vector<std::string> heads = {"matrices", "chosen"};
  for (const Candidate& c : report.candidates) {
    for (const uint32_t batch : report.batches) {
      heads.push_back(report.batches.size() == 1 ? c.text : fmt::format("{} x{}", c.text, batch));
    }
  }
  const auto measured = [&](std::optional<double> Loss::*value) {
    return std::any_of(report.sites.begin(), report.sites.end(),
                       [&](const TunedSite& site) { return (site.candidates[site.chosen]->loss.*value).has_value(); });
  };
  const bool diverges = measured(&Loss::divergence), noisy = measured(&Loss::sqnr);
  if (diverges) heads.emplace_back("divergence");
  if (noisy) heads.emplace_back("SQNR, dB");
  Table table(heads, 2);
  for (const TunedSite& site : report.sites) {
    std::vector<std::string> cells = {site.path, report.candidates[site.chosen].text};
    for (const std::optional<SiteCost>& cost : site.candidates) {
      for (size_t b = 0; b < report.batches.size(); ++b) {
        cells.push_back(cost ? fmt::format("{:.1f}", cost->cost[b]) : "-");
      }
    }
    const Loss& loss = site.candidates[site.chosen]->loss;
    if (diverges) cells.push_back(fmt::format("{:.4g}", loss.divergence.value_or(0)));
    if (noisy) cells.push_back(fmt::format("{:.1f}", loss.sqnr.value_or(0)));
    table.row(cells);
  }
  std::string text = table.text() + "in " + report.unit + ", all layers together\n";
  for (const auto& [candidate, why] : report.refused) text += candidate + " is left out: " + why + "\n";
  if (report.loss.divergence)
    text += fmt::format("divergence of all together: {:.4g} nats a token\n", *report.loss.divergence);
  if (report.loss.sqnr) text += fmt::format("SQNR of all together: {:.1f} dB\n", *report.loss.sqnr);
  if (!report.file.empty()) text += "written: " + report.file + "\n";
  return text;
}

namespace {

void add(boost::json::object& to, const Loss& loss) {
  if (loss.divergence) to["divergence"] = *loss.divergence;
  if (loss.sqnr) to["sqnr_db"] = *loss.sqnr;
}

}  // namespace

boost::json::object to_json(const TuneReport& report) {
  boost::json::array sites, refused;
  for (const TunedSite& site : report.sites) {
    boost::json::object costs;
    for (size_t c = 0; c < site.candidates.size(); ++c) {
      if (!site.candidates[c]) continue;
      boost::json::object& one = costs[report.candidates[c].text].emplace_object();
      one["cost"] = boost::json::value_from(site.candidates[c]->cost);
      add(one, site.candidates[c]->loss);
    }
    sites.push_back(boost::json::object{
        {"path", site.path}, {"chosen", report.candidates[site.chosen].text}, {"candidates", costs}});
  }
  for (const auto& [candidate, why] : report.refused) {
    refused.push_back(boost::json::object{{"candidate", candidate}, {"reason", why}});
  }
  boost::json::object out{{"unit", report.unit},
                          {"batches", boost::json::value_from(report.batches)},
                          {"sites", sites},
                          {"refused", refused}};
  add(out, report.loss);
  if (!report.file.empty()) out["file"] = report.file;
  return out;
}

std::string overrides_toml(const TuneReport& report) {
  std::string text;
  for (const TunedSite& site : report.sites) {
    text += fmt::format("{}{{match = \"{}\", {}}}", text.empty() ? "" : ", ", site.path,
                        report.candidates[site.chosen].toml());
  }
  return "[" + text + "]";
}

}  // namespace tenon::app
