// Makes the modules that a family names: declares them once, and records steps through them.
#pragma once

#include <memory>

#include "family.h"
#include "family_config.h"
#include "tenon/core/module.h"

namespace tenon::family {

// Both the family and the weights outlive the model. Throws Error: kModel for weights that are not as they should be,
// kConfig for formulas that cannot be computed.
std::unique_ptr<Model> build_model(const Family& family, const Weights& weights, Declarations& declare);

// Returns how many positions a row of each layer's attention sees, its own included; 0: all before it.
std::vector<uint32_t> windows_of(const Family& family, const Config& config);

// Returns for each layer what may differ from that of another: whether each block is there, and of attention the
// window, 0 for one that has room for every text, which of the block's ropes is taken, 0 for none, and whether the
// layer shares the cache of an earlier one.
std::vector<std::vector<uint32_t>> layer_facts(const Family& family, const Config& config);

}  // namespace tenon::family
