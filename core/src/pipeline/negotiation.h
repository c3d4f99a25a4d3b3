// Who does what: asks every component what it takes on, for every program shape, and writes down what was decided.
#pragma once

#include <functional>
#include <vector>

#include "declared.h"
#include "tenon/core/pipeline.h"

namespace tenon {

// The linear struct of a group as the boundary has it; the arrays must outlive it.
struct LinearView {
  LinearView(const Site& site, const SiteGroup& group);
  tenon_linear linear;

 private:
  std::vector<int64_t> rows_;
  std::vector<tenon_format> formats_;
  ChainView pro_, epi_;
};

// What no program of these goes beyond.
tenon_bounds largest_bounds(const std::vector<tenon_bounds>& shapes);

class Negotiation {
 public:
  // strict: whether a fallback is an error. name: of the model instance, which the noted paths begin with. shapes: the
  // bounds of every program that will be recorded.
  Negotiation(bool strict, std::string name, Components& parts, Declared& declared,
              const std::vector<tenon_bounds>& shapes)
      : strict_(strict), name_(std::move(name)), parts_(parts), declared_(declared), shapes_(shapes) {}

  // Whether somebody observes what goes into the site's products, so that nobody may claim what is before them.
  using Observed = std::function<bool(const Site& site)>;
  // Splits sites by scheme, collects claims, binds, reads footprints. Throws Error with every refusal at once.
  void run(const Observed& observed);
  // Decisions that are alike, gathered: of all layers "layers.*.mlp.down", of some "layers.0-3,7.mlp.down".
  std::vector<Decision> decisions() const;
  void note(const std::string& path, const std::string& text);

 private:
  void ask_cache(AttentionLayer& layer);
  void claim(Site& site, bool observed);
  void bind(SiteGroup& group, const LinearView& view);
  void attend(AttentionLayer& layer, const Site& qkv);
  // Asks attention about the cache as it is and, if it refuses, about a copy; false when nothing fits.
  bool ask_attention(AttentionLayer& layer, tenon_attn& a, size_t shape, tenon_claim& claim);
  void report(const Site& site, bool attends);
  void refuse(const std::string& path, const std::string& reason);

  bool strict_;
  std::string name_;
  Components& parts_;
  Declared& declared_;
  const std::vector<tenon_bounds>& shapes_;
  std::vector<Diagnostic> refusals_;
  struct Noted {
    Decision decision;
    std::vector<int> layers;
  };
  std::vector<Noted> noted_;
};

}  // namespace tenon
