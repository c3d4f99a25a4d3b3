// The keys tokenizer.* of a GGUF file become a BPE tokenizer or SentencePiece. Ids that the file gives are checked
// against the vocabulary, and a key that asks for what is not done is an error, never ignored.
#include "gguf_tokenizer.h"

#include <algorithm>
#include <initializer_list>
#include <string>

#include "../weights/layout.h"
#include "bpe_tokenizer.h"
#include "end_tokens.h"
#include "pre_tokenizer_table.h"
#include "sentencepiece_tokenizer.h"
#include "tenon/core/error.h"

namespace tenon::text {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string file_of(const Weights& weights) {
  return weights.files().empty() ? std::string() : weights.files().front().string();
}

[[noreturn]] void fail(const Weights& weights, std::string_view key, const std::string& message) {
  throw Error(ErrorCode::kModel, SourcePosition{file_of(weights)}, std::string(kPrefix).append(key) + ": " + message);
}

template <class T>
const std::vector<T>* find_array(const Weights& weights, std::string_view key) {
  const MetadataValue* value = weights.metadata(std::string(kPrefix).append(key));
  if (value == nullptr) return nullptr;
  const auto* array = std::get_if<std::vector<T>>(value);
  if (array == nullptr) fail(weights, key, "is not an array of the kind that it should be");
  return array;
}

const std::vector<std::string>& tokens_of(const Weights& weights) {
  const auto* tokens = find_array<std::string>(weights, "tokens");
  if (tokens == nullptr || tokens->empty()) fail(weights, "tokens", "is missing");
  if (tokens->size() > INT32_MAX / 2) fail(weights, "tokens", "has too many entries");
  return *tokens;
}

// Returns one type per token; all are normal if the file states none.
std::vector<PieceType> types_of(const Weights& weights, size_t tokens) {
  const auto* types = find_array<int64_t>(weights, "token_type");
  std::vector<PieceType> result(tokens, PieceType::kNormal);
  if (types == nullptr) return result;
  if (types->size() != tokens) {
    fail(weights, "token_type",
         std::to_string(types->size()) + " entries for the " + std::to_string(tokens) + " of tokenizer.ggml.tokens");
  }
  for (size_t i = 0; i < tokens; ++i) {
    const int64_t type = (*types)[i];
    if (type < 1 || type > 6) {
      fail(weights, "token_type", "entry " + std::to_string(i) + " is " + std::to_string(type) + "; known: 1 to 6");
    }
    result[i] = static_cast<PieceType>(type);
  }
  return result;
}

std::optional<int32_t> id_of(const Weights& weights, std::string_view key, size_t tokens) {
  const auto id = metadata_int(weights, std::string(kPrefix).append(key));
  if (!id) return std::nullopt;
  if (*id < 0 || static_cast<uint64_t>(*id) >= tokens) {
    fail(weights, key, std::to_string(*id) + " is no token; the vocabulary has " + std::to_string(tokens));
  }
  return static_cast<int32_t>(*id);
}

// A token around each text that is asked for has to be there.
bool adds(const Weights& weights, std::string_view what, const std::optional<int32_t>& token, bool otherwise) {
  const std::string key = "add_" + std::string(what) + "_token";
  const auto asks = metadata_bool(weights, std::string(kPrefix) + key);
  if (asks.value_or(false) && !token)
    fail(weights, key, "is true, and tokenizer.ggml." + std::string(what) + "_token_id is missing");
  return token && asks.value_or(otherwise);
}

// Refuses keys that ask for something that the tokenizer does not do.
void expect_not_asked(const Weights& weights, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (metadata_bool(weights, std::string(kPrefix).append(key)).value_or(false)) {
      fail(weights, key,
           "is true; expected false, or no such key: a tokenizer of model \"" + gguf_tokenizer_model(weights) +
               "\" does not do that");
    }
  }
}

