// This has the table of tokenizers, and finds which one a model gets.
#include <array>

#include "gguf_tokenizer.h"
#include "huggingface_tokenizer.h"
#include "tenon/core/error.h"
#include "tenon/core/tokenizer.h"

namespace tenon {
namespace {

// A model that was made of a GGUF file has its metadata here.
constexpr char kGgufName[] = "tokenizer.gguf";

bool is_gguf(const Weights& weights) {
  return weights.convention() == "gguf";
}

std::filesystem::path folder_of(const Weights& weights) {
  return weights.files().empty() ? std::filesystem::path() : weights.files().front().parent_path();
}

bool claims_bpe(const Weights& weights) {
  if (is_gguf(weights)) return text::gguf_tokenizer_model(weights) == "gpt2";
  return !weights.files().empty() && text::has_tokenizer_json(folder_of(weights));
}

bool claims_sentencepiece(const Weights& weights) {
  if (is_gguf(weights)) return text::gguf_tokenizer_model(weights) == "llama";
  return !weights.files().empty() && text::has_tokenizer_model(folder_of(weights));
}

bool claims_ids(const Weights& weights) {
  return weights.files().empty();
}

std::unique_ptr<Tokenizer> open_bpe(const Weights& weights) {
  return is_gguf(weights) ? text::open_gguf_bpe(weights) : text::open_huggingface_bpe(folder_of(weights));
}

std::unique_ptr<Tokenizer> open_sentencepiece(const Weights& weights) {
  return is_gguf(weights) ? text::open_gguf_sentencepiece(weights)
                          : text::open_huggingface_sentencepiece(folder_of(weights));
}

std::unique_ptr<Tokenizer> open_ids(const Weights& weights) {
  const std::string architecture = metadata_text(weights, "general.architecture").value_or("");
  auto size = metadata_int(weights, "vocab_size");
  if (!size) size = metadata_int(weights, architecture + ".vocab_size");
  if (!size || *size < 1 || *size > (1 << 24)) {
    throw Error(ErrorCode::kModel, "the tokenizer \"ids\" needs vocab_size in the model's metadata, 1 to 2^24");
  }
  return make_id_tokenizer(static_cast<int32_t>(*size));
}

constexpr std::array kTokenizers{
    TokenizerKind{"bpe", "byte pair encoding: tokenizer.json, GGUF vocabularies of model \"gpt2\"", claims_bpe,
                  open_bpe},
    TokenizerKind{"sentencepiece", "SentencePiece: tokenizer.model, GGUF vocabularies of model \"llama\"",
                  claims_sentencepiece, open_sentencepiece},
    TokenizerKind{"ids", "no text: token n is written <n>; for models without a tokenizer", claims_ids, open_ids},
};

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const TextPart part{text, options.parse_special};
  return encode_parts(std::span(&part, 1), options.add_special);
}

std::span<const TokenizerKind> builtin_tokenizers() {
  return kTokenizers;
}

std::unique_ptr<Tokenizer> make_tokenizer(const Weights& weights) {
  for (const TokenizerKind& kind : kTokenizers) {
    if (kind.claims(weights)) return kind.open(weights);
  }
  if (!is_gguf(weights)) return make_tokenizer(folder_of(weights));
  const std::string model = text::gguf_tokenizer_model(weights);
  throw Error(ErrorCode::kModel, SourcePosition{weights.files().front().string()},
              model.empty() ? "the file has no tokenizer (key tokenizer.ggml.model)"
                            : "tokenizer.ggml.model: unknown tokenizer \"" + model + "\"; supported: gpt2, llama");
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& folder) {
  if (text::has_tokenizer_json(folder)) return text::open_huggingface_bpe(folder);
  if (text::has_tokenizer_model(folder)) return text::open_huggingface_sentencepiece(folder);
  if (const auto path = folder / kGgufName; exists(path)) return make_tokenizer(*open_weights(path.string()));
  throw Error(ErrorCode::kModel, SourcePosition{folder.string()},
              "no tokenizer: neither tokenizer.json nor tokenizer.model nor tokenizer.gguf is there");
}

}  // namespace tenon
