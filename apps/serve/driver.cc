// One thread steps; all others hand in requests and take events. Nothing here waits for a connection: what an answer
// gets is appended to its Generation, and connections are woken once a step, on a thread of their own.
#include "driver.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "api_error.h"
#include "said_by.h"

namespace tenon::serve {
namespace {

constexpr auto kIdle = std::chrono::milliseconds(100);

double seconds(Generation::Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

// Returns the number of pages that no sequence holds, or 0 where sequences do not share any.
uint32_t free_pages(const Engine& engine) {
  uint32_t page_tokens = 0;
  return engine.pipeline().free_pages(page_tokens);
}

// A request without a seed gets one that nobody can know before.
uint64_t random_seed() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    return std::mt19937_64((uint64_t{device()} << 32U) | device());
  }();
  return random();
}

// Returns the failure that the handled exception stands for.
Failure failure_now() {
  return failure_by(std::current_exception());
}

}  // namespace

Driver::Driver(Engine& engine, Metrics& metrics, Options options)
    : engine_(engine),
      metrics_(metrics),
      options_(std::move(options)),
      cache_tokens_(static_cast<double>(engine.pipeline().sequences()) *
                    static_cast<double>(engine.pipeline().capacity())),
      pages_(free_pages(engine)) {}

// ---- by any thread --------------------------------------------------------------------------------------------------

unsigned Driver::retry_after() const {
  constexpr double kMost = 60;
  const double rounds = static_cast<double>(waiting_) / engine_.pipeline().sequences();
  return static_cast<unsigned>(std::clamp(std::ceil(rounds * seconds_an_answer_), 1.0, kMost));
}

void Driver::admit(const std::shared_ptr<Generation>& generation, size_t choices) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    ApiError error(503, "the server is shutting down", "", "shutting_down");
    error.retry_after = 1;
    throw error;
  }
  if (waiting_ >= options_.max_waiting) {
    metrics_.refuse();
    ApiError error(429, std::to_string(waiting_) + " requests wait already; try again later", "",
                   "rate_limit_exceeded");
    error.retry_after = retry_after();
    throw error;
  }
  live_.insert(generation);  // this comes first: for want of memory nothing is counted
  waiting_ += choices;
}

std::shared_ptr<Generation> Driver::submit(const CompletionRequest& request, std::function<void()> wake) {
  const size_t choices = request.choices();
  auto generation =
      std::make_shared<Generation>(choices, request.stream || request.logprobs, request.stream, std::move(wake));
  generation->choices_.resize(choices);
  generation->answers_ = request.n;
  generation->tickets_.reserve(choices);  // so that a choice that the engine has is never refused for want of memory
  admit(generation, choices);
  if (!request.grammar) {
    submit_all(generation, request, nullptr);
    return generation;
  }
  try {
    compiling_.run([this, generation, request] { compile_and_submit(generation, request); });
  } catch (...) {  // memory or threads ran out
    refuse(generation, 0, failure_now());
  }
  return generation;
}

void Driver::submit_all(const std::shared_ptr<Generation>& generation, const CompletionRequest& request,
                        const std::shared_ptr<const Grammar>& grammar) {
  uint32_t choice = 0;
  try {
    for (const Request& prompt : request.prompts) {
      const uint64_t seed = request.seed ? *request.seed : random_seed();
      for (uint32_t i = 0; i < request.n; ++i) {
        Request one = prompt;
        one.seed = stream_seed(seed, i);
        one.grammar = grammar;
        submit_choice(generation, std::move(one), choice);
        ++choice;
      }
    }
  } catch (...) {  // there is no memory: those that were submitted end, the others never came
    cancel(*generation);
    return refuse(generation, choice, failure_now());
  }
  const std::lock_guard lock(mutex_);
  submitted_ = true;
  changed_.notify_all();
}

// A thread that has the time runs this. The answers wait meanwhile as they do for a slot.
void Driver::compile_and_submit(const std::shared_ptr<Generation>& generation, const CompletionRequest& request) {
  std::shared_ptr<const Grammar> grammar;
  try {
    check_wanted(*generation);
    grammar = engine_.compile(request.grammar->text);
  } catch (const Error& e) {
    const std::string& field = request.grammar->field;
    const bool stated_wrong = e.code() == ErrorCode::kRequest;
    return refuse(generation, 0, stated_wrong ? Failure{400, field + ": " + said_by(e), field, ""} : failure_now());
  } catch (...) {
    return refuse(generation, 0, failure_now());
  }
  submit_all(generation, request, grammar);
}

// Throws ApiError if the client is gone, for whom nothing has to be compiled.
void Driver::check_wanted(Generation& generation) {
  const std::lock_guard lock(generation.mutex_);
  if (generation.cancelled_) throw ApiError(503, "the request was ended before it began", "", "cancelled");
}

// Ends the answers from `first` on, which the engine never saw.
void Driver::refuse(const std::shared_ptr<Generation>& generation, size_t first, const Failure& failure) {
  const size_t choices = generation->choices_.size();
  bool all = false;
  for (size_t i = first; i < choices; ++i) {
    Event event;
    event.choice = static_cast<uint32_t>(i);
    event.last = true;
    event.finish = FinishReason::kError;
    event.failure = failure;
    all = generation->put(std::move(event));
  }
  {
    const std::lock_guard lock(mutex_);
    waiting_ -= choices - first;
    if (all) live_.erase(generation);
    submitted_ = true;
  }
  changed_.notify_all();
  options_.post([generation] { generation->wake(); });
}

