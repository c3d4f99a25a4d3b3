// This finds the products and attentions that feed a product: the result of one is the x of the other, as it is or
// through a norm. Between such two, activations may have a format that only these two know (tenon/sdk/linked_rows.h).
#pragma once

#include <map>
#include <set>

#include "declared.h"

namespace tenon {

struct ProductLinks {
  std::map<SiteId, SiteId> plain, normed;  // by the site whose result it is, the site that takes it
  std::map<LayerId, SiteId> attended;      // by the layer of attention, likewise
  std::set<SiteId> picked = {};            // these run over the rows whose logits are wanted
};

// A plain link is where each result of the first site is x of the second and nothing else reads it, and so is one of
// attention; a normed one is where one product alone takes it as x, with ops before it, and others may read it, too.
// All are plain products (recorded_step.h) or an attention's Q, K and V. For picks_early see StepBuilder.
ProductLinks product_links(const Model& model, const Declared& declared, bool picks_early = false);

}  // namespace tenon
