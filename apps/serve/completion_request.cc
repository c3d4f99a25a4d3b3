// Every field of OpenAI's two interfaces is either read, or known to change nothing of the answer, or refused by name;
// so are those that vLLM adds. docs/serving.md lists them.
#include "completion_request.h"

#include <algorithm>
#include <limits>

#include "chat_messages.h"
#include "forced_call.h"

namespace tenon::serve {
namespace {

constexpr size_t kMostStops = 16, kMostStopBytes = 1024;
constexpr uint32_t kMostTop = 20;        // a conversation has so many top_logprobs at most
constexpr uint32_t kMostTopOfText = 64;  // a text has so many logprobs at most: as many as the engine reports
constexpr uint32_t kTextTokens = 16;     // a completion that states none has so many new tokens

void read_stop(Fields& fields, std::vector<std::string>& stop) {
  const boost::json::value* value = fields.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const boost::json::value& text) {
    if (!text.is_string()) fields.fail("stop", "it is not a text or a list of texts");
    if (text.get_string().empty()) return;  // never appears
    if (text.get_string().size() > kMostStopBytes) {
      fields.fail("stop", "a text has more than " + std::to_string(kMostStopBytes) + " bytes");
    }
    stop.emplace_back(text.get_string());
  };
  if (!value->is_array()) {
    add(*value);
    return;
  }
  for (const boost::json::value& text : value->get_array()) add(text);
  if (stop.size() > kMostStops) fields.fail("stop", "it has more than " + std::to_string(kMostStops) + " texts");
}

void read_max_tokens(Fields& fields, bool chat, Request& request) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  // A text may be asked for with none: `echo` then gives the prompt back.
  const auto tokens = fields.integer("max_tokens", chat ? 1 : 0, kMost);
  const auto newer = chat ? fields.integer("max_completion_tokens", 1, kMost) : std::nullopt;
  if (tokens && newer && *tokens != *newer) {
    fields.fail("max_completion_tokens", "max_tokens, its older name, says something else");
  }
  const int64_t absent = chat ? kMost : kTextTokens;  // a conversation goes on until the cache is full
  request.max_new_tokens = static_cast<uint32_t>(newer ? *newer : tokens.value_or(absent));
}

void read_logprobs(Fields& fields, CompletionRequest& out, Request& request) {
  std::optional<int64_t> top;
  if (out.chat) {
    out.logprobs = fields.boolean("logprobs").value_or(false);
    top = fields.integer("top_logprobs", 0, kMostTop);
    if (top.value_or(0) > 0 && !out.logprobs) fields.fail("top_logprobs", "it needs logprobs = true");
  } else {
    top = fields.integer("logprobs", 0, kMostTopOfText);
    out.logprobs = top.has_value();
  }
  request.logprobs = out.logprobs;
  request.top_logprobs = static_cast<uint32_t>(top.value_or(0));
}

void read_stream(Fields& fields, CompletionRequest& out) {
  out.stream = fields.boolean("stream").value_or(false);
  const boost::json::value* value = fields.find("stream_options");
  if (value == nullptr) return;
  if (!out.stream) fields.fail("stream_options", "it needs stream = true");
  if (!value->is_object()) fields.fail("stream_options", "it is not an object");
  Fields options(value->get_object(), "stream_options.");
  out.include_usage = options.boolean("include_usage").value_or(false);
  out.continuous_usage = options.boolean("continuous_usage_stats").value_or(false);
  options.accept({"include_obfuscation"});
  options.finish();
}

void read_grammar(Fields& fields, const Abilities& abilities, const Request& request, CompletionRequest& out) {
  out.grammar = read_grammar_fields(fields, abilities.grammar_problem);
  fields.only("guided_decoding_backend", {"auto", "xgrammar"});
  if (out.grammar && request.ignore_end) {
    fields.fail("ignore_eos",
                "a text that has to be of a form cannot go on past its end; leave out " + out.grammar->field);
  }
}

// Returns the function of an object of type "function", which has a name. The object stands at `at`.
Fields function_fields(Fields& object, const std::string& at) {
  if (object.text("type").value_or("") != "function") object.fail("type", "it is not \"function\"");
  const boost::json::value* function = object.find("function");
  if (function == nullptr || !function->is_object()) object.fail("function", "it is not an object");
  Fields named(function->get_object(), at + ".function.");
  if (named.text("name").value_or("").empty()) named.fail("name", "it is missing");
  return named;
}

// A tool is an object with the type "function" and a function that has a name;
// the chat template reads what else it says.
void check_tools(Fields& fields, const boost::json::array& tools) {
  constexpr size_t kMostTools = 128;
  if (tools.size() > kMostTools) fields.fail("tools", "it has more than " + std::to_string(kMostTools) + " tools");
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string at = "tools[" + std::to_string(i) + "]";
    if (!tools[i].is_object()) fields.fail(at, "it is not an object");
    Fields tool(tools[i].get_object(), at + ".");
    function_fields(tool, at);
  }
}

