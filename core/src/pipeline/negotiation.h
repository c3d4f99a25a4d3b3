// This asks every component what it takes on, for every program shape, and writes down what was decided.
//
// The rules are the boundary's: tenon/abi/quantization.h (claim, bind, footprint), tenon/abi/kv_cache.h (views) and
// tenon/abi/attention.h (claim, preferred_format); docs/abi.md explains them. The answers are kept in the declarations
// (declared.h), where recording finds them: the scheme, handle, footprint and claims of each group of a site, the view
// and the claims of each attention layer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "decisions.h"
#include "declared.h"
#include "product_links.h"
#include "scheme_choice.h"
#include "tenon/core/pipeline.h"

namespace tenon {

// Returns the bounds that none of these programs goes beyond.
tenon_bounds largest_bounds(const std::vector<ProgramShape>& shapes);

// These are the links of programs that pick their rows before the head, and of those that pick them early.
struct LinksOfShapes {
  ProductLinks late, early;
};

class Negotiation {
 public:
  // If `strict`, a fallback is an error. `name` is the model instance's; the noted paths begin with it. `shapes` are
  // those of every program that will be recorded.
  Negotiation(bool strict, std::string name, Components& components, Declared& declared,
              const std::vector<ProgramShape>& shapes)
      : strict_(strict),
        name_(std::move(name)),
        components_(components),
        declared_(declared),
        shapes_(shapes),
        schemes_(components, shapes),
        log_(name_) {}

  // Says whether somebody observes what goes into the site's products, so that nobody may claim what is before them.
  using Observed = std::function<bool(const Site& site)>;
  // Splits sites by scheme, collects claims, binds, reads footprints. The activations of links may become other than
  // f32. Throws Error with every refusal at once.
  void run(const Observed& observed, LinksOfShapes links);

  void note(const std::string& path, const std::string& text) { log_.note(path, text); }
  std::vector<Decision> decisions() const { return log_.decisions(); }

 private:
  // These are the phases of run(). Each asks about all layers or sites; refusals that it leaves end run() after it.
  void negotiate_caches();
  void negotiate_sites(const Observed& observed);
  void negotiate_attentions();
  void throw_refusals();
  void refuse(const std::string& path, const std::string& reason);

  // Asks for the prototype of the layer's view, which decides the order of its chain and what attention is asked.
  void negotiate_cache(AttentionLayer& layer);
  // Refuses a layer that reads the cache of `own`, if its policy cannot have another reader.
  void check_shared_cache(const AttentionLayer& layer, const AttentionLayer& own);

  // Returns the scheme of each matrix; empty where one is refused. A router that no override names has one that holds it
  // as the file has it, if there is one.
  std::vector<const Scheme*> schemes_of(const Site& site);
  // Claims for every shape, then the binding; group by group, until one is refused.
  void negotiate_site(Site& site, bool observed);
  bool claim_group(const Site& site, SiteGroup& group, const LinearView& view, bool observed);
  void bind_group(const Site& site, SiteGroup& group, const LinearView& view);
  void check_footprint(const Site& site, const SiteGroup& group, const LinearView& view);
  // Finds, by shape, the format between two linked products: f32 unless both have another. If `normed`, it is that of
  // what the first leaves beside y for the norm before the second.
  void negotiate_formats();
  tenon_format format_between(const Site& from, const Site& to, size_t shape, bool normed);
  // Returns the best format in which the product takes x and of which leaves() is true, which says what comes from
  // before it; f32 if there is none.
  tenon_format first_format(const Site& to, size_t shape, bool normed, const std::function<bool(tenon_format)>& leaves);
  // Says whether the product does all that stands after it, and whether the other one does all before it: nothing, or a
  // norm.
  bool does_all_after(const Site& from, size_t shape) const;
  bool does_all_before(const Site& to, size_t shape, bool normed) const;
  bool has_claims(const SiteGroup& group) const;
  // Says whether the schemes of all the site's groups claim the same as before when x and y have these formats.
  bool takes_formats(const Site& site, size_t shape, tenon_format x, tenon_format y);
  // If it `attends`, what stands after the site is noted with its attention, unless a scheme takes it.
  void note_site(const Site& site, bool attends);
  void note_group(const Site& site, const SiteGroup& group, bool attends);

  void negotiate_attention(LayerId number);
  // Returns the format in which attention leaves its result for that product: f32 unless both have another.
  tenon_format format_left(const AttentionLayer& layer, const Site& to, const ChainView& pro, size_t shape);
  // Asks attention about the cache as it is and, if it refuses, about a copy; nothing when it takes neither.
  std::optional<tenon_claim> claim_of_attention(AttentionLayer& layer, const ChainView& pro, size_t shape);
  std::optional<tenon_claim> claim_over_copy(AttentionLayer& layer, const ChainView& pro, size_t shape,
                                             const std::string& reason);
  void note_attention(const AttentionLayer& layer, const OpChain& ops, size_t taken, size_t claimed);

  const ProductLinks& links_of(size_t shape) const { return shapes_[shape].picks_early ? links_.early : links_.late; }
  // Returns the bounds of x: a site after the rows were picked has no more than those.
  tenon_bounds bounds_of(const Site& site, size_t shape) const;

  bool strict_;
  std::string name_;
  Components& components_;
  Declared& declared_;
  const std::vector<ProgramShape>& shapes_;
  LinksOfShapes links_;
  SchemeChoice schemes_;
  DecisionLog log_;
  std::vector<Diagnostic> refusals_;
  std::set<const Site*> observed_;
  std::set<const Site*> kept_;  // another scheme than the named one holds them, since they are routers
};

}  // namespace tenon
