// Text codecs: from text to token ids and back. Ids are those of the published tokenizer, bit for bit, for any text
// (ill-formed UTF-8 counts as U+FFFD, one per maximal subpart). Character properties are those of Unicode 14.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/weights.h"

namespace tenon {

// A run of text and whether the names of special tokens in it mean those tokens. Ordinary added tokens always do.
struct TextPart {
  std::string_view text;
  bool parse_special = false;
};

struct EncodeOptions {
  bool add_special = true;     // BOS and EOS as the model asks for them
  bool parse_special = false;  // see TextPart
};

struct TokenizerInfo {
  std::string_view kind;   // the registry's name
  int32_t vocab_size = 0;  // ids are below it; the model's embedding may have more rows
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::vector<int32_t> end_of_generation;  // sorted: EOS, and what else ends a turn or a text
  bool adds_bos = false;                   // encode() begins with BOS
  bool adds_eos = false;                   // encode() ends with EOS
  bool strips_first_space = false;         // one space at the very start of decoded text is the codec's, not the text's
  std::string chat_template;               // Jinja, as published; "" = none
};

// Immutable after construction; every function may be called from any thread. Independent of the weights' life.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  const TokenizerInfo& info() const noexcept { return info_; }

  // Throws Error(kRequest) where a published pattern cannot be matched within its limits.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Encodes the parts as one text: words form across their borders, special tokens only inside the parts that allow
  // them.
  virtual std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_special) const = 0;

  // What a token adds to the text: any bytes, a token may hold part of a character. A control token's name for control
  // tokens. Empty for an id that the vocabulary does not have. Valid for the life of this object.
  virtual std::string_view bytes(int32_t id) const = 0;
  // Tokens that steer and are not text: BOS, turn markers, the unknown token.
  virtual bool is_control(int32_t id) const = 0;
  // The id of a special or added token by its text, else of a vocabulary entry as the file spells it.
  virtual std::optional<int32_t> find(std::string_view token) const = 0;

 protected:
  TokenizerInfo info_;
};

struct DecodeOptions {
  bool show_control = false;  // print control tokens by name
  bool continues = false;     // the text goes on after a prompt: strips_first_space does not apply
};

// Turns tokens into text as they come. Never splits a character: bytes wait until theirs is complete. Ill-formed bytes
// become U+FFFD, one per maximal subpart. The tokenizer must outlive it.
class StreamDetokenizer {
 public:
  explicit StreamDetokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  // The text that this token completes; may be empty.
  std::string push(int32_t id);
  // Gives what is still waiting, as U+FFFD. It is ready for the next text afterwards.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  bool strip_space_;
  std::string waiting_;
};

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, const DecodeOptions& options = {});

// A tokenizer as the registry lists it.
struct TokenizerKind {
  std::string_view name;  // the value in TOML
  std::string_view doc;   // one line: what it reads
  bool (*claims)(const Weights& weights);
  std::unique_ptr<Tokenizer> (*open)(const Weights& weights);
};

std::span<const TokenizerKind> builtin_tokenizers();

// The tokenizer of an open model: GGUF metadata, or tokenizer.json, tokenizer.model or tokenizer.gguf (the metadata of
// a GGUF file) beside Hugging Face weights. Weights without a file (synthetic) get the tokenizer "ids". Throws
// Error(kModel) that names file and key, what was found and what is supported; Error(kIo) for what cannot be read.
std::unique_ptr<Tokenizer> make_tokenizer(const Weights& weights);
// The same for a Hugging Face folder without weights.
std::unique_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& folder);

// The tokenizer "ids", for models that have none. Token n prints as "<n>"; text is read as such names, and any other
// byte b as token b modulo vocab_size.
std::unique_ptr<Tokenizer> make_id_tokenizer(int32_t vocab_size);

}  // namespace tenon