// Returns the tokens that only chat templates ask for. Their ids may be anything, since nothing else is done with them.
std::vector<std::pair<std::string, std::string>> special_tokens_of(const Weights& weights, size_t tokens) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"unk_token", "unknown_token_id"},
                                                            {"pad_token", "padding_token_id"},
                                                            {"sep_token", "seperator_token_id"},
                                                            {"cls_token", "cls_token_id"},
                                                            {"mask_token", "mask_token_id"}};
  const auto* texts = find_array<std::string>(weights, "tokens");
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& [name, key] : kNames) {
    const auto id = metadata_int(weights, std::string(kPrefix).append(key));
    if (texts == nullptr || !id || *id < 0 || static_cast<uint64_t>(*id) >= std::min(tokens, texts->size())) continue;
    found.emplace_back(name, (*texts)[static_cast<size_t>(*id)]);
  }
  return found;
}

TokenizerInfo info_of(const Weights& weights, size_t tokens, bool adds_bos) {
  TokenizerInfo info;
  info.bos = id_of(weights, "bos_token_id", tokens);
  info.eos = id_of(weights, "eos_token_id", tokens);
  info.adds_bos = adds(weights, "bos", info.bos, adds_bos);
  info.adds_eos = adds(weights, "eos", info.eos, false);
  info.chat_template = metadata_text(weights, "tokenizer.chat_template").value_or("");
  info.tool_chat_template = metadata_text(weights, "tokenizer.chat_template.tool_use").value_or("");
  info.chat_template_file = info.tool_chat_template_file = weights::description_file(weights);
  info.special_tokens = special_tokens_of(weights, tokens);
  std::vector<int32_t> ends;
  for (const char* key : {"eot_token_id", "eom_token_id"}) {
    if (const auto id = id_of(weights, key, tokens)) ends.push_back(*id);
  }
  add_end_tokens(info, ends);
  return info;
}

// Control tokens are special; user-defined ones always mean themselves.
std::vector<AddedToken> added_of(const std::vector<std::string>& tokens, const std::vector<PieceType>& types) {
  std::vector<AddedToken> added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (types[id] != PieceType::kControl && types[id] != PieceType::kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int32_t>(id);
    token.name = tokens[id];
    token.special = types[id] == PieceType::kControl;
    added.push_back(std::move(token));
  }
  return added;
}

void add_known_ends(TokenizerInfo& info, const std::vector<AddedToken>& added) {
  add_end_tokens(info, known_end_tokens([&](std::string_view name) -> std::optional<int32_t> {
                   for (const AddedToken& token : added) {
                     if (token.name == name) return token.id;
                   }
                   return std::nullopt;
                 }));
}

std::vector<MergeRule> merges_of(const Weights& weights, const Vocabulary& vocabulary) {
  const auto* merges = find_array<std::string>(weights, "merges");
  if (merges == nullptr) fail(weights, "merges", "is missing");
  std::vector<MergeRule> rules;
  rules.reserve(merges->size());
  std::string joined;
  for (size_t i = 0; i < merges->size(); ++i) {
    const std::string_view line = (*merges)[i];
    const size_t space = line.find(' ', 1);
    const auto bad = [&](const std::string& why) {
      fail(weights, "merges", "entry " + std::to_string(i) + ", \"" + std::string(line) + "\": " + why);
    };
    if (space == std::string_view::npos) bad("expected \"LEFT RIGHT\"");
    const auto id = [&](std::string_view token) {
      const auto found = vocabulary.find(token);
      if (!found) bad("\"" + std::string(token) + "\" is not in the vocabulary");
      return *found;
    };
    joined.assign(line.substr(0, space)).append(line.substr(space + 1));
    rules.push_back({id(line.substr(0, space)), id(line.substr(space + 1)), id(joined)});
  }
  return rules;
}

// SentencePiece takes one unknown piece; converters mark more as such (padding), which are then as good as control
// tokens.
void keep_one_unknown(const Weights& weights, std::vector<SentencePiece>& pieces) {
  const auto is_unknown = [](const SentencePiece& piece) { return piece.type == PieceType::kUnknown; };
  const auto first = std::find_if(pieces.begin(), pieces.end(), is_unknown) - pieces.begin();
  const auto kept = id_of(weights, "unknown_token_id", pieces.size()).value_or(static_cast<int32_t>(first));
  if (static_cast<size_t>(kept) < pieces.size() && pieces[kept].type == PieceType::kByte) {
    fail(weights, "unknown_token_id", std::to_string(kept) + " is a byte by tokenizer.ggml.token_type");
  }
  for (SentencePiece& piece : pieces) {
    if (is_unknown(piece)) piece.type = PieceType::kControl;
  }
  if (static_cast<size_t>(kept) < pieces.size()) pieces[kept].type = PieceType::kUnknown;
}

}  // namespace

