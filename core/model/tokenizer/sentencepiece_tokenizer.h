// This is SentencePiece (Kudo and Richardson, arXiv:1808.06226), the library itself, as a Tokenizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "added_tokens.h"
#include "sentencepiece_model.h"
#include "tenon/core/tokenizer.h"

namespace tenon::text {

struct SentencePieceParts {
  std::string file;  // errors name it
  SentencePieceModel model;
  std::string serialized;         // the same model as the library reads it
  std::vector<AddedToken> added;  // ids may be above those of the pieces; control pieces need not be listed
  TokenizerInfo info;             // kind, vocab_size and strips_first_space are filled in
};

// Between two added tokens every run of text is encoded by itself, with its own dummy prefix.
std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(SentencePieceParts parts);

}  // namespace tenon::text
