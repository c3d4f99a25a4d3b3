// A chat template turns a conversation into the prompt that a model was trained on. It is the model's own, in
// Jinja, and is run as the package transformers runs it. Texts that come with a conversation stay text: special
// tokens are what the template itself writes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/thoughts.h"
#include "tenon/core/tokenizer.h"

namespace tenon {

// JSON objects keep the order of their keys.
struct ChatMessage {
  std::string role;     // "system", "user", "assistant", "tool" and what else the template knows
  std::string content;  // text
  // This is a JSON object with the message's other fields, or ""; {"tool_calls": [...]}, {"tool_call_id": "..."}. A
  // content that stands in it is taken instead of the one above. Fields that are null count as absent.
  std::string more = {};
};

struct ChatOptions {
  std::string tools = {};      // a JSON list of tools that the model may call; "" = none
  std::string documents = {};  // a JSON list of documents; "" = none
  std::string variables = {};  // a JSON object of further variables of the template, such as {"enable_thinking": false}
  bool generation_prompt = true;  // the assistant's turn is begun
  // The assistant's answer begins so; names of special tokens mean those tokens.
  std::string answer_begins = {};
};

// It never changes after construction, and any thread may call every function.
class ChatTemplate {
 public:
  // Takes the templates of a tokenizer. Throws Error(kModel) that says why there is none; for one that is no Jinja, or
  // asks for something that is not supported, with its line and column.
  explicit ChatTemplate(const TokenizerInfo& info);
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Returns the prompt. Throws Error(kRequest) for no messages, for what is not the JSON that it should be, and, with
  // line and column, for what the template refuses, what goes wrong in it, and where it takes too long.
  std::string render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                     const ChatOptions& options = {}) const;
  // Returns the same as token ids. Names of special tokens in messages are text, unless parse_special is set.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                              const ChatOptions& options = {}, bool parse_special = false) const;

  // Says whether an answer to this conversation may have a thought. Throws as render() does.
  Thoughts thoughts(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                    const ChatOptions& options = {}) const;

  // Returns, sorted, the tokenizer's end_of_generation, and the tokens that the template ends turns with.
  std::vector<int32_t> stop_tokens(const Tokenizer& tokenizer) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace tenon
