// handle() is called for each request: it checks the key, finds the path, reads the body and submits
// to the engine. It returns a complete reply, or one whose pieces come as the engine generates.
// Every error becomes OpenAI's error object.
#include "api.h"

#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <exception>
#include <random>
#include <utility>

#include "chat_messages.h"
#include "embeddings.h"
#include "said_by.h"

namespace tenon::serve {
namespace {

namespace json = boost::json;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Ids begin with this, so that those of one run of the server are not those of another.
std::string random_prefix() {
  std::random_device random;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x", random(), random());
  return text.data();
}

// Takes as long for any two texts of one length, so that time tells nothing of a key.
bool same_key(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return different == 0;
}

HttpResponse json_response(const json::value& value) {
  HttpResponse response;
  response.body = json::serialize(value);
  return response;
}

HttpResponse text_response(std::string type, std::string text) {
  HttpResponse response;
  response.content_type = std::move(type);
  response.body = std::move(text);
  return response;
}

Reply reply(HttpResponse response) {
  Reply r;
  r.response = std::move(response);
  return r;
}

Abilities abilities_of(const Engine& engine, const Api::Options& options) {
  Abilities a;
  a.models = options.models;
  a.users = options.users;
  a.width = engine.pipeline().model().width;
  a.chain = SamplerChain::of(engine.config());
  a.vocab = static_cast<int32_t>(engine.pipeline().model().vocab);
  a.chat_problem = engine.chat_problem();
  a.grammar_problem = engine.grammar_problem();
  a.calls = call_form_of(engine.chat_template(), engine.tokenizer());
  return a;
}

// Returns the texts that `echo` puts before the answers.
std::vector<std::string> echoes(const CompletionRequest& request, const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  if (!request.echo) return texts;
  for (const Request& one : request.prompts) {
    texts.push_back(one.tokens.empty() ? one.prompt : decode(tokenizer, one.tokens, {.show_control = true}));
  }
  return texts;
}

}  // namespace

Api::Api(Engine& engine, Driver& driver, Metrics& metrics, Options options)
    : engine_(engine),
      driver_(driver),
      metrics_(metrics),
      options_(std::move(options)),
      abilities_(abilities_of(engine, options_)),
      started_(now()),
      id_prefix_(random_prefix()) {}

size_t Api::key_of(const std::string& authorization) const {
  const std::string scheme = "Bearer ";
  if (!authorization.starts_with(scheme)) return 0;
  const std::string given = authorization.substr(scheme.size());
  size_t known = 0;
  for (size_t i = 0; i < options_.api_keys.size(); ++i) {
    if (same_key(options_.api_keys[i], given)) known = i + 1;
  }
  return known;
}

void Api::check_key(const std::string& path, const std::string& authorization) const {
  if (options_.api_keys.empty() || path == "/" || path == "/health" || path == "/metrics") return;
  if (key_of(authorization) == 0) throw ApiError(401, "the API key is missing or unknown", "", "invalid_api_key");
}

void Api::name_client(const HttpRequest& http, std::vector<Request>& requests) const {
  const std::string key = std::to_string(key_of(http.authorization));
  for (Request& request : requests) request.client = key + "/" + request.client;
}

Reply Api::handle(const HttpRequest& request, const std::function<void()>& wake) {
  try {
    return route(request, wake);
  } catch (const ApiError& e) {
    return reply(error_response(e));
  } catch (const Error& e) {
    const unsigned status = e.code() == ErrorCode::kRequest ? 400 : 500;
    return reply(error_response(ApiError(status, said_by(e))));
  } catch (const std::exception& e) {
    return reply(error_response(ApiError(500, e.what())));
  }
}

Reply Api::route(const HttpRequest& request, const std::function<void()>& wake) {
  const std::string& path = request.path;
  const bool posts = path == "/v1/completions" || path == "/v1/chat/completions" || path == "/v1/embeddings" ||
                     path == "/tokenize" || path == "/detokenize";
  const bool gets = path == "/" || path == "/health" || path == "/metrics" || path == "/version" ||
                    path == "/v1/models" || path.starts_with("/v1/models/");
  if (!posts && !gets) throw ApiError(404, "there is nothing at " + path.substr(0, 100), "", "unknown_path");
  const bool head = request.method == "HEAD" && gets;
  if (!head && request.method != (posts ? "POST" : "GET")) {
    HttpResponse response = error_response(ApiError(405, path + " is asked by " + (posts ? "POST" : "GET")));
    response.headers.emplace_back("Allow", posts ? "POST" : "GET, HEAD");
    return reply(std::move(response));
  }
  if (path == "/v1/completions") return complete(request, false, wake);
  if (path == "/v1/chat/completions") return complete(request, true, wake);
  if (path == "/v1/embeddings") return embed(request, wake);
  if (path == "/tokenize") return reply(tokenize(request.body));
  if (path == "/detokenize") return reply(detokenize(request.body));
  if (path == "/") return reply(text_response("text/html; charset=utf-8", kPage));
  if (path == "/metrics") return reply(text_response("text/plain; version=0.0.4; charset=utf-8", metrics_.text()));
  if (path == "/version") return reply(json_response(json::object{{"version", options_.version}}));
  if (path == "/health") {
    if (driver_.closed()) throw ApiError(503, "the server is shutting down", "", "shutting_down");
    return reply(json_response(json::object{{"status", "ok"}}));
  }
  return reply(models(path));
}

// A wrong conversation is reported as the same fault of the same field here as where the engine finds it.
Thoughts Api::thoughts_of(const Request& request) const {
  try {
    return engine_.chat_template()->thoughts(engine_.tokenizer(), request.chat, request.chat_options);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kRequest) throw;
    throw ApiError(400, said_by(e), "messages");
  }
}

