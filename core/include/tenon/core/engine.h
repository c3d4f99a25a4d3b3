// An engine is a pipeline with its model open: requests go in, tokens come out. docs/glossary.md has the words.
//
//   auto engine = tenon::Engine::open({.config = "pipeline.toml"});
//   tenon::Result r = engine->generate({.prompt = "Once upon a time", .max_new_tokens = 64,
//                                       .on_token = [](const tenon::Token& t) { std::cout << t.text; return true; }});
//
// or, for requests that come and go:
//   tenon::Ticket ticket = engine->submit({.prompt = "Once upon a time"});  // from any thread
//   while (engine->step()) {}                                               // one thread
//   tenon::Result r = *engine->take(ticket);
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tenon/core/chat_template.h"
#include "tenon/core/config.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/registry.h"
#include "tenon/core/saved_sequence.h"
#include "tenon/core/tokenizer.h"
#include "tenon/core/trace.h"
#include "tenon/core/weights.h"

namespace tenon {

struct Logprob {
  int32_t id = 0;
  float value = 0;  // the natural logarithm of its probability as the model has it, before the sampler
};

// This is one generated token as it comes.
struct Token {
  int32_t id = 0;                  // -1: there is no token, only text that had been held back when the sequence ended
  std::string_view text;           // the token completes this text, which may be empty; valid during the call
  std::optional<Logprob> logprob;  // it is there if the request asks for it
  std::span<const Logprob> top;    // these are the likeliest tokens in order; valid during the call
  uint32_t sequence = 0;           // the index of the request among those of generate()
};

enum class FinishReason { kLength, kEndOfText, kStopString, kCancelled, kCallback, kCapacity, kError };
const char* to_string(FinishReason reason);

struct Result {
  std::vector<int32_t> prompt_tokens, tokens;  // tokens were generated; the one that ended the text is left out
  uint32_t reused = 0;  // so many of the prompt's first tokens were had from another request, or a saved sequence
  std::string text;
  FinishReason finish = FinishReason::kLength;
  std::exception_ptr error;       // kError has an Error, or what a callback threw; text and tokens are those so far
  std::vector<Logprob> logprobs;  // there is one a token, if the request asks for them
  std::vector<float> embedding;   // (width), if the request asks for it
  // If the request asks for it, this is what the cache had of the sequence: prompt and text but for the newest
  // token. It is nullptr if the cache had nothing.
  std::shared_ptr<const SavedSequence> saved;
};

// A request's text has to match this. Only tokens that lead there are chosen, and the text ends where it is complete.
enum class GrammarForm { kJsonSchema, kRegex, kEbnf };
struct GrammarText {
  GrammarForm form = GrammarForm::kJsonSchema;
  std::string text;
  // kJsonSchema: objects have no properties, and arrays no items, that the schema does not describe.
  bool closed = true;
};
class Grammar;  // a GrammarText becomes one by Engine::compile

// Callbacks are called by the thread that steps. They may submit and cancel; step() and generate() throw there. What
// on_token or on_prompt throw ends the request with that error.
struct Request {
  std::string prompt = {};             // text, or
  std::vector<ChatMessage> chat = {};  // a conversation, or
  std::vector<int32_t> tokens = {};    // ids; the first that is not empty counts
  ChatOptions chat_options = {};       // tools and the like for the conversation
  bool parse_special = false;          // names of special tokens in text and messages mean those tokens
  uint32_t max_new_tokens = 256;
  bool ignore_end = false;                                        // the text goes on past end-of-text tokens
  std::vector<int32_t> shown = {};                                // the text has these control tokens, by their names
  std::vector<std::string> stop = {};                             // the text ends before the first of them appears
  std::optional<uint64_t> seed = {};                              // without one the pipeline's seed holds
  std::vector<std::pair<std::string, std::string>> sampler = {};  // overrides: {"temperature.value", "0.2"}
  int32_t priority = 0;                                           // a higher one goes first, if the scheduler heeds it
  std::string client = {};  // this client sent it; schedulers may take turns between clients
  // If it is not kNone, the request ends after its prompt, and its result has the prompt's embedding. The
  // configuration has pipeline.embeddings = true.
  Pooling embed = Pooling::kNone;
  std::shared_ptr<const Grammar> grammar = {};  // the text matches it; see Engine::compile
  // As far as the prompt and this saved sequence begin alike, the prompt is not computed, but for its last token.
  // Errors are a prompt with another first token, a sequence that another pipeline saved, and one that the cache
  // cannot cut where the prompt parts from it.
  std::shared_ptr<const SavedSequence> begin_from = {};
  // The result has what the cache then holds of the sequence; a cache that cannot give it makes the result an error,
  // with the text. With no new tokens the prompt is computed all the same.
  bool save = false;
  bool logprobs = false;
  uint32_t top_logprobs = 0;                        // so many of the likeliest tokens are reported with each; up to 64
  std::function<bool(const Token&)> on_token = {};  // false ends the request
  std::function<void(uint32_t done, uint32_t total)> on_prompt =
      {};  // it is told of the prompt's progress in tokens, after each step
  // It is called when the request has ended. If it is set, it alone gets a submitted request's result, else take()
  // does. An exception that it throws is logged.
  std::function<void(const Result&)> on_done = {};
  std::stop_token cancel = {};  // any thread may ask for the end; steps look at it before they begin
};

// Gives a vector the Euclidean length 1, unless it is all zeros.
void normalize(std::span<float> vector);

// Several requests of one call that share a seed draw from streams of their own: request `index` takes this
// seed. The first one keeps the seed as it is.
constexpr uint64_t stream_seed(uint64_t seed, uint32_t index) {
  return seed + index * uint64_t{0x9E3779B97F4A7C15};
}

// A ticket stands for a request that was submitted.
enum class Ticket : uint64_t {};

// This says what steps did, in seconds. After a generate() call it is about all steps of that call, for any request.
struct RunStats {
  double prompt_seconds = 0, decode_seconds = 0;  // decode steps are those without rows of prompts
  uint64_t prompt_tokens = 0, new_tokens = 0;     // the sums over all sequences
  uint64_t decode_tokens = 0;                     // so many were generated within decode_seconds
  uint64_t steps = 0, drafted = 0, accepted = 0;  // so many of the drafted tokens were accepted
  uint64_t preempted = 0, recomputed = 0;  // sequences that lost their slot; rows run again, also in prompt_tokens
  uint64_t rested = 0;  // a step left out a sequence that generates so many times, so that the others came sooner
  // The cache, or a saved sequence, was asked for so many tokens of prompts, and had
  // so many, which are not in prompt_tokens.
  uint64_t looked_up = 0, reused = 0;
  double decode_weight_bytes = 0, decode_kv_bytes = 0;  // decode steps read so much, by the programs' own account
};

struct EngineOptions {
  std::string config = {};            // a pipeline file, a model, or "" with the model in `set`
  std::vector<std::string> set = {};  // "kv_cache.capacity=2048"
  // This pipeline file comes between the installed default.toml and `config`;
  // default_config() counts it among the defaults.
  std::filesystem::path defaults = {};
  std::vector<std::filesystem::path> plugin_dirs = {};
  std::vector<std::filesystem::path> model_dirs = {};  // model families are looked for here first
  uint32_t sequences = 0;                              // with 0 there are as many as the scheduler holds
  // It is asked once, when the configuration is known, for the recorder of a trace, which outlives the engine; nullptr:
  // nothing is recorded.
  std::function<trace::Recorder*(const PipelineConfig&)> recorder = {};
  uint32_t score_rows = 0;                            // > 0: score() works, in pieces of that many rows
  bool load_sessions = false, save_sessions = false;  // see Request::begin_from and save
  bool all_rows = false;                              // see PipelineOptions
  bool grammars = false;  // requests may have grammars, if grammar_problem() says nothing else
  std::function<void(uint32_t level, const std::string&)> log = {};
  // Tests set it: how long steps take is read from it.
  std::function<std::chrono::steady_clock::time_point()> clock = &std::chrono::steady_clock::now;
};

// Thread: any may call submit(), cancel(), take(), compile() and totals(), and ask for a request's own cancel. One at
// a time may call the others: load(), step(), generate() and score() throw Error(kUsage) while another thread is in
// one of them, or from within a callback. Requests that have not ended when the engine is destroyed are dropped
// without a call. If it is destroyed while a thread is in one of those functions, that call throws Error(kUsage)
// after the step under way, and the destructor waits for it. If a callback of that thread destroys it, the destructor
// does not wait: what the engine holds goes when the call ends, and what was handed to open() has to live until then.
// No other function may be called any more.
class Engine {
 public:
  // Reads the configuration, finds the parts, opens the model and plans. No weights are loaded yet. Throws Error.
  static std::unique_ptr<Engine> open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const PipelineConfig& config() const;
  // This is what the configuration would be with nothing but the installed defaults.
  const PipelineConfig& default_config() const;
  const Registry& registry() const;
  const Weights& weights() const;
  const Tokenizer& tokenizer() const;
  // Returns the model's own template; nullptr if it has none or one that is refused.
  const ChatTemplate* chat_template() const;
  // Returns why there is no template; "" if there is one.
  const std::string& chat_problem() const;
  Pipeline& pipeline();
  const Pipeline& pipeline() const;

