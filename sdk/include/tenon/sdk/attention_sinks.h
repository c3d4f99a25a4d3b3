// An attention may have learned sinks: a logit for each query head joins the sum of its softmax and weighs no value, so that a head
// may attend to nothing. A layer that has them ends its chain with this op, and the attention must claim it:
//   kAttentionSinks: t[0] f32[q_heads], the logits, which are neither scaled nor capped; heads as in other ops over heads
// gpt-oss, OpenAI 2025, arXiv:2508.10925; the idea is that of Miller 2023, "Attention is off by one".
#pragma once

#include "tenon/abi/program.h"
#include "tenon/sdk/op.h"

namespace tenon::sdk {

inline constexpr tenon_id kAttentionSinks = op_id("attention_sinks");

// It is true for a chain that ends with sinks.
inline bool has_sinks(const tenon_chain* chain) {
  return chain != nullptr && chain->n > 0 && chain->op[chain->n - 1]->id == kAttentionSinks;
}
// It gives the logits' tensor; 0 for a chain without sinks.
inline tenon_tid sinks_of(const tenon_chain* chain) {
  return has_sinks(chain) ? chain->op[chain->n - 1]->t[0] : 0;
}

}  // namespace tenon::sdk