// tool_choice demands a call, or that there is none, or neither.
struct ToolChoice {
  bool forced = false, none = false;
  std::string name;  // a forced call is of the function that is called so; "" = any may be called
};
ToolChoice read_tool_choice(Fields& fields) {
  const boost::json::value* value = fields.find("tool_choice");
  if (value == nullptr || !value->is_object()) {
    fields.only("tool_choice", {"none", "auto", "required"});
    const std::string text = fields.text("tool_choice").value_or("auto");
    return {text == "required", text == "none", ""};
  }
  Fields choice(value->get_object(), "tool_choice.");
  Fields function = function_fields(choice, "tool_choice");
  function.finish();
  choice.finish();
  return {true, false, *function.text("name")};
}

// Returns the tools that a forced call may be of.
boost::json::array tools_of(const Fields& fields, const boost::json::array& tools, const ToolChoice& choice) {
  boost::json::array wanted;
  for (const boost::json::value& tool : tools) {
    if (choice.name.empty() || tool.at("function").at("name").get_string() == choice.name) wanted.push_back(tool);
  }
  if (wanted.empty()) fields.fail("tool_choice", "no tool is called \"" + choice.name + "\"");
  return wanted;
}

// The answer is a call: its prompt ends with the beginning of one, and a grammar has the rest.
void force(const Fields& fields, const Abilities& abilities, const ForcedCall& call, CompletionRequest& out,
           Request& request) {
  if (!call.problem.empty()) fields.fail("tools", call.problem, "unsupported_value");
  if (!abilities.grammar_problem.empty()) {
    fields.fail("tool_choice", abilities.grammar_problem, "unsupported_parameter");
  }
  if (out.grammar) {
    fields.fail("tool_choice", out.grammar->field + " is there already; an answer is a call or of that form");
  }
  if (request.ignore_end) fields.fail("ignore_eos", "a call cannot go on past its end; leave out tool_choice");
  out.grammar = StatedGrammar{call.grammar, "tools"};
  out.answers_begin = request.chat_options.answer_begins = call.begins;
}

void read_tools(Fields& fields, const Abilities& abilities, CompletionRequest& out, Request& request) {
  fields.refuse("functions", "its newer name is tools");
  fields.refuse("function_call", "its newer name is tool_choice");
  const bool several = fields.boolean("parallel_tool_calls").value_or(true);
  const ToolChoice choice = read_tool_choice(fields);
  const boost::json::value* tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array()) fields.fail("tools", "it is not a list of tools");
  if (tools == nullptr || tools->get_array().empty()) {
    if (choice.forced) fields.fail("tool_choice", "there are no tools to call");
    return;
  }
  check_tools(fields, tools->get_array());
  if (choice.none) return;
  const CallForm& form = abilities.calls;
  if (form.format == CallFormat::kNone) {
    fields.fail("tools",
                "the model's chat template writes no calls of tools in a form that is known here: "
                "<tool_call>{\"name\", \"arguments\"}</tool_call>, [TOOL_CALLS][{\"name\", \"arguments\"}], "
                "{\"name\", \"parameters\"}, <|channel|>commentary to=functions., <tool_call><function=, "
                "<tool_call>NAME<arg_key> or <｜tool▁calls▁begin｜>",
                "unsupported_parameter");
  }
  request.chat_options.tools = boost::json::serialize(*tools);
  out.calls = form.format;
  out.parameter_types = std::make_shared<const ParameterTypes>(tools->get_array());
  if (!choice.forced) return;
  const boost::json::array wanted = tools_of(fields, tools->get_array(), choice);
  force(fields, abilities, force_call(form, wanted, several && choice.name.empty()), out, request);
}

// Reads the fields that both interfaces share and that nothing else reads or refuses.
void read_others(Fields& fields, uint32_t n) {
  fields.accept({"metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
                 "prediction", "request_id"});
  fields.only("best_of", {n});
  // This field is vLLM's.
  fields.only("use_beam_search", {false});
  fields.only("length_penalty", {1});
  fields.only("min_tokens", {0});
  fields.only("stop_token_ids", {boost::json::value(boost::json::array{})});
  fields.only("include_stop_str_in_output", {false});
  fields.only("skip_special_tokens", {true});
  fields.only("spaces_between_special_tokens", {true});
  fields.only("add_special_tokens", {true});
  fields.only("return_tokens_as_token_ids", {false});
}

Request read_request(Fields& fields, CompletionRequest& out, const Abilities& abilities) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  Request request;
  check_model(fields, abilities);
  read_stream(fields, out);
  out.n = static_cast<uint32_t>(fields.integer("n", 1, abilities.most_choices).value_or(1));
  read_max_tokens(fields, out.chat, request);
  read_stop(fields, request.stop);
  read_logprobs(fields, out, request);
  if (const auto seed = fields.integer("seed", kLeast, kMost)) out.seed = static_cast<uint64_t>(*seed);
  request.ignore_end = fields.boolean("ignore_eos").value_or(false);
  request.parse_special = fields.boolean("parse_special").value_or(false);
  read_standing(fields, abilities, request);
  request.sampler = read_sampler_fields(fields, abilities.chain, abilities.vocab);
  read_grammar(fields, abilities, request, out);
  read_others(fields, out.n);
  return request;
}

