// A template is known by a fingerprint of what it renders, and stands for the format that it renders: the text of a
// published template is in tests/data/tokenizer/chats.json or with the models named here.
#include "tenon/core/chat_format.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "../weights/layout.h"
#include "chat_template.h"
#include "tenon/core/error.h"
#include "utf8.h"

namespace tenon {
namespace {

constexpr std::array<std::string_view, 4> kNames{"chatml", "llama-2", "llama-3", "zephyr"};

std::string known_formats() {
  std::string known;
  for (const std::string_view name : kNames) known.append(known.empty() ? "" : ", ").append(name);
  return known;
}

// A template that models are published with: its fingerprint without default system message and dates.
struct KnownTemplate {
  uint64_t fingerprint;
  std::string_view format;
  bool bos = false, trims = false, prompts_always = false;
};

constexpr KnownTemplate kTemplates[] = {
    {0x332f3fa556194b99, "chatml"},                     // OpenHermes, SmolLM
    {0x6ab8ce224aef21b3, "chatml"},                     // SmolLM2, Qwen1.5
    {0x6f88c905076caf6a, "chatml"},                     // states its own defaults
    {0x65e156c9f93b26b1, "chatml", true},               // begins with BOS
    {0x291f1f60a23c309f, "chatml", true, true},         // trims as well
    {0xacf676522d9fc248, "llama-2"},                    // Llama 2
    {0x80e8b096c79b9103, "llama-2"},                    // checks that turns alternate
    {0xa3a878da8776bdb6, "llama-2"},                    // a default system message
    {0xbdd8e1e0d950936d, "llama-2"},                    // both
    {0x6c65d5c03240db16, "llama-3", true, true, true},  // Llama 3, first version
    {0xce25b79f9f1134ae, "llama-3", true, true},        // Llama 3
    {0xaa04c919399f7a76, "llama-3", true, true},        // Llama 3.1
    {0x717bd68377797f7d, "llama-3", true, true},        // Llama 3.2
    {0x9dd882556c654def, "llama-3", true, true},        // Llama 3.1 without tools
    {0xd6200921503963d9, "zephyr"},                     // Zephyr, TinyLlama
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kRequest, "chat: " + message);
}

// The text of a special token; empty if the tokenizer has none.
std::string text_of(const Tokenizer& tokenizer, const std::optional<int32_t>& id) {
  return id ? std::string(tokenizer.bytes(*id)) : std::string();
}

}  // namespace

ChatFormat ChatFormat::from_name(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) {
    throw Error(ErrorCode::kModel, "unknown chat format \"" + std::string(name) + "\"; known: " + known_formats());
  }
  ChatFormat format(static_cast<Kind>(found - kNames.begin()));
  format.bos_ = format.kind_ == Kind::kLlama3;
  format.trims_ = format.kind_ == Kind::kLlama3;
  return format;
}

ChatFormat ChatFormat::from_template(std::string_view chat_template) {
  const std::string open(1, text::ChatTemplate::kOpen), close(1, text::ChatTemplate::kClose);
  text::ChatTemplate left(chat_template);
  const std::string chatml_system = left.take(open + "<|im_start|>system\n", "<|im_end|>\n" + close);
  const std::string llama2_system = left.take("set system_message=" + open, close);
  const std::string cut = left.take(open + "Cutting Knowledge Date: ", close);
  const std::string date = left.take("set date_string=" + open, close);
  const auto known = std::find_if(std::begin(kTemplates), std::end(kTemplates), [&](const KnownTemplate& k) {
    return k.fingerprint == left.fingerprint() && (chatml_system.empty() || k.format == "chatml") &&
           (llama2_system.empty() || k.format == "llama-2") && ((cut.empty() && date.empty()) || k.format == "llama-3");
  });
  if (known == std::end(kTemplates)) {
    throw Error(ErrorCode::kModel,
                chat_template.empty()
                    ? "the model has no chat template; known: " + known_formats()
                    : "the model's chat template is none of the published ones of a known format, and is not guessed; "
                      "found " +
                          weights::in_quotes(chat_template) + "; known: " + known_formats());
  }
  ChatFormat format = from_name(known->format);
  format.bos_ = known->bos;
  format.trims_ = known->trims;
  format.prompts_always_ = known->prompts_always;
  format.default_system_ = chatml_system + llama2_system;
  if (!date.empty()) format.dated_preamble_ = "Cutting Knowledge Date: " + cut + "Today Date: " + date + "\n\n";
  return format;
}

std::string_view ChatFormat::name() const noexcept {
  return kNames[static_cast<size_t>(kind_)];
}

