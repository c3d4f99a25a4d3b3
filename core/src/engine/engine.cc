// This has the public functions of an engine. submit() and cancel() only leave tickets, so any thread may call them;
// whatever steps or loads holds a SteppingCall, which refuses a second thread and calls from within a callback, and
// keeps the engine alive until the call returns.
#include "tenon/core/engine.h"

#include <algorithm>

#include "../pipeline/read_text.h"
#include "engine_impl.h"
#include "tenon/core/error.h"

namespace tenon {

void Engine::Impl::check_prompt(const std::vector<int32_t>& tokens) const {
  if (tokens.empty()) {
    throw Error(ErrorCode::kRequest, "the prompt is empty, and the model has no token that begins a text");
  }
  if (tokens.size() >= pipeline->longest_sequence()) {
    throw Error(ErrorCode::kRequest,
                "the prompt has " + std::to_string(tokens.size()) + " tokens; the cache holds " +
                    std::to_string(pipeline->capacity()) +
                    " with at least one of them new; raise kv_cache.capacity or shorten the prompt");
  }
  const uint32_t vocab = pipeline->model().vocab;
  for (const int32_t id : tokens) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab) {
      throw Error(ErrorCode::kRequest,
                  "token " + std::to_string(id) + " is not of the vocabulary (0 to " + std::to_string(vocab - 1) + ")");
    }
  }
}

namespace {

RunStats operator-(const RunStats& a, const RunStats& b) {
  return {.prompt_seconds = a.prompt_seconds - b.prompt_seconds,
          .decode_seconds = a.decode_seconds - b.decode_seconds,
          .prompt_tokens = a.prompt_tokens - b.prompt_tokens,
          .new_tokens = a.new_tokens - b.new_tokens,
          .decode_tokens = a.decode_tokens - b.decode_tokens,
          .steps = a.steps - b.steps,
          .drafted = a.drafted - b.drafted,
          .accepted = a.accepted - b.accepted,
          .preempted = a.preempted - b.preempted,
          .recomputed = a.recomputed - b.recomputed,
          .rested = a.rested - b.rested,
          .looked_up = a.looked_up - b.looked_up,
          .reused = a.reused - b.reused,
          .decode_weight_bytes = a.decode_weight_bytes - b.decode_weight_bytes,
          .decode_kv_bytes = a.decode_kv_bytes - b.decode_kv_bytes};
}

}  // namespace

Engine::Engine() : impl_(std::make_shared<Impl>()) {}
Engine::~Engine() {
  impl_->close();
}

const PipelineConfig& Engine::config() const {
  return impl_->config;
}
const PipelineConfig& Engine::default_config() const {
  return impl_->defaults;
}
const Registry& Engine::registry() const {
  return *impl_->registry;
}
const Weights& Engine::weights() const {
  return *impl_->weights;
}
const Tokenizer& Engine::tokenizer() const {
  return *impl_->tokenizer;
}
const ChatTemplate* Engine::chat_template() const {
  return impl_->chat ? &*impl_->chat : nullptr;
}
const std::string& Engine::chat_problem() const {
  return impl_->chat_problem;
}
Pipeline& Engine::pipeline() {
  return *impl_->pipeline;
}
const Pipeline& Engine::pipeline() const {
  return *impl_->pipeline;
}

Engine::Impl::SteppingCall::SteppingCall(std::shared_ptr<Impl> impl, const char* function)
    : impl_(std::move(impl)), function_(function) {
  std::thread::id in;
  if (impl_->stepping.compare_exchange_strong(in, std::this_thread::get_id())) return;
  const std::string name = function;
  throw Error(ErrorCode::kUsage,
              in == std::this_thread::get_id()
                  ? name + "() was called from within a callback of a request; submit() may be called there"
                  : name + "(): another thread is stepping this engine; submit() and cancel() may be called by any");
}

Engine::Impl::SteppingCall::~SteppingCall() {
  impl_->stepping.store({});
  impl_->stepping.notify_all();
}

void Engine::Impl::SteppingCall::check_open() const {
  if (!impl_->closed) return;
  throw Error(ErrorCode::kUsage, std::string(function_) + "(): the engine was destroyed while this call was under way");
}

// A thread that waited for itself would wait for ever: where a callback destroys
// the engine, its SteppingCall has the rest.
void Engine::Impl::close() {
  closed = true;
  for (std::thread::id in; (in = stepping.load()) != std::thread::id() && in != std::this_thread::get_id();) {
    stepping.wait(in);
  }
}

void Engine::Impl::load(const SteppingCall& call, const LoadProgress& progress) {
  if (loaded) return;
  pipeline->load([&](uint64_t done, uint64_t total) {
    if (progress) progress(done, total);
    call.check_open();
  });
  call.check_open();
  loaded = true;
}

void Engine::load(const LoadProgress& progress) {
  const Impl::SteppingCall call(impl_, "load");
  call->load(call, progress);
}

std::vector<int32_t> Engine::Impl::prompt_tokens(const Request& request) const {
  if (!request.prompt.empty()) return tokenizer->encode(request.prompt, {.parse_special = request.parse_special});
  if (!request.chat.empty()) {
    if (!chat) throw Error(ErrorCode::kRequest, chat_problem);
    return chat->encode(*tokenizer, request.chat, request.chat_options, request.parse_special);
  }
  if (!request.tokens.empty()) return request.tokens;
  return tokenizer->encode("");
}

std::vector<int32_t> Engine::prompt_tokens(const Request& request) const {
  return impl_->prompt_tokens(request);
}

const std::string& Engine::grammar_problem() const {
  return impl_->grammar_problem;
}

std::shared_ptr<const Grammar> Engine::compile(const GrammarText& text) {
  if (!impl_->grammar_problem.empty()) throw Error(ErrorCode::kRequest, impl_->grammar_problem);
  return impl_->grammars->compile(text);
}

