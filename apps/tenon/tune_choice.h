// This chooses which scheme holds which matrices: among candidates, by what they cost and what they lose.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tenon::app {

// This is a scheme with parameters, as commands name it: "int4wo" or "int4wo:group_size=32".
struct Candidate {
  std::string text, scheme;
  std::vector<std::pair<std::string, std::string>> params;  // names and values as a pipeline file has them

  // Throws Error(kUsage) for a text of another form.
  static Candidate parse(const std::string& text);
  // Returns the keys of a table of a pipeline file: use = "int4wo", group_size = 32
  std::string toml() const;
};

// It says what a text's logits lose to a candidate, and has nothing where nobody asked.
struct Loss {
  std::optional<double> divergence;  // nats
  std::optional<double> sqnr;        // decibels
};

// This says what a candidate costs at the matrices of a site of all layers.
struct SiteCost {
  std::vector<double> cost;  // all layers together take so much, by batch
  Loss loss;
  double total() const;
};

// A candidate is within them if it breaks none of those that are there.
struct LossBounds {
  std::optional<double> max_divergence, min_sqnr;
  bool allow(const Loss& loss) const;
  std::string text() const;  // "a divergence of 0.05 and an SQNR of 30 dB"
};

// This was found for a site: its path, such as "layers.*.mlp.down", and each candidate's cost.
struct TunedSite {
  std::string path;
  std::vector<std::optional<SiteCost>> candidates;  // by candidate; it has no value if one does not take the site
  size_t chosen = 0;
};

// Chooses for each site the candidate with the least cost over all batches, of those within the bounds; the first of
// equals. Throws Error(kRequest) with the site and what there is, if none is.
void choose(std::vector<TunedSite>& sites, const std::vector<Candidate>& candidates, const LossBounds& bounds);

// This says what a run found, for people and for programs. `unit` is that of the costs.
struct TuneReport {
  std::vector<Candidate> candidates;
  std::vector<std::pair<std::string, std::string>> refused;  // the model cannot run with these candidates, and why
  std::vector<uint32_t> batches;
  std::vector<TunedSite> sites;
  std::string unit;
  Loss loss;         // all that was chosen together has this one
  std::string file;  // "": none was written
};
std::string tune_table(const TuneReport& report);
boost::json::object to_json(const TuneReport& report);
// Returns the value of quantization.override.
std::string overrides_toml(const TuneReport& report);

}  // namespace tenon::app
