// A pipeline reads a text by itself: no tokens are chosen.
#pragma once

#include <functional>
#include <span>
#include <stop_token>

#include "tenon/core/pipeline.h"

namespace tenon {

struct TextReading {
  uint32_t first = 0;        // logits are wanted of rows from this one on; none from the text's length on
  uint32_t rows_a_step = 0;  // a step that chooses no tokens may take so many
  std::stop_token cancel = {};
  std::span<const float> handed_in = {};  // (tokens, width): what enters a part of a model that does not embed
};

// Reads a text in slot 0, which is empty before and after it. on_row, if it is given, is called with the logits of each
// row that wants them, f32 (vocab); of a part without a head with the row that leaves it, f32 (width). Throws Error.
void read_text(Pipeline& pipeline, std::span<const int32_t> tokens, const TextReading& reading,
               const std::function<void(uint32_t row, std::span<const float> logits)>& on_row);

}  // namespace tenon
