// These make steps of a single sequence, in slot 0.
#pragma once

#include <cstdint>
#include <span>

#include "tenon/core/pipeline.h"

namespace tenon::test {

// The rows follow `cached` tokens that the cache has, and each other; logits are wanted from row first_out on.
inline StepBatch step_of_one(std::span<const int32_t> rows, size_t cached, size_t first_out) {
  StepBatch batch;
  batch.token.assign(rows.begin(), rows.end());
  for (size_t r = 0; r < rows.size(); ++r) {
    batch.position.push_back(static_cast<int32_t>(cached + r));
    batch.slot.push_back(0);
    batch.parent.push_back(static_cast<int32_t>(r) - 1);
    if (r < first_out) continue;
    batch.host_row.push_back(static_cast<int32_t>(batch.out_row.size()));
    batch.out_row.push_back(static_cast<int32_t>(r));
  }
  batch.seq_slot = {0};
  batch.seq_row = {0, static_cast<int32_t>(rows.size())};
  batch.kv_len = {static_cast<int32_t>(cached)};
  return batch;
}

}  // namespace tenon::test