// Throws Error(kRequest) if the prompt cannot begin from the saved sequence, or nothing can be saved.
void Engine::Impl::check_sessions(const Request& request, const std::vector<int32_t>& prompt) const {
  if (request.save && !save_sessions) throw Error(ErrorCode::kRequest, "the engine was opened without save_sessions");
  if (!request.begin_from) return;
  if (!load_sessions) throw Error(ErrorCode::kRequest, "the engine was opened without load_sessions");
  const SavedSequence& saved = *request.begin_from;
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorCode::kRequest, {saved.path().string()}, message);
  };
  saved.check_facts(pipeline->session_facts());
  if (saved.tokens().size() > pipeline->longest_sequence()) {
    fail("the session has " + std::to_string(saved.tokens().size()) + " tokens; the cache holds " +
         std::to_string(pipeline->capacity()) + "; raise kv_cache.capacity");
  }
  if (saved.tokens().front() != prompt.front()) {
    fail("the prompt does not begin as the session: its first token is " + std::to_string(prompt.front()) +
         ", the session's " + std::to_string(saved.tokens().front()) +
         "; expected a prompt that goes on from the session's text, or begins like it");
  }
}

std::unique_ptr<Sequence> Engine::Impl::make_sequence(Request request, uint32_t index) const {
  std::vector<int32_t> prompt;
  std::unique_ptr<GrammarMatcher> matcher;
  std::exception_ptr error;
  try {
    prompt = prompt_tokens(request);
    check_prompt(prompt);
    check_sessions(request, prompt);
    if (request.embed != Pooling::kNone && !config.embeddings) {
      throw Error(ErrorCode::kRequest,
                  "this pipeline makes no embeddings; pipeline.embeddings = true has it make them");
    }
    if (request.grammar && request.ignore_end) {
      throw Error(ErrorCode::kRequest, "a text that has to match a grammar cannot go on past its end (ignore_end)");
    }
    if (request.grammar && !(grammars && grammars->compiled(*request.grammar))) {
      throw Error(ErrorCode::kRequest, "the grammar was compiled by another engine");
    }
    if (request.grammar) matcher = std::make_unique<GrammarMatcher>(request.grammar);
  } catch (...) {
    error = std::current_exception();
  }
  const bool turns = !request.chat.empty() && chat;
  const uint64_t seed = request.seed.value_or(config.seed);
  std::vector<int32_t> ends = turns ? chat->stop_tokens(*tokenizer) : tokenizer->info().end_of_generation;
  if (request.grammar) ends = request.grammar->host().ends;
  auto sequence = std::make_unique<Sequence>(SequenceStart{.request = std::move(request),
                                                           .index = index,
                                                           .prompt = std::move(prompt),
                                                           .end_tokens = std::move(ends),
                                                           .capacity = pipeline->longest_sequence()},
                                             *tokenizer);
  sequence->matcher = std::move(matcher);
  sequence->seed = seed;
  if (trace) sequence->submitted = RequestTrace::Clock::now();
  if (error) sequence->fail(error);
  return sequence;
}

Ticket Engine::submit(Request request) {
  return impl_->tickets.add(impl_->make_sequence(std::move(request), 0));
}

void Engine::cancel(Ticket ticket) {
  impl_->tickets.cancel(ticket);
}

std::optional<Result> Engine::take(Ticket ticket) {
  return impl_->tickets.take(ticket);
}

bool Engine::step() {
  const Impl::SteppingCall call(impl_, "step");
  call->load(call, {});
  const bool more = call->loop->step();
  call.check_open();
  return more;
}

RunStats Engine::totals() const {
  return impl_->loop->totals();
}

std::vector<Result> Engine::generate(std::span<const Request> requests, RunStats* stats) {
  const Impl::SteppingCall call(impl_, "generate");
  call->load(call, {});
  const RunStats before = call->loop->stats();
  std::vector<Ticket> tickets;
  for (const Request& request : requests) {
    const auto index = static_cast<uint32_t>(tickets.size());
    std::unique_ptr<Sequence> sequence = call->make_sequence(request, index);
    if (!request.seed) sequence->seed = stream_seed(sequence->seed, index);
    sequence->kept_for_call = true;
    tickets.push_back(call->tickets.add(std::move(sequence)));
  }
  std::vector<Result> results;
  for (const Ticket ticket : tickets) {
    while (!call->tickets.done(ticket)) {
      call->loop->step();
      call.check_open();
    }
    results.push_back(*call->tickets.take(ticket));
  }
  if (stats != nullptr) *stats = call->loop->stats() - before;
  return results;
}

Result Engine::generate(const Request& request, RunStats* stats) {
  Result result = std::move(generate(std::span(&request, 1), stats).front());
  if (result.error) std::rethrow_exception(result.error);
  return result;
}

void Engine::score(std::span<const int32_t> tokens, uint32_t first,
                   const std::function<void(uint32_t, std::span<const float>)>& on_row, const std::stop_token& cancel) {
  const Impl::SteppingCall call(impl_, "score");
  call->load(call, {});
  if (!call->loop->idle()) throw Error(ErrorCode::kUsage, "score(): requests are running; their steps come first");
  Pipeline& p = *call->pipeline;
  const uint32_t piece = p.max_out_rows(false);
  if (piece == 0) throw Error(ErrorCode::kUsage, "this engine was opened without score_rows");
  call->check_prompt({tokens.begin(), tokens.end()});
  read_text(p, tokens, {.first = first, .rows_a_step = piece, .cancel = cancel},
            [&](uint32_t row, std::span<const float> logits) {
              if (on_row) on_row(row, logits);
              call.check_open();
            });
}

}  // namespace tenon
