#include "read_text.h"

#include <algorithm>

#include "tenon/core/error.h"
#include "tenon/sdk/told.h"

namespace tenon {

void read_text(Pipeline& p, std::span<const int32_t> tokens, const TextReading& reading,
               const std::function<void(uint32_t, std::span<const float>)>& on_row) {
  p.end_sequence(0);  // a text before this one may have left something there
  p.start_sequence(0, 0, {});
  StepBatch batch;
  batch.sample = false;
  batch.kv_len.assign(p.sequences(), 0);
  for (uint32_t at = 0; at < tokens.size() && !reading.cancel.stop_requested();) {
    const auto rows = std::min<uint32_t>(reading.rows_a_step, static_cast<uint32_t>(tokens.size()) - at);
    batch.clear();
    batch.seq_row = {0, static_cast<int32_t>(rows)};
    batch.seq_slot = {0};
    batch.kv_len[0] = static_cast<int32_t>(at);
    batch.prompts = 1;
    batch.prompt_rows = rows;
    for (uint32_t i = 0; i < rows; ++i) {
      batch.token.push_back(tokens[at + i]);
      batch.position.push_back(static_cast<int32_t>(at + i));
      batch.slot.push_back(0);
      batch.parent.push_back(static_cast<int32_t>(i) - 1);
      if (at + i >= reading.first) batch.out_row.push_back(static_cast<int32_t>(i));
    }
    const size_t width = p.model().width;
    if (!reading.handed_in.empty()) p.hand_in(reading.handed_in.subspan(at * width, rows * width));
    Status status = p.reserve(0, at + rows);
    StepResult result;
    if (status.ok()) status = p.step(batch, result);
    if (!status.ok()) throw Error(status.code(), status.message());
    const size_t columns = p.out_columns();
    for (size_t o = 0; on_row && o < batch.out_row.size(); ++o) {
      const uint32_t row = at + static_cast<uint32_t>(batch.out_row[o]);
      const std::span<const float> logits = result.logits.subspan(o * columns, columns);
      if (p.has_head() && std::any_of(logits.begin(), logits.end(), sdk::no_logit)) {
        throw p.explain({.slot = 0, .tokens = tokens.first(row + 1), .cached = at});
      }
      on_row(row, logits);
    }
    at += rows;
  }
  p.end_sequence(0);
}

}  // namespace tenon