  // Loads the weights, once; generate() and score() do so if need be.
  void load(const LoadProgress& progress = {});

  // Says why no request can have a grammar; "" if one can.
  const std::string& grammar_problem() const;
  // Compiles a grammar, or returns the one that was compiled from that text before. It may outlive the
  // engine, but serves no other one. It may take its time, and the thread that steps should leave it to
  // others. Throws Error(kRequest) for a text that is wrong or asks for what the grammar component does not
  // do, and if there is a grammar_problem(). [any thread]
  std::shared_ptr<const Grammar> compile(const GrammarText& text);

  // Enqueues a request, which joins at the next step; returns at once. What is wrong with it is its result's error.
  Ticket submit(Request request);
  // Enqueues the end of a request, which ends with kCancelled before the next step. Does nothing if it has ended.
  void cancel(Ticket ticket);
  // Returns the result, once; nullopt while there is none. Throws Error(kUsage) for a ticket whose result was taken.
  std::optional<Result> take(Ticket ticket);
  // Takes in what was submitted and cancelled, runs one step, and gives results to those that ended. Says whether
  // anything is left to do. A request's error ends that request; an error of the step itself ends those that take part.
  // Loads if need be; throws Error for that, and Error(kUsage).
  bool step();
  // Adds up all steps since the engine was opened.
  RunStats totals() const;

