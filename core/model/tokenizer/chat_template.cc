// A template is given what transformers gives it: messages without fields that are null, their reasoning under
// the names that templates read it by, and the special tokens by name. All texts of the conversation are the user's but
// well-known roles: templates make special tokens of roles ('<|' + message.role + '|>').
#include "tenon/core/chat_template.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <ctime>
#include <filesystem>
#include <optional>

#include "../jinja/json_value.h"
#include "../jinja/template.h"
#include "end_tokens.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

using jinja::Dict;
using jinja::Origin;
using jinja::Text;
using jinja::Value;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kRequest, "chat: " + message);
}

Text own(std::string_view text) {
  return {text, Origin::kTemplate};
}

enum class Json : uint8_t { kList, kObject };
Value parse(const std::string& text, Json wanted, const std::string& what) {
  boost::json::parse_options options;
  options.max_depth = 64;
  boost::json::error_code error;
  const boost::json::value json = boost::json::parse(text, error, {}, options);
  if (error) refuse(what + " is no JSON: " + error.message());
  if (wanted == Json::kList && !json.is_array()) refuse(what + " has to be a JSON list");
  if (wanted == Json::kObject && !json.is_object()) refuse(what + " has to be a JSON object");
  try {
    return jinja::from_json(json);
  } catch (const jinja::Failure& failure) {
    refuse(what + ": " + failure.what());
  }
}

Text role_of(const std::string& role) {
  constexpr std::string_view kKnown[] = {"system", "developer", "user", "assistant", "tool", "function", "ipython"};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), role) != std::end(kKnown);
  return {role, known ? Origin::kTemplate : Origin::kUser};
}

// The first of the names under which a message's reasoning goes is the one that most templates read.
Value with_reasoning(const Dict& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* reasoning = message.find(std::string_view(name));
    if (reasoning == nullptr) continue;
    auto result = std::make_shared<Dict>();
    result->set(own("thinking"), *reasoning);
    for (const auto& [key, value] : message.entries) result->set(key, value);
    result->set(own("reasoning_content"), *reasoning);
    return std::shared_ptr<const Dict>(std::move(result));
  }
  return std::make_shared<const Dict>(message);
}

Value value_of(const ChatMessage& message, size_t number) {
  Dict fields;
  fields.set(own("role"), role_of(message.role));
  const Value more = message.more.empty() ? Value(std::make_shared<const Dict>())
                                          : parse(message.more, Json::kObject,
                                                  "the further fields of message " + std::to_string(number));
  if (more.as_dict()->find(std::string_view("content")) == nullptr)
    fields.set(own("content"), Text(message.content, Origin::kUser));
  for (const auto& [key, value] : more.as_dict()->entries) {
    if (key.as_text()->bytes() != "role" && !value.is_none()) fields.set(key, value);
  }
  return with_reasoning(fields);
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm result{};
  localtime_r(&now, &result);
  return result;
}

}  // namespace

struct ChatTemplate::Impl {
  struct Named {
    Named(const std::string& a_source, std::string name) : source(a_source), jinja(a_source, std::move(name)) {}
    std::string source;
    jinja::Template jinja;
  };

  const Named& chosen(const ChatOptions& options) const {
    if (with_tools && !options.tools.empty()) return *with_tools;
    if (!plain) refuse("the model has a chat template for conversations with tools alone");
    return *plain;
  }

  std::optional<Named> plain, with_tools;
};

namespace {

// Returns what errors call a template: its file, or what it is in it. The folder is not said, since errors of a request go
// to who sent it.
std::string name_of(const std::string& what, const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.empty() ? what : file.extension() == ".jinja" ? name : what + " of " + name;
}

}  // namespace

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate::ChatTemplate(const TokenizerInfo& info) {
  if (info.chat_template.empty() && info.tool_chat_template.empty()) {
    throw Error(ErrorCode::kModel, "the model has no chat template");
  }
  auto impl = std::make_unique<Impl>();
  if (!info.chat_template.empty()) {
    impl->plain.emplace(info.chat_template, name_of("chat template", info.chat_template_file));
  }
  if (!info.tool_chat_template.empty()) {
    impl->with_tools.emplace(info.tool_chat_template, name_of("chat template tool_use", info.tool_chat_template_file));
  }
  impl_ = std::move(impl);
}

