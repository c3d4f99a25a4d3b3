// This reads tokenizer.json, the format of Hugging Face's tokenizers library.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "bpe_tokenizer.h"
#include "json_reader.h"

namespace tenon::text {

// This is what the file says. Its tokens may be added to before they become parts.vocabulary; parts.info lacks BOS, EOS
// and chat template, which the file does not have.
struct TokenizerJson {
  BpeTokenizerParts parts;
  std::vector<std::string> tokens;  // [id]; "" = there is no such token
  std::unordered_set<std::string> added_names;
  size_t id_limit = 0;  // ids are below it
};

// `name` is the file's, for errors. Throws Error(kModel) for what is malformed, and for a component that is not
// supported, with its name and those that are.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& name);

// These are its sections; an empty place means no steps.
std::vector<NormalizerStep> parse_normalizer(const JsonPlace& place);
PreTokenizer parse_pre_tokenizer(const JsonPlace& place);
// Returns what a step or decoder "Metaspace" writes for a blank.
std::string metaspace_character(const JsonPlace& metaspace);

// Reads one entry of "added_tokens" or "added_tokens_decoder"; `id` comes from where the file keeps it.
AddedToken parse_added_token(const JsonPlace& place, int64_t id);
// Adds the token unless one of its name was added before.
void add_token(TokenizerJson& file, AddedToken token, const JsonPlace& place);

}  // namespace tenon::text
