// The tokenizer of a Hugging Face folder becomes keys of GGUF. GGUF names a way of cutting texts instead of stating it:
// so each published way is tried on a sample text, and the result counts only if a tokenizer that is opened from it
// again cuts and encodes the sample as the folder's does.
#include "gguf_vocabulary.h"

#include <algorithm>
#include <optional>

#include "huggingface_tokenizer.h"
#include "pre_tokenizer_table.h"
#include "sentencepiece_model.h"
#include "tenon/core/error.h"
#include "tenon/core/tokenizer.h"

namespace tenon::text {
namespace {

using weights::MetadataMap;

// The sample has contractions in both cases, runs of digits, code, white space of all kinds, several scripts, composed
// and combining characters: whatever pre-tokenizers treat differently.
constexpr std::string_view kProbe =
    "Hello world, it's I'M we'LL they've don't\tX'd.  Two  spaces, three   spaces \n"
    "1 12 123 1234 12345 3.14159 \xC2\xBD \xD9\xA3\xD9\xA4 v2.0b7 0xFF\r\n\r\n\n  def f(x_1, y2): return x_1**2 != "
    "y2;\n"
    "\t\t// --- #!$%^&*()[]{}<>?/\\|`~@ ... \xE2\x80\x94 \xE2\x80\x9Cquoted\xE2\x80\x9D \xC2\xA1\xC2\xBF\xE2\x82\xAC\n"
    "caf\xC3\xA9 cafe\xCC\x81 na\xC3\xAFve \xC3\x9C\x62\x65r \xC5\x93uvre \xEF\xAC\x81 "
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xCE\xB1\xCE\xB2\xCE\xB3 \xD7\xA9\xD7\x9C\xD7\x95\xD7\x9D "
    "\xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7 \xE0\xA4\xA8\xE0\xA4\xAE\xE0\xA4\xB8\xE0\xA5\x8D\xE0\xA4\xA4\xE0\xA5\x87 "
    "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82\xE3\x81\x82\xE3\x81\x84\xE3\x82\xAB\xE3\x82\xBF "
    "\xEC\x95\x88\xEB\x85\x95 \xF0\x9F\x98\x80\xF0\x9F\x91\x8D\xF0\x9F\x8F\xBD \xC2\xA0nbsp \xE3\x80\x80wide   ";

// This is a model that has nothing but its tokenizer.
class Vocabularied final : public weights::TableWeights {
 public:
  explicit Vocabularied(const MetadataMap& metadata) : TableWeights({"gguf", {}, metadata}, {"the GGUF metadata"}) {}
  const std::byte* mapped(const WeightTensor&) const override { return nullptr; }
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override {
    check_range(tensor, offset, out.size());
  }
};

// Returns what the model sees of the sample text, piece by piece.
std::vector<std::string> pieces(const std::vector<NormalizerStep>& normalizer, const PreTokenizer& pre_tokenizer) {
  PieceScratch scratch;
  const Normalized text = normalize(normalizer, kProbe, scratch.regex);
  std::vector<std::string> result;
  for (const Piece& piece : pre_tokenizer.run({text.text, text.from_start}, scratch)) result.emplace_back(piece.text);
  return result;
}

// Says what of `b` is not as in `a`; empty if nothing is.
std::string difference(const Tokenizer& a, const Tokenizer& b) {
  if (a.info().eos != b.info().eos || (a.info().bos && a.info().bos != b.info().bos)) return "BOS and EOS";
  if (a.info().end_of_generation != b.info().end_of_generation) return "the tokens that end a text";
  if (a.info().strips_first_space != b.info().strips_first_space) return "the space before a text";
  for (const bool add_special : {false, true}) {
    const auto one = a.encode(kProbe, {.add_special = add_special}),
               other = b.encode(kProbe, {.add_special = add_special});
    const auto at = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
    if (one != other) {
      return "token " + std::to_string(at - one.begin()) + " of a sample text" +
             (at == one.end() ? "" : ", \"" + std::string(a.bytes(*at)) + "\"");
    }
    for (const int32_t id : one) {
      if (a.bytes(id) != b.bytes(id)) return "the text of token " + std::to_string(id);
    }
  }
  return "";
}

[[noreturn]] void refuse(const std::filesystem::path& folder, const std::string& message) {
  throw Error(ErrorCode::kModel, {folder.string()}, "the tokenizer has no counterpart in GGUF: " + message);
}

struct Tokens {
  std::vector<std::string> text;
  std::vector<int64_t> type;
  std::vector<double> score;  // SentencePiece has them