void Driver::submit_choice(const std::shared_ptr<Generation>& generation, Request request, uint32_t choice) {
  request.on_token = [this, generation, choice](const Token& token) {
    take(generation, choice, token);
    return true;
  };
  request.on_prompt = [this, generation, choice](uint32_t done, uint32_t) { count_prompt(*generation, choice, done); };
  request.on_done = [this, generation, choice](const Result& result) { end(generation, choice, result); };
  const Ticket ticket = engine_.submit(std::move(request));
  const std::lock_guard lock(generation->mutex_);
  generation->tickets_.push_back(ticket);
  if (generation->cancelled_) engine_.cancel(ticket);
}

void Driver::cancel_now(Generation& generation) {
  const std::lock_guard lock(generation.mutex_);
  generation.cancelled_ = true;
  for (const Ticket ticket : generation.tickets_) engine_.cancel(ticket);
}

void Driver::cancel(Generation& generation) {
  cancel_now(generation);
  const std::lock_guard lock(mutex_);
  submitted_ = true;
  changed_.notify_all();
}

void Driver::cancel_all() {
  std::vector<std::shared_ptr<Generation>> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(live_.begin(), live_.end());
    submitted_ = true;
  }
  for (const auto& generation : all) cancel_now(*generation);
  changed_.notify_all();
}

void Driver::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

bool Driver::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

// ---- by the thread that steps ---------------------------------------------------------------------------------------

void Driver::run(const std::function<void()>& beat) {
  while (true) {
    step_began_ = Generation::Clock::now();
    const bool more = engine_.step();
    metrics_.step(engine_.totals());
    wake_marked();
    beat();
    std::unique_lock lock(mutex_);
    metrics_.set_load(running_, waiting_, cache_share());
    if (closed_ && waiting_ + running_ == 0) return;
    if (!more && !submitted_) changed_.wait_for(lock, kIdle);
    submitted_ = false;
  }
}

// Returns the share of the cache that requests have.
double Driver::cache_share() const {
  if (pages_ == 0) return static_cast<double>(cached_) / cache_tokens_;
  return static_cast<double>(pages_ - free_pages(engine_)) / pages_;
}

void Driver::start(Generation& generation, uint32_t choice) {
  Generation::Choice& c = generation.choices_[choice];
  if (c.started) return;
  c.started = true;
  c.began = std::max(step_began_, generation.arrived);  // it may have come while the step was being planned
  metrics_.start(seconds(c.began - generation.arrived));
  const std::lock_guard lock(mutex_);
  --waiting_;
  ++running_;
}

void Driver::count_prompt(Generation& generation, uint32_t choice, uint32_t done) {
  start(generation, choice);
  Generation::Choice& c = generation.choices_[choice];
  cached_ += done + c.tokens - c.cached;
  c.cached = done + c.tokens;
}

void Driver::take(const std::shared_ptr<Generation>& generation, uint32_t choice, const Token& token) {
  start(*generation, choice);
  Generation::Choice& c = generation->choices_[choice];
  if (token.id >= 0) {
    const auto now = Generation::Clock::now();
    if (c.tokens == 0) {
      metrics_.first_token(seconds(now - generation->arrived));
      c.first = now;
    } else {
      metrics_.next_token(seconds(now - c.last));
    }
    c.last = now;
    ++c.tokens;
    ++c.cached;
    ++cached_;
  }
  if (!generation->tokens) return;
  Event event;
  event.choice = choice;
  event.text = token.text;
  event.token = token.id;
  event.logprob = token.logprob;
  event.top.assign(token.top.begin(), token.top.end());
  generation->put(std::move(event));
  if (generation->stream) mark(generation);
}

// Counts the prompt of an answer that has ended, if it was the last one to it.
void Driver::end_prompt(const Generation& generation, uint32_t choice) {
  const auto first = generation.choices_.begin() + choice / generation.answers_ * generation.answers_;
  const auto last = first + generation.answers_;
  if (!std::all_of(first, last, [](const Generation::Choice& c) { return c.ended; })) return;
  const auto shorter = [](const Generation::Choice& a, const Generation::Choice& b) { return a.tokens < b.tokens; };
  metrics_.end_prompt(std::max_element(first, last, shorter)->tokens);
}

void Driver::end(const std::shared_ptr<Generation>& generation, uint32_t choice, const Result& result) {
  Generation::Choice& c = generation->choices_[choice];
  c.ended = true;
  Metrics::Ended ended;
  ended.finish = result.finish;
  ended.prompt_tokens = result.prompt_tokens.size();
  ended.tokens = result.tokens.size();
  ended.seconds = seconds(Generation::Clock::now() - generation->arrived);
  ended.before_first = seconds(c.first - c.began);
  ended.after_first = seconds(c.last - c.first);
  metrics_.end(ended);
  end_prompt(*generation, choice);
  cached_ -= c.cached;
  Event event;
  event.choice = choice;
  event.last = true;
  event.finish = result.finish;
  if (result.error) event.failure = failure_by(result.error);
  event.prompt_tokens = static_cast<uint32_t>(result.prompt_tokens.size());
  event.reused = result.reused;
  event.embedding = result.embedding;
  event.tokens = static_cast<uint32_t>(result.tokens.size());
  if (!generation->tokens) event.text = result.text;
  const bool all = generation->put(std::move(event));
  if (all || generation->stream) mark(generation);
  const std::lock_guard lock(mutex_);
  c.started ? --running_ : --waiting_;
  seconds_an_answer_ += (ended.seconds - seconds_an_answer_) / 16;
  if (all) live_.erase(generation);
}

void Driver::mark(const std::shared_ptr<Generation>& generation) {
  if (generation->marked_) return;
  generation->marked_ = true;
  marked_.push_back(generation);
}

void Driver::wake_marked() {
  if (marked_.empty()) return;
  for (const auto& generation : marked_) generation->marked_ = false;
  options_.post([woken = std::exchange(marked_, {})] {
    for (const auto& generation : woken) generation->wake();
  });
}

}  // namespace tenon::serve
