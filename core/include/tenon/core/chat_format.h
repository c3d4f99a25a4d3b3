// A chat format turns a conversation into the prompt that a model was trained on. The format is recognised from the
// model's published template, which is Jinja; the template itself is not run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/tokenizer.h"

namespace tenon {

struct ChatMessage {
  std::string role;  // "system" (first only), "user", "assistant"; ChatML takes any
  std::string content;
};

// A format is one of:
//   chatml   <|im_start|>ROLE\nCONTENT<|im_end|>\n; a default system message if the template states one (SmolLM2, Qwen)
//   llama-2  [INST] <<SYS>>\nSYSTEM\n<</SYS>>\n\nCONTENT [/INST]; roles must alternate; contents are stripped; a
//   default
//            system message if the template states one
//   llama-3  <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>; contents are stripped; templates that state
//            a knowledge date get their system block with the template's own fixed date
//   zephyr   <|ROLE|>\nCONTENT EOS\n
// BOS stands where the template puts it.
class ChatFormat {
 public:
  // Takes the templates that models of these formats are published with, spelled in any way that renders the same, and
  // guesses at no other. Throws Error(kModel) that lists the formats if the template is none of them, or is empty.
  static ChatFormat from_template(std::string_view chat_template);
  // Returns the format in its plainest form. Throws Error(kModel) that lists the formats.
  static ChatFormat from_name(std::string_view name);

  std::string_view name() const noexcept;
  // This stands in for a system message that is missing; "" = nothing does.
  const std::string& default_system() const noexcept { return default_system_; }

  // Returns the prompt up to where the assistant begins (or, without generation_prompt, up to the last message's end).
  // Throws Error(kRequest) for no messages, and for roles or an order that the format does not have.
  std::string render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                     bool generation_prompt = true) const;
  // Returns the same as token ids, with BOS if the template has it. Special tokens come from the format alone: their names
  // in a message are text, unless parse_special is set.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                              bool generation_prompt = true, bool parse_special = false) const;

  // Returns, sorted, the tokens that end the assistant's turn, and the tokenizer's own end_of_generation.
  std::vector<int32_t> stop_tokens(const Tokenizer& tokenizer) const;

 private:
  enum class Kind { kChatMl, kLlama2, kLlama3, kZephyr };
  struct Piece {
    std::string text;
    bool format;
  };
  explicit ChatFormat(Kind kind) : kind_(kind) {}
  std::vector<Piece> pieces(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                            bool generation_prompt) const;
  void llama2(const Tokenizer& tokenizer, std::span<const ChatMessage> messages, std::vector<Piece>& out) const;
  void llama3(std::span<const ChatMessage> messages, std::vector<Piece>& out) const;

  Kind kind_;
  bool bos_ = false;             // the template begins with BOS
  bool prompts_always_ = false;  // the assistant's turn is begun whether it is asked for or not
  bool trims_ = false;           // contents lose blanks at both ends
  std::string dated_preamble_;   // llama-3 with a knowledge date: this text stands before the system message
  std::string default_system_;
};

}  // namespace tenon
