// GGUF has the matrices of all experts of a layer in one tensor, "blk.3.ffn_up_exps.weight" (experts, rows, columns).
// Each of them is found under a name of its own, too: "blk.3.ffn_up_exps.5.weight" (rows, columns).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/weights.h"

namespace tenon::weights {

// Models have some hundreds. A file that states more is not given a name for each.
inline constexpr int64_t kMostExperts = 4096;

// Returns the tensors of the experts, in order, which are parts of the tensor's bytes; none if the tensor is not one of
// all experts, or its bytes are no whole number of such parts.
std::vector<WeightTensor> expert_tensors(const WeightTensor& tensor);

// Returns the name of the tensor of all experts: "blk.3.ffn_up_exps.5.weight" and "blk.3.ffn_up_exps.*.weight" ->
// "blk.3.ffn_up_exps.weight"; "" for a name of another form.
std::string stacked_name(std::string_view name);

}  // namespace tenon::weights
