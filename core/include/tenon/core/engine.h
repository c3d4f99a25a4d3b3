// The engine: a pipeline with its model open, requests in, tokens out.
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

#include "tenon/core/chat_format.h"
#include "tenon/core/config.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/registry.h"
#include "tenon/core/tokenizer.h"
#include "tenon/core/trace.h"
#include "tenon/core/weights.h"

namespace tenon {

struct Logprob {
  int32_t id = 0;
  float value = 0;  // natural logarithm, of the model's own distribution before the sampler
};

// This is one generated token as it comes.
struct Token {
  int32_t id = 0;                  // -1: no token, only text that had been held back when the sequence ended
  std::string_view text;           // what it completes; may be empty. Valid during the call
  std::optional<Logprob> logprob;  // if the request asks for them
  std::span<const Logprob> top;    // the likeliest tokens, falling; valid during the call
  uint32_t sequence = 0;           // index of the request in its batch
};

enum class FinishReason { kLength, kEndOfText, kStopString, kCancelled, kCallback, kCapacity, kError };
const char* to_string(FinishReason reason);

struct Result {
  std::vector<int32_t> prompt_tokens, tokens;  // tokens: generated, without the one that ended the text
  uint32_t reused = 0;                         // first tokens of the prompt that the cache had from another request
  std::string text;
  FinishReason finish = FinishReason::kLength;
  std::exception_ptr error;       // with kError: an Error, or what a callback threw; text and tokens are those so far
  std::vector<Logprob> logprobs;  // by token, if asked for
};

// Callbacks are called by the thread that steps. They may submit and cancel; step() and generate() throw there. What
// on_token or on_prompt throw ends the request with that error.
struct Request {
  std::string prompt = {};             // text, or
  std::vector<ChatMessage> chat = {};  // a conversation, or
  std::vector<int32_t> tokens = {};    // ids; the first that is not empty counts
  bool parse_special = false;          // names of special tokens in text and messages mean those tokens
  uint32_t max_new_tokens = 256;
  bool ignore_end = false;             // go on past end-of-text tokens
  std::vector<std::string> stop = {};  // ends before the first of them appears; not part of the text
  std::optional<uint64_t> seed = {};   // else the pipeline's
  std::vector<std::pair<std::string, std::string>> sampler = {};  // overrides: {"temperature.value", "0.2"}
  int32_t priority = 0;                                           // higher ones first, where the scheduler heeds it
  bool logprobs = false;
  uint32_t top_logprobs = 0;                        // likeliest tokens to report with each; up to 64
  std::function<bool(const Token&)> on_token = {};  // false ends the request
  std::function<void(uint32_t done, uint32_t total)> on_prompt =
      {};  // progress of the prompt in tokens, after each step
  // It has ended. A submitted request's result is given here alone if this is set, else to take(). What it throws is
  // logged.
  std::function<void(const Result&)> on_done = {};
  std::stop_token cancel = {};  // from any thread; looked at before each step
};

// A ticket stands for a request that was submitted.
enum class Ticket : uint64_t {};

// This says what steps did, in seconds. After a generate() call it is about all steps of that call, for any request.
struct RunStats {
  double prompt_seconds = 0, decode_seconds = 0;  // decode: steps without rows of prompts
  uint64_t prompt_tokens = 0, new_tokens = 0;     // over all sequences
  uint64_t decode_tokens = 0;                     // generated within decode_seconds
  uint64_t steps = 0, drafted = 0, accepted = 0;  // accepted: of the drafted
  uint64_t preempted = 0, recomputed = 0;         // sequences that lost their slot; rows run again, in prompt_tokens
  uint64_t looked_up = 0,
           reused = 0;  // tokens of prompts that the cache was asked for; those it had, not in prompt_tokens
  double decode_weight_bytes = 0, decode_kv_bytes = 0;  // read in decode steps, by the program's own account
};

struct EngineOptions {
  std::string config = {};            // a pipeline file, a model, or "" with the model in `set`
  std::vector<std::string> set = {};  // "kv_cache.capacity=2048"
  // A pipeline file between the installed default.toml and `config`; default_config() counts it among the defaults.
  std::filesystem::path defaults = {};
  std::vector<std::filesystem::path> plugin_dirs = {};
  uint32_t sequences = 0;  // 0: as many as the scheduler holds
  // Asked once for what to record with, when the configuration is known; nullptr for nothing. Outlives the engine.
  std::function<trace::Recorder*(const PipelineConfig&)> recorder = {};
  uint32_t score_rows = 0;  // > 0: score() works, in pieces of that many rows
  std::function<void(uint32_t level, const std::string&)> log = {};
};

// Thread: submit(), cancel(), take() and totals() from any, a request's own cancel too. The others by one thread at a
// time: load(), step(), generate() and score() throw Error(kUsage) while another thread is in one of them, or from
// within a callback. Requests that have not ended when it is destroyed are dropped without a call. Destroyed while a
// thread is in one of those functions, that call throws Error(kUsage) after the step under way; the destructor waits
// for it, unless it was called from within a callback of that thread: then what the engine holds goes when the call
// ends, and what was handed to open() has to live until then. No other function may be called any more.
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
  // The format of the model's own template; nullopt if it has none or one that is not known.
  const std::optional<ChatFormat>& chat_format() const;
  Pipeline& pipeline();
  const Pipeline& pipeline() const;

  // Loads the weights, once; generate() and score() do so if need be.
  void load(const LoadProgress& progress = {});

  // Enqueues a request, which joins at the next step; returns at once. What is wrong with it is its result's error.
  Ticket submit(Request request);
  // Enqueues the end of a request: it ends with kCancelled before the next step. Nothing if it has ended.
  void cancel(Ticket ticket);
  // The result, once; nullopt while there is none. Throws Error(kUsage) for a ticket whose result was taken already.
  std::optional<Result> take(Ticket ticket);
  // Takes in what was submitted and cancelled, runs one step, and gives results to those that ended. Says whether
  // anything is left to do. A request's error ends that request; an error of the step itself ends those that take part.
  // Loads if need be; throws Error for that, and Error(kUsage).
  bool step();
  // Adds up all steps since the engine was opened.
  RunStats totals() const;

  // submit() and step() together. Throws the request's error, Error(kRequest) for a prompt that does not fit, naming
  // lengths; the engine stays usable after any error.
  Result generate(const Request& request, RunStats* stats = nullptr);
  // Several at once, as the scheduler has it. Results in order; one that failed says so and leaves the others alone.
  // Those without a seed draw from different streams, the first from the pipeline's seed.
  std::vector<Result> generate(std::span<const Request> requests, RunStats* stats = nullptr);
  // The tokens that a request's text or conversation becomes.
  std::vector<int32_t> prompt_tokens(const Request& request) const;

  // Logits of rows [first, tokens.size()) of a text by itself: on_row(row, logits of vocab). Throws Error, kUsage while
  // sequences run.
  void score(std::span<const int32_t> tokens, uint32_t first,
             const std::function<void(uint32_t row, std::span<const float> logits)>& on_row,
             const std::stop_token& cancel = {});

 private:
  Engine();
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the call that is under way
};

// A registry with everything that is built in, and the plugins of the standard search path behind `plugin_dirs`. Throws
// Error(kPlugin) for one of these that is no folder; libraries that are refused are among the registry's notices.
std::unique_ptr<Registry> make_registry(const std::vector<std::filesystem::path>& plugin_dirs);

}  // namespace tenon