// A call that is demanded comes after a thought: one that the template's prompt has begun ends where the call begins.
void Api::end_thought(Request& request) const {
  std::string& begins = request.chat_options.answer_begins;
  const std::string call = std::exchange(begins, "");
  begins = (thoughts_of(request) == Thoughts::kBegun ? "\n</think>\n\n" : "") + call;
}

Reply Api::complete(const HttpRequest& http, bool chat, const std::function<void()>& wake) {
  CompletionRequest request = parse_completion(parse_object(http.body), chat, abilities_);
  name_client(http, request.prompts);
  if (!request.answers_begin.empty()) end_thought(request.prompts.front());
  if (request.continuous_usage) {
    for (const Request& one : request.prompts) request.prompt_sizes.push_back(engine_.prompt_tokens(one).size());
  }
  if (chat) request.thoughts = thoughts_of(request.prompts.front());
  for (Request& one : request.prompts) {
    one.shown = thought_tokens(request.thoughts, engine_.tokenizer());
    if (request.calls == CallFormat::kNone) continue;
    for (const auto& [mark, token] : abilities_.calls.tokens) one.shown.push_back(token);
  }
  AnswerHead head;
  head.id = std::string(chat ? "chatcmpl-" : "cmpl-") + id_prefix_ + "-" + std::to_string(++serial_);
  head.model = options_.models.front();
  head.fingerprint = "tenon-" + options_.version;
  head.created = now();
  Reply r;
  r.answer = std::make_unique<Answer>(request, std::move(head), echoes(request, engine_.tokenizer()),
                                      engine_.tokenizer(), engine_.pipeline().longest_sequence());
  r.generation = driver_.submit(request, wake);
  return r;
}

Reply Api::embed(const HttpRequest& http, const std::function<void()>& wake) {
  if (!engine_.config().embeddings) {
    throw ApiError(501, "this server makes no embeddings; pipeline.embeddings = true has it make them", "",
                   "not_supported");
  }
  EmbeddingRequest request = parse_embeddings(parse_object(http.body), abilities_);
  name_client(http, request.requests.prompts);
  Reply r;
  r.answer = std::make_unique<EmbeddingAnswer>(request, options_.models.front(), engine_.pipeline().longest_sequence());
  r.generation = driver_.submit(request.requests, wake);
  return r;
}

HttpResponse Api::models(const std::string& path) const {
  json::array list;
  for (const std::string& name : options_.models) {
    json::object model = {{"id", name},
                          {"object", "model"},
                          {"created", started_},
                          {"owned_by", "tenon"},
                          {"root", options_.models.front()},
                          {"max_model_len", engine_.pipeline().capacity()}};
    if (path == "/v1/models/" + name) return json_response(model);
    list.push_back(std::move(model));
  }
  if (path == "/v1/models") return json_response(json::object{{"object", "list"}, {"data", std::move(list)}});
  throw ApiError(404, "the model " + path.substr(11, 100) + " is not served here", "model", "model_not_found");
}

// This is vLLM's interface: a text, or a conversation as the model gets it.
HttpResponse Api::tokenize(const std::string& body) const {
  const json::object object = parse_object(body);
  Fields fields(object);
  check_model(fields, abilities_);
  const Tokenizer& tokenizer = engine_.tokenizer();
  std::vector<int32_t> ids;
  const auto prompt = fields.text("prompt");
  if (prompt) {
    EncodeOptions options;
    options.add_special = fields.boolean("add_special_tokens").value_or(true);
    options.parse_special = fields.boolean("parse_special").value_or(false);
    ids = tokenizer.encode(*prompt, options);
  } else if (fields.find("messages") == nullptr) {
    fields.fail("prompt", "it is missing, and so is messages");
  } else {
    if (engine_.chat_template() == nullptr) fields.fail("messages", engine_.chat_problem());
    ChatOptions options;
    options.generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
    const auto messages = parse_messages(fields, "messages", abilities_.calls.text_arguments);
    ids = engine_.chat_template()->encode(tokenizer, messages, options);
    fields.only("add_special_tokens", {false});
  }
  const bool strings = fields.boolean("return_token_strs").value_or(false);
  fields.finish();
  json::array list, names;
  for (const int32_t id : ids) {
    const std::array<int32_t, 1> one = {id};
    list.emplace_back(id);
    if (strings) names.push_back(json::string(decode(tokenizer, one, {.show_control = true, .continues = true})));
  }
  return json_response(json::object{{"count", ids.size()},
                                    {"max_model_len", engine_.pipeline().capacity()},
                                    {"tokens", std::move(list)},
                                    {"token_strs", strings ? json::value(std::move(names)) : json::value()}});
}

HttpResponse Api::detokenize(const std::string& body) const {
  const json::object object = parse_object(body);
  Fields fields(object);
  check_model(fields, abilities_);
  const json::value* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) fields.fail("tokens", "it is not a list of token ids");
  const auto ids = parse_tokens(tokens->get_array(), fields, "tokens", abilities_.vocab);
  fields.finish();
  return json_response(json::object{{"prompt", decode(engine_.tokenizer(), ids, {.show_control = true})}});
}

}  // namespace tenon::serve
