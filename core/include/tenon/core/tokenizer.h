// A tokenizer turns text into token ids and back. The ids are exactly those of the published tokenizer, for any text
// (ill-formed UTF-8 counts as U+FFFD, one for each maximal subpart). Character properties are those of Unicode 14.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tenon/core/weights.h"

namespace tenon {

// This is a piece of a text.
struct TextPart {
  std::string_view text;
  bool parse_special = false;  // names of special tokens in it mean those tokens; those of other added tokens always do
};

struct EncodeOptions {
  bool add_special = true;     // BOS and EOS are added as the model asks for them
  bool parse_special = false;  // see TextPart
};

struct TokenizerInfo {
  std::string_view kind;   // the registry's name
  int32_t vocab_size = 0;  // ids are below it; the model's embedding may have more rows
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::vector<int32_t> end_of_generation;  // they are sorted: EOS, and the other tokens that end a turn or a text
  bool adds_bos = false;                   // encode() begins with BOS
  bool adds_eos = false;                   // encode() ends with EOS
  bool strips_first_space = false;         // encode() puts a space before the text, and decoding takes it away again
  std::string chat_template;               // Jinja, as published; "" = there is none
  std::string tool_chat_template;          // the one named tool_use, for conversations with tools; "" = there is none
  // The templates stand in these files: all of one that ends in .jinja, else part of it; "" = not known.
  std::string chat_template_file, tool_chat_template_file;
  // These are names of special tokens that templates use besides BOS and EOS, with their texts: "unk_token", "<unk>".
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

// A tokenizer never changes after construction, and any thread may call every
// function. The weights need not outlive it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  const TokenizerInfo& info() const noexcept { return info_; }

  // Throws Error(kRequest) where a published pattern cannot be matched within its limits.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Encodes the parts as one text: words form across their borders, special tokens only inside the parts that allow
  // them.
  virtual std::vector<int32_t> encode_parts(std::span<const TextPart> parts, bool add_special) const = 0;

  // Returns what a token adds to the text, which may be any bytes, since a token may hold a piece of a character; for a
  // control token its name, and "" for an id that the vocabulary does not have. It is valid as long as this object.
  virtual std::string_view bytes(int32_t id) const = 0;
  // Says whether the token steers a model and is no text: BOS, turn markers, the unknown token.
  virtual bool is_control(int32_t id) const = 0;
  // Returns the id of a special or added token by its text, else of a vocabulary entry as the file spells it.
  virtual std::optional<int32_t> find(std::string_view token) const = 0;

 protected:
  TokenizerInfo info_;
};

struct DecodeOptions {
  bool show_control = false;            // control tokens appear by their names
  bool continues = false;               // the text goes on after a prompt: strips_first_space does not apply
  std::span<const int32_t> shown = {};  // so do these, whatever show_control says; they outlive the detokenizer
};

// This turns tokens into text as they come. It never splits a character: bytes wait until theirs is complete.
// Ill-formed bytes become U+FFFD, one for each maximal subpart. The tokenizer must outlive it.
class StreamDetokenizer {
 public:
  explicit StreamDetokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  // Returns the text that this token completes, which may be empty.
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

// This is a tokenizer as the registry lists it.
struct TokenizerKind {
  std::string_view name;  // the value in TOML
  std::string_view doc;   // one line that says what it reads
  bool (*claims)(const Weights& weights);
  std::unique_ptr<Tokenizer> (*open)(const Weights& weights);
};

std::span<const TokenizerKind> builtin_tokenizers();

// Makes the tokenizer of an open model from GGUF metadata, or from tokenizer.json, tokenizer.model or
// tokenizer.gguf (the metadata of a GGUF file) beside Hugging Face weights. Weights without a file (synthetic) get
// the tokenizer "ids". Throws Error(kModel) that names file and key, what was found and what is supported;
// Error(kIo) for a file that cannot be read.
std::unique_ptr<Tokenizer> make_tokenizer(const Weights& weights);
// Does the same for a Hugging Face folder without weights.
std::unique_ptr<Tokenizer> make_tokenizer(const std::filesystem::path& folder);

// Makes the tokenizer "ids", for models that have none. Token n prints as "<n>"; text is read as such names, and any
// other byte b as token b modulo vocab_size.
std::unique_ptr<Tokenizer> make_id_tokenizer(int32_t vocab_size);

}  // namespace tenon