// The prompt is a text, token ids, or a list of either.
void read_prompts(Fields& fields, const Abilities& abilities, const Request& request, CompletionRequest& out) {
  out.prompts = parse_inputs(fields, "prompt", abilities.vocab, request);
  if (out.choices() > abilities.most_choices) {
    fields.fail("prompt", std::to_string(out.prompts.size()) + " prompts with " + std::to_string(out.n) +
                              " answers each are more than " + std::to_string(abilities.most_choices));
  }
}

}  // namespace

void check_model(Fields& fields, const Abilities& abilities) {
  const auto model = fields.text("model");
  if (!model || std::find(abilities.models.begin(), abilities.models.end(), *model) != abilities.models.end()) return;
  std::string list;
  for (const std::string& name : abilities.models) list += (list.empty() ? "" : ", ") + name;
  throw ApiError(404, "the model \"" + *model + "\" is not served here; " + list + " is", "model", "model_not_found");
}

std::vector<int32_t> parse_tokens(const boost::json::array& ids, const Fields& fields, std::string_view field,
                                  int32_t vocab) {
  std::vector<int32_t> tokens;
  tokens.reserve(ids.size());
  for (const boost::json::value& id : ids) {
    const int64_t* number = id.if_int64();
    if (number == nullptr || *number < 0 || *number >= vocab) {
      fields.fail(field,
                  "it holds something that is not a token of the vocabulary (0 to " + std::to_string(vocab - 1) + ")");
    }
    tokens.push_back(static_cast<int32_t>(*number));
  }
  return tokens;
}

void read_standing(Fields& fields, const Abilities& abilities, Request& request) {
  request.priority = static_cast<int32_t>(-fields.integer("priority", -1000, 1000).value_or(0));  // vLLM: lower first
  if (abilities.users) {
    request.client = fields.text("user").value_or("");
  } else {
    fields.accept({"user"});
  }
}

std::vector<Request> parse_inputs(Fields& fields, std::string_view field, int32_t vocab, const Request& request) {
  const boost::json::value* value = fields.find(field);
  if (value == nullptr) fields.fail(field, "it is missing");
  std::vector<Request> inputs;
  const auto add_text = [&](const boost::json::string& text) {
    inputs.push_back(request);
    inputs.back().prompt = std::string(text);
  };
  const auto add_tokens = [&](const boost::json::array& ids) {
    if (ids.empty()) fields.fail(field, "a list of tokens is empty");
    inputs.push_back(request);
    inputs.back().tokens = parse_tokens(ids, fields, field, vocab);
  };
  const boost::json::array* list = value->if_array();
  if (value->is_string()) {
    add_text(value->get_string());
  } else if (list == nullptr || list->empty()) {
    fields.fail(field, "it is not a text, a list of token ids, or a list of either");
  } else if (list->front().is_number()) {
    add_tokens(*list);
  } else {
    for (const boost::json::value& one : *list) {
      if (one.is_string()) {
        add_text(one.get_string());
      } else if (one.is_array()) {
        add_tokens(one.get_array());
      } else {
        fields.fail(field, "a list holds texts or lists of token ids");
      }
    }
  }
  return inputs;
}

CompletionRequest parse_completion(const boost::json::object& body, bool chat, const Abilities& abilities) {
  CompletionRequest out;
  out.chat = chat;
  Fields fields(body);
  Request request = read_request(fields, out, abilities);
  if (chat) {
    request.chat = parse_messages(fields, "messages", abilities.calls.text_arguments);
    if (!abilities.chat_problem.empty())
      fields.fail("messages", abilities.chat_problem + "; /v1/completions continues plain text");
    fields.only("modalities", {boost::json::value(boost::json::array{"text"})});
    fields.only("add_generation_prompt", {true});
    fields.only("continue_final_message", {false});
    fields.only("echo", {false});
    if (out.grammar) out.answers_begin = request.chat_options.answer_begins = final_begin(abilities.calls.format);
    read_tools(fields, abilities, out, request);
    out.hides_thoughts = !fields.boolean("include_reasoning").value_or(true);
    if (const boost::json::value* variables = fields.find("chat_template_kwargs")) {
      if (!variables->is_object()) fields.fail("chat_template_kwargs", "it is not an object");
      request.chat_options.variables = boost::json::serialize(*variables);
    }
    out.prompts.push_back(std::move(request));
  } else {
    read_prompts(fields, abilities, request, out);
    out.echo = fields.boolean("echo").value_or(false);
    if (out.echo && out.logprobs) {
      fields.fail("echo", "log probabilities of the prompt are not supported; leave out echo or logprobs",
                  "unsupported_parameter");
    }
    fields.only("suffix", {""});
  }
  fields.finish();
  return out;
}

}  // namespace tenon::serve
