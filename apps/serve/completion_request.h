// The body of /v1/completions or /v1/chat/completions becomes requests of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fields.h"
#include "grammar_fields.h"
#include "sampler_fields.h"
#include "tenon/core/engine.h"
#include "tool_calls.h"

namespace tenon::serve {

// A body is read by what the server can do.
struct Abilities {
  std::vector<std::string> models;  // the names that it goes by; at least one
  SamplerChain chain;
  int32_t vocab = 0;
  std::string chat_problem;     // why the model cannot chat; "" = it can
  std::string grammar_problem;  // why no request can have a grammar; "" if one can
  CallForm calls;               // the model calls tools in this form
  uint32_t most_choices = 128;  // answers of one HTTP request
  uint32_t most_inputs = 2048;  // one HTTP request may embed so many texts
  uint32_t width = 0;           // numbers of an embedding
  bool users = false;           // the field `user` says who the client is, among those of one key
};

struct CompletionRequest {
  bool chat = false;
  bool stream = false, include_usage = false;
  bool continuous_usage = false;         // every chunk has the usage so far
  bool echo = false;                     // completions: the prompt stands before the text
  bool logprobs = false;                 // the answer has each token's, and those of the likeliest ones
  CallFormat calls = CallFormat::kNone;  // the form of the calls that are looked for in the answers
  std::shared_ptr<const ParameterTypes> parameter_types;  // the tools have these, if calls are looked for
  std::string answers_begin;                              // the prompts end so; whoever reads the answers reads it too
  bool hides_thoughts = false;                            // what the model thinks before it answers is left out
  Thoughts thoughts = Thoughts::kNone;  // the answers may have these; whoever has the chat template fills it
  uint32_t n = 1;
  // Each has its prompt, conversation or tokens, and is answered n times. What is the same for all is in each.
  std::vector<Request> prompts;
  std::vector<uint64_t> prompt_sizes;    // in tokens, by prompt; with continuous_usage whoever has a tokenizer fills it
  std::optional<StatedGrammar> grammar;  // every answer matches it; whoever submits the requests compiles it for them
  std::optional<uint64_t> seed;          // the first answer to a prompt draws by it; requests[i].seed is not set

  size_t choices() const { return prompts.size() * n; }
};

// Throws ApiError: 400 that names a field, 404 for a model that is not served.
CompletionRequest parse_completion(const boost::json::object& body, bool chat, const Abilities& abilities);

// Throws ApiError(404) unless the body names no model, or one that is served.
void check_model(Fields& fields, const Abilities& abilities);
// Reads where a request stands among others: its priority and its client.
void read_standing(Fields& fields, const Abilities& abilities, Request& request);
// Returns a copy of the request for each prompt of a field that has a text, token ids, or a list of either.
std::vector<Request> parse_inputs(Fields& fields, std::string_view field, int32_t vocab, const Request& request);
// Reads ids that are in the vocabulary. `what` is their name in errors.
std::vector<int32_t> parse_tokens(const boost::json::array& ids, const Fields& fields, std::string_view field,
                                  int32_t vocab);

}  // namespace tenon::serve
