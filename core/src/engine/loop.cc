// step() goes through these: welcome() takes in who joined, plan() (plan.cc) says who runs, fill_batch() or, for a step
// that was launched ahead, move_batch_on() says which rows the step has, run() runs them and lets give() hand every
// sequence its tokens, and dismiss() lets go of those that have ended.
//
// An error of one sequence ends that one, an error of a step those that took part, and an error of planning all of them
// (fail()).
#include "loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <utility>

#include "tenon/core/error.h"
#include "tenon/sdk/told.h"

namespace tenon {

Loop::Loop(Pipeline& pipeline, Scheduler& scheduler, Tickets& tickets, Options options)
    : pipeline_(pipeline),
      scheduler_(scheduler),
      tickets_(tickets),
      trace_(options.trace),
      log_(std::move(options.log)),
      clock_(std::move(options.clock)),
      rests_(pipeline.one_row_programs(), options.rest_steps),
      prompt_programs_(pipeline.prompt_programs()) {
  const uint32_t slots = pipeline_.sequences(), rows = pipeline_.max_rows();
  for (StepBatch* batch : {&batch_, &next_batch_}) {
    for (auto* v : {&batch->token, &batch->position, &batch->slot, &batch->parent, &batch->out_row, &batch->host_row,
                    &batch->mask, &batch->from}) {
      v->reserve(rows);
    }
    batch->seq_slot.reserve(slots);
    batch->seq_row.reserve(slots + 1);
    batch->kv_len.assign(slots, 0);
    batch->fill_mask = [this](int32_t number, std::span<uint32_t> bits) {
      const Masked& m = masked_[static_cast<size_t>(number)];
      if (m.sequence == nullptr || m.sequence->done()) {  // what the row chooses goes to nobody
        std::fill(bits.begin(), bits.end(), UINT32_MAX);
      } else {
        m.sequence->mask(m.draft, bits);
      }
    };
  }
  masked_.reserve(slots * (1 + pipeline_.draft_tokens()));
  running_.reserve(slots);
  members_.reserve(slots);
  shares_.reserve(slots);
  next_shares_.reserve(slots);
  newest_.reserve(slots);
  broken_.reserve(slots);
  chosen_.reserve(1 + pipeline_.draft_tokens());
  if (trace_ != nullptr) text_.reserve(trace::kMaxText);
  for (uint32_t i = slots; i-- > 0;) free_slots_.push_back(i);
}

RunStats Loop::totals() const {
  const std::lock_guard lock(totals_mutex_);
  return totals_;
}

// ---- coming and going -----------------------------------------------------------------------------------------------

// Takes in who joins, and ends whom somebody cancelled.
void Loop::welcome() {
  tickets_.collect(joining_, cancelled_);
  changed_ = changed_ || !joining_.empty() || !cancelled_.empty();
  for (auto& s : joining_) {
    s->joined_at = steps_;
    s->client = &clients_.join(s->request().client, steps_);
    if (trace_ != nullptr) trace_->arrived(pipeline_.track(), *s);
  }
  sequences_.insert(sequences_.end(), std::make_move_iterator(joining_.begin()),
                    std::make_move_iterator(joining_.end()));
  joining_.clear();
  const auto cancelled = [&](const Sequence& s) {
    return s.request().cancel.stop_requested() ||
           std::find(cancelled_.begin(), cancelled_.end(), Ticket{s.id}) != cancelled_.end();
  };
  for (const auto& s : sequences_) {
    if (s->done() || !cancelled(*s)) continue;
    try {
      s->finish(FinishReason::kCancelled);
    } catch (...) {  // a callback got the rest of the text and threw: it is cancelled all the same
    }
  }
  cancelled_.clear();
}

// Returns what the cache has of a sequence that has ended; nullptr if nobody wants it, or there is nothing.
std::shared_ptr<const SavedSequence> Loop::saved(const Sequence& s) {
  const bool sound = s.reason() != FinishReason::kError && !s.doubtful;
  if (!s.request().save || !sound || s.phase == TENON_SEQUENCE_WAITS || s.cached().empty()) return nullptr;
  const std::span<const int32_t> tokens = s.cached();
  return std::make_shared<SavedSequence>(pipeline_.session_facts(), std::vector(tokens.begin(), tokens.end()),
                                         pipeline_.export_sequence(s.slot, static_cast<uint32_t>(tokens.size())));
}

void Loop::hand_over(Sequence& s) {
  end_rest(s);
  if (trace_ != nullptr) trace_->ended(pipeline_.track(), s, pipeline_.last_step());
  for (std::vector<Share>* shares : {&shares_, &next_shares_}) {
    for (Share& share : *shares) {
      if (share.sequence == &s) share.sequence = nullptr;
    }
  }
  for (Masked& m : masked_) {
    if (m.sequence == &s) m.sequence = nullptr;
  }
  std::shared_ptr<const SavedSequence> kept;
  std::exception_ptr not_saved;
  try {
    kept = saved(s);
  } catch (...) {
    not_saved = std::current_exception();
  }
  try {
    vacate(s);
  } catch (const std::exception& e) {
    if (log_) log_(3, std::string("a sequence's slot could not be given back: ") + e.what());
  }
  clients_.leave(*s.client);
  std::optional<Result> result = s.take_result();
  result->saved = std::move(kept);
  if (not_saved) {
    result->finish = FinishReason::kError;
    result->error = not_saved;
  }
  const auto& on_done = s.request().on_done;
  if (on_done) {
    try {
      on_done(*result);
    } catch (const std::exception& e) {
      if (log_) log_(3, std::string("a request's on_done failed: ") + e.what());
    } catch (...) {
      if (log_) log_(3, "a request's on_done failed");
    }
    if (!s.kept_for_call) result.reset();
  }
  tickets_.finish(Ticket{s.id}, std::move(result));
}

// Sequences that have ended leave, and their results go where they are wanted.
void Loop::dismiss() {
  for (size_t i = 0; i < sequences_.size();) {
    if (!sequences_[i]->done()) {
      ++i;
      continue;
    }
    const std::unique_ptr<Sequence> s = std::move(sequences_[i]);
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(i));
    changed_ = true;
    hand_over(*s);
  }
}

