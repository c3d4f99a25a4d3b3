#include "chat_messages.h"

namespace tenon::serve {
namespace {

std::string read_content(const boost::json::value* value, const Fields& message) {
  if (value == nullptr) message.fail("content", "it is missing");
  if (value->is_string()) return std::string(value->get_string());
  if (!value->is_array()) message.fail("content", "it is not a text or a list of parts");
  std::string text;
  for (const boost::json::value& part : value->get_array()) {
    if (!part.is_object()) message.fail("content", "a part is not an object");
    Fields fields(part.get_object(), message.name("content") + ".");
    const std::string type = fields.text("type").value_or("");
    if (type != "text") fields.fail("type", "\"" + type + "\" is not supported; only \"text\" is", "unsupported_value");
    const auto piece = fields.text("text");
    if (!piece) fields.fail("text", "it is missing");
    fields.finish();
    text += *piece;
  }
  return text;
}

// Reads the calls of an assistant's message as chat templates want them: for most their arguments are an object, which
// OpenAI's interface writes as a text.
boost::json::array read_calls(const boost::json::value& value, const Fields& message, bool text_arguments) {
  if (!value.is_array()) message.fail("tool_calls", "it is not a list of calls");
  boost::json::array calls;
  for (const boost::json::value& one : value.get_array()) {
    const std::string at = message.name("tool_calls") + "[" + std::to_string(calls.size()) + "].";
    if (!one.is_object()) message.fail("tool_calls", "a call is not an object");
    Fields call(one.get_object(), at);
    const std::string id = call.text("id").value_or("");
    call.only("type", {"function"});
    call.accept({"index"});
    const boost::json::value* function = call.find("function");
    if (function == nullptr || !function->is_object()) call.fail("function", "it is not an object");
    Fields named(function->get_object(), at + "function.");
    const std::string name = named.text("name").value_or("");
    if (name.empty()) named.fail("name", "it is missing");
    boost::json::error_code error;
    const std::string text = named.text("arguments").value_or("{}");
    boost::json::value arguments = boost::json::parse(text.empty() ? "{}" : text, error);
    if (error || !arguments.is_object()) named.fail("arguments", "it is not the text of a JSON object");
    named.finish();
    call.finish();
    if (text_arguments) arguments = boost::json::value(boost::json::serialize(arguments));
    boost::json::object function_out = {{"name", name}, {"arguments", std::move(arguments)}};
    calls.push_back(boost::json::object{{"id", id}, {"type", "function"}, {"function", std::move(function_out)}});
  }
  return calls;
}

ChatMessage read_message(Fields& message, bool text_arguments) {
  ChatMessage out;
  boost::json::object more;
  out.role = message.text("role").value_or("");
  if (out.role == "developer") out.role = "system";
  if (out.role != "system" && out.role != "user" && out.role != "assistant" && out.role != "tool") {
    message.fail("role", "\"" + out.role + "\" is none of system, developer, user, assistant and tool",
                 "unsupported_value");
  }
  if (const auto name = message.text("name")) more["name"] = *name;
  if (out.role == "tool") {
    if (const auto id = message.text("tool_call_id")) more["tool_call_id"] = *id;
  }
  const boost::json::value* calls = out.role == "assistant" ? message.find("tool_calls") : nullptr;
  if (calls != nullptr) more["tool_calls"] = read_calls(*calls, message, text_arguments);
  const boost::json::value* content = message.find("content");
  // A message of calls alone has an empty text, since templates look into the content of every message.
  if (content != nullptr || calls == nullptr) out.content = read_content(content, message);
  if (calls == nullptr) message.refuse("tool_calls", "only messages of the assistant have calls");
  message.refuse("function_call", "its newer name is tool_calls");
  message.refuse("audio", "only text is supported");
  message.refuse("refusal", "only content is supported");
  message.finish();
  if (!more.empty()) out.more = boost::json::serialize(more);
  return out;
}

}  // namespace

std::vector<ChatMessage> parse_messages(Fields& fields, std::string_view field, bool text_arguments) {
  const boost::json::value* value = fields.find(field);
  if (value == nullptr) fields.fail(field, "it is missing");
  if (!value->is_array() || value->get_array().empty()) fields.fail(field, "it is not a list of messages");
  std::vector<ChatMessage> messages;
  for (const boost::json::value& one : value->get_array()) {
    const std::string at = std::string(field) + "[" + std::to_string(messages.size()) + "]";
    if (!one.is_object()) fields.fail(at, "it is not an object");
    Fields message(one.get_object(), at + ".");
    messages.push_back(read_message(message, text_arguments));
  }
  return messages;
}

}  // namespace tenon::serve
