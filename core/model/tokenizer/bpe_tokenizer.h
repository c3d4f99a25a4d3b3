// This is the pipeline of tokenizer.json: added tokens are cut out, the rest is normalized, cut and encoded by BPE.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "added_tokens.h"
#include "bpe_model.h"
#include "normalizer.h"
#include "pre_tokenizer.h"
#include "tenon/core/tokenizer.h"
#include "vocabulary.h"

namespace tenon::text {

// A token's text becomes the bytes that it stands for in one of these ways.
struct TokenDecoder {
  bool byte_level = false;                                        // the byte alphabet
  bool byte_fallback = false;                                     // <0xHH>
  std::vector<std::pair<std::string, std::string>> replacements;  // they are applied in order
};

struct BpeTokenizerParts {
  Vocabulary vocabulary;
  std::vector<MergeRule> merges;
  BpeOptions options;
  std::vector<AddedToken> added;  // ids within the vocabulary
  std::vector<NormalizerStep> normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  bool added_names_are_text = false;  // the decoder does not apply to added tokens
  std::vector<int32_t> prefix;        // encode() puts these before a text
  std::vector<int32_t> suffix;
  TokenizerInfo info;  // kind and vocab_size are filled in
};

std::unique_ptr<Tokenizer> make_bpe_tokenizer(BpeTokenizerParts parts);

// This joins the parts to one well-formed text, and says where special tokens may be found in it.
struct JoinedText {
  explicit JoinedText(std::span<const TextPart> parts);
  std::string text;
  std::vector<TextRange> special_ranges;
};

}  // namespace tenon::text