// An error of the step ends those that take part in it, or in the step that was planned beside it; one of its planning
// ends all.
void Loop::fail(const std::exception_ptr& error, bool planned) {
  if (planned) {
    for (const std::vector<Share>* shares : {&shares_, &next_shares_}) {
      for (const Share& share : *shares) {
        if (share.sequence == nullptr) continue;
        share.sequence->doubtful = true;
        share.sequence->fail(error);
      }
    }
  } else {
    for (const auto& s : sequences_) s->fail(error);
  }
}

// ---- a step ---------------------------------------------------------------------------------------------------------

bool Loop::step() {
  welcome();
  dismiss();
  bool planned = false;
  try {
    if (ahead_ && next_ready_) {
      take_next();
    } else if (ahead_) {
      move_batch_on();
    }
    next_ready_ = false;
    next_shares_.clear();
    const bool all_ended =
        std::all_of(shares_.begin(), shares_.end(), [](const Share& share) { return share.sequence == nullptr; });
    ahead_ = ahead_ && !all_ended;
    if (ahead_) {
      planned = true;
      run();
    } else if (!sequences_.empty()) {
      planned = plan();
      if (planned) {
        fill_batch();
        run();
      }
    }
  } catch (...) {
    fail(std::current_exception(), planned);
  }
  dismiss();
  const std::lock_guard lock(totals_mutex_);
  totals_ = stats_;
  return !sequences_.empty() || tickets_.anything_new();
}

