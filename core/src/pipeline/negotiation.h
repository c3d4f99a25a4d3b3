// Who does what: asks every component what it takes on, for every program shape, and writes down what was decided.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "declared.h"
#include "tenon/core/pipeline.h"

namespace tenon {

// Some matrices of a site as the boundary has them, with the ops before the site and those offered after them. What it
// is made of outlives it.
struct LinearView {
  LinearView(const Site& site, const std::vector<size_t>& mats, const OpChain& offered, const std::string& description);
  LinearView(const LinearView&) = delete;
  LinearView& operator=(const LinearView&) = delete;
  tenon_linear linear;

 private:
  std::vector<int64_t> rows_;
  std::vector<std::vector<tenon_stored>> tensors_;  // by matrix
  std::vector<tenon_matrix> matrices_;
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
  // The scheme of each matrix; empty where one is refused.
  std::vector<const Scheme*> schemes_of(const Site& site);
  const Scheme* choose(const Site& site, size_t mat);
  // What a scheme that was not asked to hold the matrices would do with them; nothing if it refuses, and then why.
  struct Offer {
    const Scheme* scheme;
    bool exact;
    uint64_t bytes;
  };
  std::optional<Offer> offer_of(const Scheme& scheme, const Site& site, const LinearView& view, std::string& why) const;
  // What to write instead of a scheme that refuses; "" if no other takes the matrices.
  std::string advice(const Scheme& refusing, const Site& site, const LinearView& view);
  void claim(Site& site, bool observed);
  void bind(const Site& site, SiteGroup& group, const LinearView& view);
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