namespace {

Dict variables_of(const Tokenizer& tokenizer, std::span<const ChatMessage> messages, const ChatOptions& options) {
  if (messages.empty()) refuse("no messages");
  jinja::Values list;
  for (const ChatMessage& message : messages) list.push_back(value_of(message, list.size()));
  Dict variables;
  const TokenizerInfo& info = tokenizer.info();
  if (info.bos) variables.set(own("bos_token"), own(tokenizer.bytes(*info.bos)));
  if (info.eos) variables.set(own("eos_token"), own(tokenizer.bytes(*info.eos)));
  for (const auto& [name, text] : info.special_tokens) variables.set(own(name), own(text));
  if (!options.variables.empty()) {
    const Value given = parse(options.variables, Json::kObject, "variables");
    for (const auto& [name, value] : given.as_dict()->entries) variables.set(name, value);
  }
  variables.set(own("messages"), jinja::make_list(std::move(list)));
  variables.set(own("tools"), options.tools.empty() ? Value() : parse(options.tools, Json::kList, "tools"));
  variables.set(own("documents"),
                options.documents.empty() ? Value() : parse(options.documents, Json::kList, "documents"));
  variables.set(own("add_generation_prompt"), options.generation_prompt);
  return variables;
}

Text rendered(const jinja::Template& by, const Dict& variables) {
  jinja::RenderOptions options;
  options.now = local_time();
  return by.render(variables, options);
}

}  // namespace

std::string ChatTemplate::render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                 const ChatOptions& options) const {
  return rendered(impl_->chosen(options).jinja, variables_of(tokenizer, messages, options)).bytes() +
         options.answer_begins;
}

std::vector<int32_t> ChatTemplate::encode(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                          const ChatOptions& options, bool parse_special) const {
  const Text text = rendered(impl_->chosen(options).jinja, variables_of(tokenizer, messages, options));
  std::vector<TextPart> parts;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const std::string_view piece = std::string_view(text.bytes()).substr(begin, run.end - begin);
    parts.push_back({piece, run.origin == Origin::kTemplate || parse_special});
    begin = run.end;
  }
  if (!options.answer_begins.empty()) parts.push_back({options.answer_begins, true});
  return tokenizer.encode_parts(parts, false);
}

Thoughts ChatTemplate::thoughts(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                const ChatOptions& options) const {
  const std::string& source = impl_->chosen(options).source;
  const auto knows = [&](const char* mark) { return source.find(mark) != std::string::npos; };
  if (knows("<|channel|>") && knows("<|message|>")) return Thoughts::kChannels;
  if (!knows("</think>")) return Thoughts::kNone;
  const std::string prompt = render(tokenizer, messages, options);
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  const bool begun = last != std::string::npos && std::string_view(prompt).substr(0, last + 1).ends_with("<think>");
  return begun ? Thoughts::kBegun : Thoughts::kMayBe;
}

std::vector<int32_t> ChatTemplate::stop_tokens(const Tokenizer& tokenizer) const {
  std::vector<int32_t> ids = tokenizer.info().end_of_generation;
  for (const auto* one : {&impl_->plain, &impl_->with_tools}) {
    if (!*one) continue;
    // Templates need not have <|return|>, which decides what <|end|> ends.
    const auto known = text::known_end_tokens([&](std::string_view name) {
      const bool named = name == "<|return|>" || (*one)->source.find(name) != std::string::npos;
      return named ? tokenizer.find(name) : std::nullopt;
    });
    ids.insert(ids.end(), known.begin(), known.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace tenon
