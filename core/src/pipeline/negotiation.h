// Who does what: asks every component what it takes on, for every program shape, and writes down what was decided.
#pragma once

#include <vector>

#include "declared.h"
#include "tenon/core/pipeline.h"

namespace tenon {

// The linear struct of a group as the boundary has it; the arrays must outlive it.
struct LinearView {
  LinearView(const Site& site, const SiteGroup& group, const Chain& pro, const Chain& epi);
  tenon_linear linear;

 private:
  std::vector<int64_t> rows_;
  std::vector<tenon_format> formats_;
  ChainView pro_, epi_;
};

class Negotiation {
 public:
  // shapes: the bounds of every program that will be recorded.
  Negotiation(const PipelineConfig& config, Components& parts, Declared& declared,
              const std::vector<tenon_bounds>& shapes)
      : config_(config), parts_(parts), declared_(declared), shapes_(shapes) {}

  // Splits sites by scheme, collects claims, binds, reads footprints. Throws Error with every refusal at once.
  void run();
  // Decisions that are alike for all layers, gathered.
  std::vector<Decision> decisions() const;
  void note(const std::string& path, const std::string& text);

 private:
  void split(Site& site);
  void claim(Site& site, const AttentionDecl* attention);
  void bind(SiteGroup& group, const LinearView& view);
  void attend(AttentionLayer& layer, const Site& qkv);
  void report(const Site& site);
  void refuse(const std::string& path, const std::string& reason);

  const PipelineConfig& config_;
  Components& parts_;
  Declared& declared_;
  const std::vector<tenon_bounds>& shapes_;
  std::vector<Diagnostic> refusals_;
  std::vector<Decision> decisions_;
};

}  // namespace tenon