  // Submits a request and takes steps until it has ended. Throws the request's error, such as Error(kRequest) with the
  // lengths for a prompt that does not fit; the engine stays usable after any error.
  Result generate(const Request& request, RunStats* stats = nullptr);
  // Does the same with several at once, as the scheduler has it. The results are in the order of the requests; one that
  // failed says so in its result and leaves the others alone. Requests without a seed draw from different streams, the
  // first from the pipeline's seed.
  std::vector<Result> generate(std::span<const Request> requests, RunStats* stats = nullptr);
  // Returns the tokens that a request's text or conversation becomes.
  std::vector<int32_t> prompt_tokens(const Request& request) const;

  // Runs a text by itself, and calls on_row with the logits, f32 (vocab), of each of the rows [first, tokens.size()).
  // Throws Error, kUsage while sequences run.
  void score(std::span<const int32_t> tokens, uint32_t first,
             const std::function<void(uint32_t row, std::span<const float> logits)>& on_row,
             const std::stop_token& cancel = {});

 private:
  Engine();
  struct Impl;
  std::shared_ptr<Impl> impl_;  // the call that is under way holds it, too
};

// Makes a registry with everything that is built in, the plugins in `plugin_dirs`, and then those of the
// standard search path. Throws Error(kPlugin) for one of plugin_dirs that is no folder; libraries that are
// refused are among the registry's notices.
std::unique_ptr<Registry> make_registry(const std::vector<std::filesystem::path>& plugin_dirs);

}  // namespace tenon
