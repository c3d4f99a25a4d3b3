// These functions find the tokens that end a text or a turn, beyond the one that the file calls EOS.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/core/tokenizer.h"

namespace tenon::text {

// Returns those that `find` knows of the names in common use for the end of a text or turn. Where <|return|> ends a
// turn, <|end|> ends one of its messages (gpt-oss).
template <class Find>
std::vector<int32_t> known_end_tokens(Find find) {
  std::vector<int32_t> ids;
  for (const char* name : {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>",
                           "<end_of_turn>", "<EOT>", "<|EOT|>", "<|return|>", "<|call|>"}) {
    if (const auto id = find(name)) ids.push_back(*id);
  }
  const auto message = find("<|end|>");
  if (message && !find("<|return|>")) ids.push_back(*message);
  return ids;
}

// Adds `ids` and EOS to info.end_of_generation, sorted and each once.
void add_end_tokens(TokenizerInfo& info, const std::vector<int32_t>& ids);

}  // namespace tenon::text