void Loop::add_rows(Sequence& s, uint32_t rows) {
  const auto first_row = static_cast<int32_t>(batch_.token.size());
  const uint32_t cached = s.cached_then();
  const uint32_t newest = s.tokens_then() - cached - 1;  // from that row on, logits are wanted
  for (uint32_t i = 0; i < rows; ++i) {
    const auto row = first_row + static_cast<int32_t>(i);
    // A draft follows another one or the newest token; everything before is a chain.
    const int32_t back = i <= newest ? 1 : static_cast<int32_t>(i - newest - 1) - s.parents[i - newest - 1];
    const bool comes = i <= newest && cached + i == s.tokens().size();  // the step that is under way chooses it
    batch_.token.push_back(comes ? 0 : i <= newest ? s.tokens()[cached + i] : s.drafts[i - newest - 1]);
    if (plans_next_) batch_.from.push_back(comes ? s.next_out_row : -1);
    batch_.parent.push_back(i == 0 ? -1 : row - back);
    batch_.position.push_back(i == 0 ? static_cast<int32_t>(cached)
                                     : batch_.position[static_cast<size_t>(row - back)] + 1);
    batch_.slot.push_back(static_cast<int32_t>(s.slot));
    if (i < newest || !s.chooses()) continue;
    if (s.request().logprobs) batch_.host_row.push_back(static_cast<int32_t>(batch_.out_row.size()));
    batch_.out_row.push_back(row);
    batch_.mask.push_back(s.matcher ? static_cast<int32_t>(masked_.size()) : -1);
    if (!s.matcher) continue;
    masked_.push_back({&s, static_cast<int32_t>(i - newest) - 1});
  }
  if (s.matcher) s.mask_problems.reserve(1 + s.drafts.size());
  batch_.pool = batch_.pool || s.embeds();
  batch_.seq_slot.push_back(static_cast<int32_t>(s.slot));
  batch_.seq_row.push_back(first_row + static_cast<int32_t>(rows));
  batch_.kv_len[s.slot] = static_cast<int32_t>(cached);
  if (s.phase_then() == TENON_SEQUENCE_GENERATES) {
    batch_.drafted += rows - 1;
    return;
  }
  ++batch_.prompts;
  batch_.prompt_rows += rows;
  stats_.recomputed += std::min(rows, s.most_cached - std::min(s.most_cached, cached));
}

void Loop::fill_batch() {
  batch_.clear();
  batch_.round = round_;
  batch_.seq_row.push_back(0);
  masked_.clear();
  for (const Share& share : shares_) add_rows(*share.sequence, share.rows);
  if (masked_.empty()) batch_.mask.clear();
}

// Makes the batch of the step that was launched ahead: every sequence goes on after what the step before it accepted.
void Loop::move_batch_on() {
  for (size_t i = 0; i < batch_.seq_slot.size(); ++i) {
    const auto first = static_cast<size_t>(batch_.seq_row[i]), end = static_cast<size_t>(batch_.seq_row[i + 1]);
    batch_.token[first] = newest_[i].token;
    for (size_t row = first; row < end; ++row) batch_.position[row] += newest_[i].accepted;
    batch_.kv_len[static_cast<size_t>(batch_.seq_slot[i])] = batch_.position[first];
  }
}

// Makes the batch that was planned beside the step before it the one at hand; its tokens are known by now.
void Loop::take_next() {
  std::swap(shares_, next_shares_);
  std::swap(batch_, next_batch_);
  batch_.from.clear();
}

// Says whether the step has one row of each of its sequences, which all generate, and no embeddings.
bool Loop::is_plain() const {
  return batch_.prompts == 0 && batch_.drafted == 0 && !batch_.pool;
}

// Says whether the step after this one takes the same sequences, as many rows each, as far as they do not end.
bool Loop::certain_to_go_on() const {
  if (changed_ || tickets_.anything_new() || batch_.prompts > 0 || shares_.size() + resting() != running_.size())
    return false;
  if (pipeline_.draft_tokens() > 0 && !batch_.round) return false;
  if (is_plain() && !rests_.go_on(static_cast<uint32_t>(running_.size()))) return false;
  const uint32_t most = batch_.round ? 1 + pipeline_.draft_tokens() : 1;  // tokens that a step gives
  return std::all_of(running_.begin(), running_.end(), [&](const Sequence* s) {
    if (s->rest.rests) return true;
    return s->tokens_left() > most && s->tokens().size() + 2 * most - 1 < pipeline_.longest_sequence() &&
           !s->request().cancel.stop_requested();
  });
}

void Loop::run() {
  step_begin_ = clock_();
  const uint64_t before = stats_.new_tokens;
  stats_.rested += resting();
  StepResult result;
  ahead_ = false;
  const StepAhead ahead{.goes_on = [this] { return certain_to_go_on(); }, .next = [this] { return plan_next(); }};
  const Status status = pipeline_.step(batch_, result, ahead, [this](const StepResult& given) { return give(given); });
  forget_expected();
  const std::exception_ptr plan_error = std::exchange(plan_error_, nullptr);
  if (!status.ok()) throw Error(status.code(), status.message());
  ahead_ = result.ahead;
  account(std::chrono::duration<double>(clock_() - step_begin_).count(), stats_.new_tokens - before);
  end_broken();
  if (plan_error) fail(plan_error, false);
}