std::string gguf_tokenizer_model(const Weights& weights) {
  return metadata_text(weights, "tokenizer.ggml.model").value_or("");
}

std::unique_ptr<Tokenizer> open_gguf_bpe(const Weights& weights) {
  const std::vector<std::string>& tokens = tokens_of(weights);
  const std::vector<PieceType> types = types_of(weights, tokens.size());
  const auto pre = metadata_text(weights, "tokenizer.ggml.pre");
  if (!pre) fail(weights, "pre", "is missing: without it the text would be cut wrongly; convert the model anew");
  expect_not_asked(weights, {"add_space_prefix", "remove_extra_whitespaces", "add_sep_token"});
  if (weights.metadata("tokenizer.ggml.precompiled_charsmap") != nullptr) {
    fail(weights, "precompiled_charsmap", "belongs to SentencePiece, and tokenizer.ggml.model is gpt2");
  }
  PublishedPreTokenizer published = published_pre_tokenizer(*pre, file_of(weights));
  BpeTokenizerParts parts;
  parts.vocabulary = Vocabulary(tokens);
  parts.merges = merges_of(weights, parts.vocabulary);
  parts.options.ignore_merges = published.ignore_merges;
  parts.added = added_of(tokens, types);
  parts.added_names_are_text = true;
  parts.normalizer = std::move(published.normalizer);
  parts.pre_tokenizer = std::move(published.pre_tokenizer);
  parts.decoder.byte_level = true;
  parts.info = info_of(weights, tokens.size(), published.adds_bos);
  add_known_ends(parts.info, parts.added);
  if (parts.info.adds_bos) parts.prefix.push_back(*parts.info.bos);
  if (parts.info.adds_eos) parts.suffix.push_back(*parts.info.eos);
  return make_bpe_tokenizer(std::move(parts));
}

std::unique_ptr<Tokenizer> open_gguf_sentencepiece(const Weights& weights) {
  const std::vector<std::string>& tokens = tokens_of(weights);
  const std::vector<PieceType> types = types_of(weights, tokens.size());
  const auto* scores = find_array<double>(weights, "scores");
  if (scores == nullptr || scores->size() != tokens.size()) {
    fail(weights, "scores", "expected " + std::to_string(tokens.size()) + " numbers, one per token");
  }
  expect_not_asked(weights, {"add_sep_token"});
  SentencePieceParts parts;
  parts.file = file_of(weights);
  for (size_t i = 0; i < tokens.size(); ++i) {
    parts.model.pieces.push_back({tokens[i], static_cast<float>((*scores)[i]), types[i]});
  }
  keep_one_unknown(weights, parts.model.pieces);
  parts.model.byte_fallback = std::find(types.begin(), types.end(), PieceType::kByte) != types.end();
  parts.model.add_dummy_prefix = metadata_bool(weights, "tokenizer.ggml.add_space_prefix").value_or(true);
  parts.model.remove_extra_whitespaces =
      metadata_bool(weights, "tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  if (const auto* rules = find_array<int64_t>(weights, "precompiled_charsmap")) {
    for (const int64_t byte : *rules) parts.model.charsmap += static_cast<char>(byte);
    try {
      check_charsmap(parts.model.charsmap, parts.file);
    } catch (const Error& e) {
      fail(weights, "precompiled_charsmap", e.diagnostics().front().message);
    }
  }
  parts.serialized = serialize_sentencepiece(parts.model);
  parts.added = added_of(tokens, types);
  parts.info = info_of(weights, tokens.size(), true);
  add_known_ends(parts.info, parts.added);
  return make_sentencepiece_tokenizer(std::move(parts));
}

}  // namespace tenon::text
