// This finds the products that feed another: the result of one is nothing but the x of the other. Between such two,
// activations may have a format that only these two know.
#pragma once

#include <map>

#include "declared.h"

namespace tenon {

// Returns, by the site whose result it is, the site that takes it: where each result of the first is x of the second
// and nothing else reads it, and both are plain (recorded_step.h).
std::map<SiteId, SiteId> product_links(const Model& model, const Declared& declared);

}  // namespace tenon