// Ends the sequences whose numbers are not finite. All others have what the step gave them by then,
// since to find the cause is to run rows again.
void Loop::end_broken() {
  for (const Broken& b : broken_) {
    try {
      throw pipeline_.explain({b.sequence->slot, b.sequence->tokens(), b.cached, b.sampled});
    } catch (...) {
      b.sequence->fail(std::current_exception());
    }
  }
  broken_.clear();
}

// Takes what kept masks from being told. Returns the error of the first of the sequence's chosen rows that has one, and
// leaves the tokens that rows before it chose.
std::exception_ptr Loop::take_mask_problem(Sequence& s, std::span<const int32_t> kept,
                                           std::span<const Chosen>& chosen) {
  std::exception_ptr first;
  for (const Sequence::MaskProblem& problem : s.mask_problems) {
    // The first row of a sequence that has drafts is that of its newest token.
    const auto row = std::find(kept.begin(), kept.end(), kept.front() + 1 + problem.draft);
    const auto before = problem.draft < 0 ? 0 : static_cast<size_t>(row - kept.begin());
    if (problem.draft >= 0 && before >= chosen.size()) continue;  // the draft does not come
    first = problem.what;
    chosen = chosen.first(before);
  }
  s.mask_problems.clear();
  return first;
}

// Every sequence is given its tokens; returns their text, of several sequences with " | " between.
std::string_view Loop::give(const StepResult& result) {
  text_.clear();
  newest_.clear();
  broken_.clear();
  for (size_t row = 0; next_ready_ && row < next_batch_.from.size(); ++row) {
    const int32_t from = next_batch_.from[row];
    if (from >= 0) next_batch_.token[row] = result.next[static_cast<size_t>(from)];
  }
  const size_t vocab = pipeline_.model().vocab;
  size_t out = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    const int32_t begin = batch_.seq_row[i], end = batch_.seq_row[i + 1];
    const int32_t survivors = std::clamp(result.accepted[i], 1, end - begin);
    chosen_.clear();
    const auto kept = result.survivors.subspan(static_cast<size_t>(begin), static_cast<size_t>(survivors));
    for (; out < batch_.out_row.size() && batch_.out_row[out] < end; ++out) {
      if (!std::binary_search(kept.begin(), kept.end(), batch_.out_row[out])) continue;
      const bool logits = !result.logits.empty();
      chosen_.push_back(
          {result.next[out], logits ? result.logits.subspan(out * vocab, vocab) : std::span<const float>()});
    }
    newest_.push_back({chosen_.empty() ? -1 : chosen_.back().token, survivors});
    Sequence* s = shares_[i].sequence;
    if (s == nullptr || s->done()) continue;  // it may have been cancelled since the step was launched
    const uint32_t cached = s->kv_len;
    const auto broken = std::find_if(chosen_.begin(), chosen_.end(), [](const Chosen& c) { return c.token < 0; });
    try {
      // A step that is under way already may write as far as room was reserved for it; where there is no next token,
      // the rows will be wanted once more.
      const bool cut = survivors < end - begin && !result.ahead && broken == chosen_.end();
      if (cut) pipeline_.truncate(s->slot, cached + static_cast<uint32_t>(survivors));
      const bool in_prompt = s->phase == TENON_SEQUENCE_PROMPT;
      s->doubtful = broken != chosen_.end();
      std::span<const Chosen> tokens(chosen_.begin(), broken);
      const std::exception_ptr no_mask = take_mask_problem(*s, kept, tokens);
      give(*s, static_cast<uint32_t>(survivors), tokens);
      if (no_mask && !s->done()) std::rethrow_exception(no_mask);
      if (s->embeds() && s->uncached() == 0) embed(*s, cached);
      if (!s->embeds() && !s->chooses() && s->uncached() == 0) s->finish(FinishReason::kLength);
      if (broken != chosen_.end() && !s->done()) {
        broken_.push_back({s, cached, broken->token == sdk::kNoCandidates});
      }
      if (in_prompt && !s->doubtful) pipeline_.share(s->slot, s->cached());
    } catch (...) {  // a callback of the request threw
      s->fail(std::current_exception());
    }
  }
  return text_;
}