void ChatFormat::llama2(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                        std::vector<Piece>& out) const {
  const std::string bos = text_of(tokenizer, tokenizer.info().bos);
  const std::string eos = text_of(tokenizer, tokenizer.info().eos);
  const bool given = messages[0].role == "system";
  const std::string& system = given ? messages[0].content : default_system_;
  if (given) messages = messages.subspan(1);
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto& [role, content] = messages[i];
    if (role != (i % 2 == 0 ? "user" : "assistant")) {
      refuse("llama-2 needs user and assistant in turn after an optional system message; message " +
             std::to_string(i + (given ? 1 : 0)) + " is of role \"" + role + "\"");
    }
    if (i % 2 == 1) {
      out.insert(out.end(), {{" ", true}, {std::string(text::strip(content, true, true)), false}, {" " + eos, true}});
    } else if (i == 0 && (given || !system.empty())) {
      const std::string_view said = text::strip(content, false, true);
      out.insert(out.end(), {{bos + "[INST] <<SYS>>\n", true}, {system, false}});
      out.insert(out.end(), {{said.empty() ? "\n<</SYS>>" : "\n<</SYS>>\n\n", true}, {std::string(said), false}});
      out.push_back({" [/INST]", true});
    } else {
      out.insert(out.end(), {{bos + "[INST] ", true}, {std::string(text::strip(content, true, true)), false}});
      out.push_back({" [/INST]", true});
    }
  }
}

void ChatFormat::llama3(std::span<const ChatMessage> messages, std::vector<Piece>& out) const {
  const auto header = [](const std::string& role) { return "<|start_header_id|>" + role + "<|end_header_id|>\n\n"; };
  const auto trimmed = [&](const std::string& content) {
    return trims_ ? std::string(text::strip(content, true, true)) : content;
  };
  if (!dated_preamble_.empty()) {
    const bool given = messages[0].role == "system";
    out.insert(out.end(),
               {{header("system") + dated_preamble_, true}, {given ? trimmed(messages[0].content) : "", false}});
    out.push_back({"<|eot_id|>", true});
    if (given) messages = messages.subspan(1);
  }
  for (const auto& [role, content] : messages) {
    if (role != "system" && role != "user" && role != "assistant") {
      refuse("llama-3 has the roles system, user and assistant; found \"" + role + "\"");
    }
    out.insert(out.end(), {{header(role), true}, {trimmed(content), false}, {"<|eot_id|>", true}});
  }
}

std::vector<ChatFormat::Piece> ChatFormat::pieces(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                                  bool generation_prompt) const {
  if (messages.empty()) refuse("no messages");
  std::vector<Piece> out;
  const std::string eos = text_of(tokenizer, tokenizer.info().eos);
  if (bos_) out.push_back({text_of(tokenizer, tokenizer.info().bos), true});
  switch (kind_) {
    case Kind::kChatMl:
      if (!default_system_.empty() && messages[0].role != "system") {
        out.push_back({"<|im_start|>system\n" + default_system_ + "<|im_end|>\n", true});
      }
      for (const auto& [role, content] : messages) {
        const std::string said(text::strip(content, trims_, trims_));
        out.insert(out.end(),
                   {{"<|im_start|>", true}, {role, false}, {"\n", true}, {said, false}, {"<|im_end|>\n", true}});
      }
      if (generation_prompt) out.push_back({"<|im_start|>assistant\n", true});
      break;
    case Kind::kLlama2:
      llama2(tokenizer, messages, out);
      break;
    case Kind::kLlama3:
      llama3(messages, out);
      if (generation_prompt || prompts_always_)
        out.push_back({"<|start_header_id|>assistant<|end_header_id|>\n\n", true});
      break;
    case Kind::kZephyr:
      for (const auto& [role, content] : messages) {
        if (role != "system" && role != "user" && role != "assistant") {
          refuse("zephyr has the roles system, user and assistant; found \"" + role + "\"");
        }
        out.insert(out.end(), {{"<|" + role + "|>\n", true}, {content, false}, {eos + "\n", true}});
      }
      if (generation_prompt) out.push_back({"<|assistant|>\n", true});
      break;
  }
  return out;
}

std::string ChatFormat::render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                               bool generation_prompt) const {
  std::string text;
  for (const Piece& piece : pieces(tokenizer, messages, generation_prompt)) text += piece.text;
  return text;
}

std::vector<int32_t> ChatFormat::encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                        bool generation_prompt, bool parse_special) const {
  const std::vector<Piece> rendered = pieces(tokenizer, messages, generation_prompt);
  std::vector<TextPart> parts;
  for (const Piece& piece : rendered) parts.push_back({piece.text, piece.format || parse_special});
  return tokenizer.encode_parts(parts, false);
}

std::vector<int32_t> ChatFormat::stop_tokens(const Tokenizer& tokenizer) const {
  std::vector<int32_t> ids = tokenizer.info().end_of_generation;
  const char* end = kind_ == Kind::kChatMl ? "<|im_end|>" : kind_ == Kind::kLlama3 ? "<|eot_id|>" : "";
  if (const auto id = tokenizer.find(end)) ids.push_back(*id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace tenon