  // Fills up to `rows`, and gives the id's entry.
  void grow(size_t rows) {
    for (size_t id = text.size(); id < rows; ++id) {
      text.push_back("[PAD" + std::to_string(id) + "]");
      type.push_back(static_cast<int64_t>(PieceType::kUnused));
      score.push_back(-1000);
    }
  }
  void add(const std::vector<AddedToken>& added) {
    for (const AddedToken& token : added) {
      const auto id = static_cast<size_t>(token.id);
      grow(id + 1);
      text[id] = token.name;
      type[id] = static_cast<int64_t>(token.special ? PieceType::kControl : PieceType::kUserDefined);
    }
  }
};

void put_tokens(MetadataMap& all, Tokens tokens, size_t rows) {
  tokens.grow(rows);
  all["tokenizer.ggml.tokens"] = std::move(tokens.text);
  all["tokenizer.ggml.token_type"] = std::move(tokens.type);
}

// Returns the keys that tokenizers of both kinds have. A token that begins every text is
// BOS, even if the files do not call it so.
MetadataMap common_keys(const Tokenizer& wanted) {
  const TokenizerInfo& info = wanted.info();
  const std::vector<int32_t> around = wanted.encode("");
  std::optional<int32_t> bos = info.bos;
  if (!bos && !around.empty() && around.front() != info.eos) bos = around.front();
  MetadataMap all;
  if (bos) all["tokenizer.ggml.bos_token_id"] = int64_t{*bos};
  if (info.eos) all["tokenizer.ggml.eos_token_id"] = int64_t{*info.eos};
  all["tokenizer.ggml.add_bos_token"] = bos && !around.empty() && around.front() == *bos;
  all["tokenizer.ggml.add_eos_token"] = info.adds_eos;
  if (!info.chat_template.empty()) all["tokenizer.chat_template"] = info.chat_template;
  if (!info.tool_chat_template.empty()) all["tokenizer.chat_template.tool_use"] = info.tool_chat_template;
  return all;
}

std::string difference_of(const Tokenizer& wanted, const MetadataMap& metadata) {
  return difference(wanted, *make_tokenizer(Vocabularied(metadata)));
}

// GGUF can name two more tokens that end a text, where their names do not tell.
void name_ends(MetadataMap& all, const TokenizerInfo& wanted) {
  const auto found = make_tokenizer(Vocabularied(all));
  const std::vector<int32_t>& known = found->info().end_of_generation;
  std::vector<int32_t> missing;
  std::set_difference(wanted.end_of_generation.begin(), wanted.end_of_generation.end(), known.begin(), known.end(),
                      std::back_inserter(missing));
  const char* keys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
  for (size_t i = 0; i < std::min(missing.size(), std::size(keys)); ++i) all[keys[i]] = int64_t{missing[i]};
}

MetadataMap bpe_vocabulary(const std::filesystem::path& folder, const Tokenizer& wanted, size_t rows) {
  const TokenizerJson file = read_tokenizer_json(folder);
  MetadataMap all = common_keys(wanted);
  Tokens tokens;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (file.tokens[id].empty()) {
      tokens.grow(id + 1);
      continue;
    }
    tokens.text.push_back(file.tokens[id]);
    tokens.score.push_back(0);
    tokens.type.push_back(static_cast<int64_t>(PieceType::kNormal));
  }
  tokens.add(file.parts.added);
  std::vector<std::string> merges;
  for (const MergeRule& rule : file.parts.merges) {
    merges.push_back(file.tokens[static_cast<size_t>(rule.left)] + " " + file.tokens[static_cast<size_t>(rule.right)]);
  }
  put_tokens(all, std::move(tokens), rows);
  all["tokenizer.ggml.model"] = std::string("gpt2");
  all["tokenizer.ggml.merges"] = std::move(merges);
  const std::vector<std::string> cut = pieces(file.parts.normalizer, file.parts.pre_tokenizer);
  std::string known;
  for (const std::string_view name : published_pre_tokenizers()) {
    known.append(known.empty() ? "" : ", ").append(name);
    if (sample_pieces(std::string(name)) != cut) continue;
    all["tokenizer.ggml.pre"] = std::string(name);
    name_ends(all, wanted.info());
    const std::string found = difference_of(wanted, all);
    if (found.empty()) return all;
    refuse(folder, "as pre-tokenizer \"" + std::string(name) + "\" it differs in " + found);
  }
  refuse(folder, "it cuts a sample text as no pre-tokenizer that GGUF names does; known are " + known);
}

MetadataMap sentencepiece_vocabulary(const std::filesystem::path& folder, const Tokenizer& wanted, size_t rows) {
  const SentencePieceParts parts = read_sentencepiece(folder);
  MetadataMap all = common_keys(wanted);
  Tokens tokens;
  for (const SentencePiece& piece : parts.model.pieces) {
    if (piece.type == PieceType::kUnknown)
      all["tokenizer.ggml.unknown_token_id"] = static_cast<int64_t>(tokens.text.size());
    tokens.text.push_back(piece.text);
    tokens.score.push_back(piece.score);
    tokens.type.push_back(static_cast<int64_t>(piece.type));
  }
  tokens.add(parts.added);
  tokens.grow(rows);
  all["tokenizer.ggml.model"] = std::string("llama");
  all["tokenizer.ggml.pre"] = std::string("default");
  all["tokenizer.ggml.scores"] = tokens.score;
  all["tokenizer.ggml.add_space_prefix"] = parts.model.add_dummy_prefix;
  all["tokenizer.ggml.remove_extra_whitespaces"] = parts.model.remove_extra_whitespaces;
  if (!parts.model.charsmap.empty()) {
    std::vector<int64_t> bytes;
    for (const char c : parts.model.charsmap) bytes.push_back(static_cast<unsigned char>(c));
    all["tokenizer.ggml.precompiled_charsmap"] = std::move(bytes);
  }
  put_tokens(all, std::move(tokens), rows);
  name_ends(all, wanted.info());
  const std::string found = difference_of(wanted, all);
  if (found.empty()) return all;
  refuse(folder, "made of tokenizer.model it differs in " + found);
}

}  // namespace

std::vector<std::string> sample_pieces(const std::string& name) {
  const PublishedPreTokenizer published = published_pre_tokenizer(name, "");
  return pieces(published.normalizer, published.pre_tokenizer);
}

MetadataMap gguf_vocabulary(const std::filesystem::path& folder, size_t rows) {
  const std::unique_ptr<Tokenizer> wanted = make_tokenizer(folder);
  const size_t size = std::max(rows, static_cast<size_t>(wanted->info().vocab_size));
  // A tokenizer.json without a byte alphabet says in other words what tokenizer.model beside it says.
  if (has_tokenizer_json(folder) && read_tokenizer_json(folder).parts.decoder.byte_level) {
    return bpe_vocabulary(folder, *wanted, size);
  }
  if (has_tokenizer_model(folder)) return sentencepiece_vocabulary(folder, *wanted, size);
  refuse(folder, "a tokenizer.json that is not byte-level needs the tokenizer.model that it was made of beside it");
}

}  // namespace tenon::text