// The prompt is in the cache as a whole: what its hidden states came to is read, once.
void Loop::embed(Sequence& s, uint32_t cached) {
  std::vector<float> pooled = pipeline_.pooled(s.slot, s.request().embed, s.prompt_size());
  s.doubtful = !std::all_of(pooled.begin(), pooled.end(), [](float x) { return std::isfinite(x); });
  if (s.doubtful) {
    broken_.push_back({&s, cached, false});
  } else {
    s.finish_with(std::move(pooled));
  }
}

// Gives one sequence what a step made for it: `cached` of its tokens came into the cache, and `chosen` are those that
// follow, in order. Throws what the request's callbacks throw.
void Loop::give(Sequence& s, uint32_t cached, std::span<const Chosen> chosen) {
  const bool in_prompt = s.phase == TENON_SEQUENCE_PROMPT;
  const uint32_t reached = s.most_cached;
  if (!in_prompt) stats_.accepted += cached - 1;
  s.kv_len += cached;
  s.most_cached = std::max(reached, s.kv_len);
  s.client->served += cached;
  s.client->since = steps_;
  const size_t text_before = s.text().size();
  for (const Chosen& c : chosen) {
    ++stats_.new_tokens;
    if (!s.take(c.token, c.logits)) break;
  }
  if (trace_ != nullptr && s.text().size() > text_before && text_.size() < trace::kMaxText) {
    if (!text_.empty()) text_ += " | ";
    text_ += s.text().substr(text_before, trace::kMaxText);
  }
  if (!in_prompt) return;
  if (!chosen.empty()) s.phase = TENON_SEQUENCE_GENERATES;
  if (trace_ != nullptr) record_prompt(s, cached);
  if (s.request().on_prompt && reached < s.prompt_size()) {
    s.request().on_prompt(std::min(s.most_cached, s.prompt_size()), s.prompt_size());
  }
}

void Loop::account(double seconds, uint64_t new_tokens) {
  ++stats_.steps;
  stats_.drafted += batch_.drafted;
  stats_.prompt_tokens += batch_.prompt_rows;
  if (batch_.prompts > 0) {
    stats_.prompt_seconds += seconds;
  } else {
    stats_.decode_seconds += seconds;
    stats_.decode_tokens += new_tokens;
    stats_.decode_weight_bytes += weight_bytes();
    stats_.decode_kv_bytes += read_bytes();
  }
  if (rests_.are_on() && is_plain()) rests_.took(static_cast<uint32_t>(batch_.token.size()), seconds);
  if (trace_ != nullptr) record_counters(seconds, new_tokens);
}

double Loop::weight_bytes() const {
  return static_cast<double>(pipeline_.step_weight_bytes(static_cast<uint32_t>(batch_.token.size())));
}

double Loop::cached_bytes() const {
  double bytes = 0;
  for (const Sequence* s : running_) bytes += static_cast<double>(pipeline_.kv_used_bytes(s->kv_len));
  return bytes;
}

// Others may have joined since, to take part in the next step.
double Loop::read_bytes() const {
  double bytes = 0;
  for (const Share& share : shares_) {
    if (share.sequence != nullptr) bytes += static_cast<double>(pipeline_.kv_used_bytes(share.sequence->kv_len));
  }
  return bytes;
}

// Recording stands in functions of its own, so that a step without a trace does not even save registers for it.
[[gnu::noinline]] void Loop::record_counters(double seconds, uint64_t new_tokens) const {
  RequestTrace::Counts counts;
  counts.running = running_.size();
  counts.waiting = sequences_.size() - running_.size();
  counts.kv_bytes = cached_bytes();
  for (const Sequence* s : running_) counts.kv_blocks += static_cast<double>(pipeline_.kv_used_blocks(s->kv_len));
  counts.tokens_per_second = static_cast<double>(new_tokens) / seconds;
  if (batch_.prompts == 0) {
    counts.read_gbps = (weight_bytes() + read_bytes()) / seconds / 1e9;
  }
  trace_->step(pipeline_.track(), counts);
}

[[gnu::noinline]] void Loop::record_prompt(const Sequence& s, uint32_t rows) const {
  trace_->prompt(pipeline_.track(), s, pipeline_.this_step(), rows, step_begin_);
  if (s.phase == TENON_SEQUENCE_GENERATES) trace_->token(pipeline_.track(), s, pipeline_.this_step());
}

}  // namespace tenon
