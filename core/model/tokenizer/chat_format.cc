#include "tenon/core/chat_format.h"

#include <algorithm>
#include <array>
#include <cctype>

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

bool holds(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

// The template without white space and with one kind of quotes, so that its spelling matters less.
std::string condensed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!std::isspace(static_cast<unsigned char>(c))) out += c == '"' ? '\'' : c;
  }
  return out;
}

// What stands between two marks, with its escapes resolved; "" if a mark is missing.
std::string between(std::string_view text, std::string_view before, std::string_view behind) {
  const size_t start = text.find(before);
  if (start == std::string_view::npos) return {};
  std::string found;
  for (text.remove_prefix(start + before.size()); !text.starts_with(behind); text.remove_prefix(1)) {
    if (text.size() > 1 && text[0] == '\\') {
      text.remove_prefix(1);
      found += text[0] == 'n' ? '\n' : text[0];
    } else if (!text.empty()) {
      found += text[0];
    } else {
      return {};
    }
  }
  return found;
}

// A system message in the template's own words: text and not an expression.
std::string stated_system(std::string_view chat_template) {
  constexpr std::string_view kStart = "<|im_start|>system";
  for (size_t at = 0; (at = chat_template.find(kStart, at)) != std::string_view::npos; at += kStart.size()) {
    std::string message = between(chat_template.substr(at), kStart, "<|im_end|>");
    if (message.size() > 1 && message[0] == '\n' && message.find_first_of("{}'\"") == std::string::npos) {
      return message.substr(1);
    }
  }
  return {};
}

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
  const std::string plain = condensed(chat_template);
  std::string_view name;
  if (holds(plain, "<|im_start|>") && !holds(plain, "<|im_sep|>")) {
    name = "chatml";
  } else if (holds(plain, "<|start_header_id|>")) {
    name = "llama-3";
  } else if (holds(plain, "bos_token+'[INST]'+content.strip()+'[/INST]'") && holds(plain, "<<SYS>>")) {
    name = "llama-2";
  } else if (holds(plain, "<|user|>") &&
             (holds(plain, "message['content']+eos_token") || holds(plain, "['content']+'</s>"))) {
    name = "zephyr";
  } else {
    throw Error(ErrorCode::kModel, (chat_template.empty() ? "the model has no chat template"
                                                          : "the model's chat template is of no known format") +
                                       std::string("; known: ") + known_formats());
  }
  ChatFormat format = from_name(name);
  format.trims_ = holds(plain, "message['content']|trim") || holds(plain, "message.content|trim");
  if (format.kind_ == Kind::kChatMl) {
    format.bos_ = holds(plain, "{{bos_token") || holds(plain, "{{-bos_token");
    format.default_system_ = stated_system(chat_template);
  }
  if (format.kind_ == Kind::kLlama2) format.default_system_ = between(chat_template, "set system_message = '", "'");
  const std::string date = between(chat_template, "date_string = \"", "\"");
  if (const std::string cut = between(chat_template, "Cutting Knowledge Date: ", "\""); !cut.empty() && !date.empty()) {
    format.dated_preamble_ = "Cutting Knowledge Date: " + cut + "Today Date: " + date + "\n\n";
  }
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
      refuse("llama-2 needs user and assistant in turn behind an optional system message; message " +
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
      if (generation_prompt) out.push_back({"<|start_header_id|>assistant<|end_header_id|>\n\n", true});
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
                                        bool generation_prompt) const {
  const std::vector<Piece> rendered = pieces(tokenizer, messages, generation_prompt);
  std::vector<TextPart> parts;
  for (const Piece& piece : rendered) parts.push_back({piece.text, piece.format});
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
