// This plans a step: it asks the scheduler who runs in it and with how many rows, and makes room for them in the cache.
//
// Invariants: a sequence that has a share has a slot, and the cache has reserved cells for all of its rows. A sequence
// without room loses its drafts first, then somebody loses a slot, whom the scheduler names; a sequence that finds no
// room even by itself ends with an error. Pre-empted sequences keep their tokens. A plan may end without a step, but
// only kFruitlessPlans times in a row for each sequence; after that it is the scheduler's error.
#include <algorithm>
#include <numeric>

#include "loop.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

// So many plans in a row, for each sequence, may end without a step: pre-empting is no progress by itself.
constexpr uint32_t kFruitlessPlans = 4;

}  // namespace

// Lists what the scheduler sees. Returns whether there is anybody.
bool Loop::list() {
  listed_.clear();
  for (Sequence* s : running_) {
    if (!s->sits_out && !s->done() && !s->certain_to_end) listed_.push_back(s);
  }
  for (const auto& s : sequences_) {
    if (s->phase == TENON_SEQUENCE_WAITS && !s->sits_out && !s->done()) listed_.push_back(s.get());
  }
  describe();
  return !listed_.empty();
}

void Loop::describe() {
  entries_.clear();
  for (const Sequence* s : listed_) {
    auto& e = entries_.emplace_back();
    e.h = {sizeof(tenon_sequence), 1, 0};
    e.id = s->id;
    e.age = steps_ - s->joined_at;
    e.phase = s->phase_then();
    e.priority = s->request().priority;
    e.client = s->client->number;
    e.client_served = s->client->served + s->client->under_way;
    e.client_waits = steps_ - s->client->since;
    e.tokens = s->tokens_then();
    e.cached = s->cached_then();
    e.pending = s->pending();
    if (s->phase != TENON_SEQUENCE_WAITS || free_slots_.empty()) continue;
    const Pipeline::Found found = beginning(*s);
    e.cached = found.tokens;
    e.held = found.held;
    e.pending -= found.tokens;
  }
}

// Says whether a sequence that runs is about to compute rows that this one begins with: to wait for them is less work
// than to compute them twice. That is not so if the cache does not even find what sequences that run have computed of
// them.
bool Loop::computed_by_another(const Sequence& s) const {
  if (!pipeline_.finds()) return false;
  uint32_t page_tokens = 0;
  static_cast<void>(pipeline_.free_pages(page_tokens));
  const auto whole = [&](size_t tokens) { return tokens - tokens % std::max(page_tokens, 1U); };
  const std::span<const int32_t> own = s.adoptable();
  const size_t found = pipeline_.find(own).tokens;
  bool soon = false;
  for (const Sequence* r : running_) {
    const auto differs = std::mismatch(own.begin(), own.end(), r->tokens().begin(), r->tokens().end());
    const size_t common = whole(static_cast<size_t>(differs.first - own.begin()));
    if (found < std::min(common, whole(std::min(r->kv_len, r->prompt_size())))) return false;
    soon |= common > found && r->phase == TENON_SEQUENCE_PROMPT && !r->sits_out && !r->done();
  }
  return soon;
}

Scheduler::Room Loop::room() const {
  Scheduler::Room r;
  r.rows = pipeline_.max_rows();
  r.free_slots = static_cast<uint32_t>(free_slots_.size());
  r.free_pages = pipeline_.free_pages(r.page_tokens);
  r.program_rows = prompt_programs_;
  return r;
}

// Drafts of a draft model are made within the step, too late for masks.
void Loop::draft(Sequence& s) {
  s.drafts.clear();
  if (s.matcher && (pipeline_.has_draft_model() || !s.matcher->rewinds())) return;
  if (pipeline_.draft_tokens() == 0 || s.phase != TENON_SEQUENCE_GENERATES || s.tokens_left() <= 1) return;
  const auto room = static_cast<uint32_t>(pipeline_.longest_sequence() - s.tokens().size());
  if (pipeline_.has_draft_model()) {  // it makes all of them within the step, or none
    s.drafts.assign(room >= pipeline_.draft_tokens() ? pipeline_.draft_tokens() : 0, 0);
    s.parents.resize(s.drafts.size());
    std::iota(s.parents.begin(), s.parents.end(), -1);
    return;
  }
  s.drafts.resize(std::min({pipeline_.draft_tokens(), s.tokens_left() - 1, room}));
  s.parents.resize(s.drafts.size());
  s.drafts.resize(pipeline_.propose(s.slot, s.tokens(), s.drafts, s.parents));
}

// The slot is free again, and what the sequence had in the cache is nobody's:
// another one, or itself, may find it there.
void Loop::vacate(Sequence& s) {
  if (s.phase == TENON_SEQUENCE_WAITS) return;
  if (s.kv_len > 0) pipeline_.share(s.slot, s.doubtful ? std::span<const int32_t>() : s.cached());
  free_slots_.push_back(s.slot);
  std::erase(running_, &s);
  s.phase = TENON_SEQUENCE_WAITS;
  s.kv_len = 0;
  s.started = s.loads = false;
  s.drafts.clear();
  pipeline_.end_sequence(s.slot);
}

void Loop::preempt(Sequence& s, const Preemption& why) {
  end_rest(s);
  if (s.started) {
    ++stats_.preempted;
    if (trace_ != nullptr) trace_->preempted(pipeline_.track(), s, pipeline_.last_step(), why);
  }
  s.sits_out = true;
  vacate(s);
}

// An answer does not say for whom it pre-empts: the first that loses its slot loses it
// to the first that is admitted, and so on.
[[gnu::noinline]] void Loop::preempt(const Scheduler::Answer& answer) {
  const auto waits = [&](const tenon_share& share) { return entries_[share.sequence].phase == TENON_SEQUENCE_WAITS; };
  auto admitted = std::find_if(answer.shares.begin(), answer.shares.end(), waits);
  for (const uint32_t i : answer.preempted) {
    Preemption why{.lost = "slot"};
    if (admitted != answer.shares.end()) {
      why.taker = entries_[admitted->sequence].id;
      admitted = std::find_if(admitted + 1, answer.shares.end(), waits);
    }
    preempt(*listed_[i], why);
  }
}

// Returns how many of a waiting sequence's first tokens need not be computed: the cache may
// find them, or a saved sequence has them.
Pipeline::Found Loop::beginning(const Sequence& s) const {
  const Pipeline::Found found = pipeline_.find(s.adoptable());
  const uint32_t saved = s.saved_tokens();
  return saved > found.tokens ? Pipeline::Found{.tokens = saved, .held = 0} : found;
}

// Puts the saved sequence into the slot, for which there is room, and drops what the sequence does not begin with.
void Loop::load(Sequence& s, uint32_t rows) {
  const SavedSequence& saved = *s.request().begin_from;
  const auto tokens = static_cast<uint32_t>(saved.tokens().size());
  pipeline_.import_sequence(s.slot, tokens, saved.cells());
  try {
    if (s.kv_len < tokens) pipeline_.truncate(s.slot, s.kv_len);
  } catch (const Error& e) {
    throw Error(ErrorCode::kRequest, {saved.path().string()},
                "the session has " + std::to_string(tokens) + " tokens, of which the prompt has the first " +
                    std::to_string(s.kv_len) + " before its last one, and the cache cannot drop the others (" +
                    e.diagnostics().front().message + "); expected a prompt that goes on after all of them");
  }
  const Status room = pipeline_.reserve(s.slot, s.kv_len + rows);
  if (!room.ok()) throw Error(room.code(), room.message());
  s.loads = s.doubtful = false;
}

// Sets its beginning, its sampler's parameters and its key; says whether the request is sound.
bool Loop::start(Sequence& s, uint32_t rows) {
  try {
    if (s.loads) load(s, rows);
    pipeline_.start_sequence(s.slot, s.seed, s.request().sampler, s.cached());
  } catch (...) {
    s.fail(std::current_exception());
    vacate(s);
    return false;
  }
  s.started = true;
  if (!s.ran && (pipeline_.finds() || s.request().begin_from) && s.request().embed != Pooling::kMean) {
    s.reused = s.kv_len;
    stats_.looked_up += s.prompt_size();
    stats_.reused += s.reused;
  }
  s.ran = true;
  s.drafts.reserve(pipeline_.draft_tokens());
  s.parents.reserve(pipeline_.draft_tokens());
  if (trace_ != nullptr) trace_->admitted(pipeline_.track(), s);
  return true;
}

// Returns how many of the rows there is room for: all; all but the drafts, for a sequence that generates; or 0.
uint32_t Loop::make_room(uint32_t index, uint32_t rows) {
  Sequence& s = *listed_[index];
  const uint32_t loaded = s.loads ? static_cast<uint32_t>(s.request().begin_from->tokens().size()) : 0;
  while (true) {
    const Status status = pipeline_.reserve(s.slot, std::max(s.cached_then() + rows, loaded));
    if (status.ok()) return rows;
    if (plans_next_) {
      blocked_ = true;
      return 0;
    }
    if (status.code() == ErrorCode::kMemory && s.phase == TENON_SEQUENCE_GENERATES && rows > 1) {
      rows = 1;
      continue;
    }
    if (status.code() != ErrorCode::kMemory || running_.size() == 1) {
      const std::string what = status.code() != ErrorCode::kMemory
                                   ? status.message()
                                   : "the cache has no room for the " + std::to_string(s.kv_len + rows) +
                                         " tokens of this sequence, even by itself: " + status.message();
      s.fail(std::make_exception_ptr(Error(ErrorCode::kRequest, what)));
      if (!s.started) vacate(s);  // otherwise it leaves with its result
      return 0;
    }
    describe();
    const uint32_t victim = scheduler_.no_space(entries_, room(), index);
    if (victim == TENON_NO_SEQUENCE && s.started) {
      s.sits_out = true;
      return 0;
    }
    if (victim == TENON_NO_SEQUENCE || victim == index) {
      preempt(s, {.lost = "room"});
      return 0;
    }
    preempt(*listed_[victim], {.lost = "pages", .taker = s.id});
  }
}

void Loop::admit(Sequence& s) {
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  running_.push_back(&s);
  s.phase = TENON_SEQUENCE_PROMPT;
  const uint32_t saved = s.saved_tokens();
  s.loads = saved > 0 && saved > pipeline_.find(s.adoptable()).tokens;
  s.doubtful = s.loads;  // it is doubtful until they are there
  s.kv_len = s.loads ? saved : pipeline_.adopt(s.slot, s.adoptable());
}

void Loop::place(uint32_t index, uint32_t rows) {
  Sequence& s = *listed_[index];
  if (s.sits_out || s.rest.rests || blocked_) return;  // it may have been pre-empted for a share before this one
  if (s.phase == TENON_SEQUENCE_WAITS) {
    if (free_slots_.empty()) return;
    s.sits_out = computed_by_another(s);
    if (s.sits_out) return;
    admit(s);
  }
  rows = make_room(index, std::min(rows, s.pending()));
  if (rows > 0 && (s.started || start(s, rows))) shares_.push_back({&s, rows});
}

// ---- rests ----------------------------------------------------------------------------------------------------------

size_t Loop::resting() const {
  if (!rests_.are_on()) return 0;
  return static_cast<size_t>(
      std::count_if(running_.begin(), running_.end(), [](const Sequence* s) { return s->rest.rests; }));
}

// Somebody may rest if the step is to have one row of every sequence that has a slot: a chunk of a prompt waits for
// nobody.
bool Loop::may_rest(std::span<const tenon_share> shares) const {
  return pipeline_.draft_tokens() == 0 && std::all_of(shares.begin(), shares.end(), [&](const tenon_share& share) {
           return listed_[share.sequence]->phase_then() == TENON_SEQUENCE_GENERATES;
         });
}

bool Loop::somebody_would_rest(std::span<const tenon_share> shares) const {
  const auto members = static_cast<uint32_t>(shares.size());
  return rests_.are_on() && may_rest(shares) && rests_.rows_for(members) != members;
}

void Loop::choose_resting(std::span<const tenon_share> shares) {
  if (!rests_.are_on()) return;
  if (shares.size() != running_.size() || !may_rest(shares)) {
    for (Sequence* s : running_) end_rest(*s);
    return;
  }
  members_.clear();
  for (Sequence* s : running_) members_.push_back({&s->rest, s->request().priority});
  rests_.choose(members_);
  if (trace_ == nullptr) return;
  for (Sequence* s : running_) note_rest(*s);
}

void Loop::end_rest(Sequence& s) const {
  s.rest.rests = false;
  if (trace_ != nullptr) note_rest(s);
}

[[gnu::noinline]] void Loop::note_rest(Sequence& s) const {
  if (s.rest.rests == s.rest_began.has_value()) return;
  if (s.rest.rests) {
    s.rest_began = {Clock::now(), pipeline_.this_step()};
  } else {
    trace_->rested(pipeline_.track(), s, *s.rest_began, pipeline_.last_step());
    s.rest_began.reset();
  }
}

// A round of the draft model takes all drafts of all sequences of the step; in any other step they have one row each.
void Loop::begin_round() {
  const auto whole = [&](const Share& share) {
    return share.sequence->phase == TENON_SEQUENCE_GENERATES && share.rows == 1 + pipeline_.draft_tokens();
  };
  round_ = pipeline_.has_draft_model() && std::all_of(shares_.begin(), shares_.end(), whole);
  if (round_ || !pipeline_.has_draft_model()) return;
  for (Share& share : shares_) {
    if (share.sequence->phase != TENON_SEQUENCE_GENERATES) continue;
    share.sequence->drafts.clear();
    share.rows = 1;
  }
}

// Fills shares_. Says whether there is a step to run: none if all who were to take part have ended or given up their
// place. Throws Error where nothing can go on.
bool Loop::plan() {
  changed_ = blocked_ = false;
  ++steps_;
  shares_.clear();
  for (Sequence* s : running_) draft(*s);
  for (const auto& s : sequences_) s->sits_out = false;
  while (shares_.empty() && list()) {
    if (plans_next_ && !anybody_can_run()) return false;
    const Scheduler::Answer answer = scheduler_.next(entries_, room());
    if (plans_next_ && (!answer.preempted.empty() || somebody_would_rest(answer.shares))) return false;
    if (!answer.preempted.empty()) preempt(answer);
    if (!plans_next_) choose_resting(answer.shares);
    for (const tenon_share& share : answer.shares) place(share.sequence, share.rows);
    std::erase_if(shares_, [](const Share& share) { return share.sequence->phase == TENON_SEQUENCE_WAITS; });
    if (plans_next_) return !blocked_ && !shares_.empty();
  }
  if (plans_next_) return false;
  if (!shares_.empty()) {
    begin_round();
    fruitless_ = 0;
    return true;
  }
  if (++fruitless_ > kFruitlessPlans * (1 + sequences_.size())) {
    fruitless_ = 0;
    throw Error(ErrorCode::kPlugin, scheduler_.id() + " lets no sequence run: all " +
                                        std::to_string(sequences_.size()) + " wait for room in the cache");
  }
  return false;
}

// ---- the step after the one that is under way -------------------------------------------------------------------------

// The host has a hand in what comes after a step with an embedding; drafts are made of the newest token. Rests follow
// from measured times, and are left as they are.
bool Loop::can_plan_next() const {
  return pipeline_.draft_tokens() == 0 && resting() == 0 &&
         std::none_of(sequences_.begin(), sequences_.end(), [](const std::unique_ptr<Sequence>& s) {
           const bool loads = s->loads || (s->phase == TENON_SEQUENCE_WAITS && s->request().begin_from);
           return s->embeds() || loads;
         });
}

// Says whether one of those that are listed has a slot or can have one.
bool Loop::anybody_can_run() const {
  return !free_slots_.empty() || std::any_of(listed_.begin(), listed_.end(),
                                             [](const Sequence* s) { return s->phase != TENON_SEQUENCE_WAITS; });
}

// Notes what the step that is under way will bring to its sequences.
void Loop::expect() {
  size_t out = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    int32_t chosen = -1;
    for (; out < batch_.out_row.size() && batch_.out_row[out] < batch_.seq_row[i + 1]; ++out) {
      chosen = static_cast<int32_t>(out);
    }
    Sequence* s = shares_[i].sequence;
    if (s == nullptr) continue;
    s->under_way = shares_[i].rows;
    s->client->under_way += shares_[i].rows;
    s->next_out_row = chosen;
    const bool whole = s->uncached() == shares_[i].rows;
    s->certain_to_end =
        whole && (chosen < 0 || s->tokens_left() <= 1 || s->tokens_then() >= pipeline_.longest_sequence());
  }
}

void Loop::forget_expected() {
  for (const auto& s : sequences_) {
    s->under_way = 0;
    s->client->under_way = 0;
    s->next_out_row = -1;
    s->certain_to_end = false;
  }
}

// Plans the step after the one that is under way, with whoever has come until now; returns its batch, or nullptr where
// only the result of this one says how to go on. Whom the plan admits keeps the slot then.
const StepBatch* Loop::plan_next() {
  try {
    welcome();
    if (!can_plan_next()) return nullptr;
    expect();
    std::swap(shares_, next_shares_);
    std::swap(batch_, next_batch_);
    plans_next_ = true;
    next_ready_ = plan();
    if (next_ready_) fill_batch();
  } catch (...) {  // the step that is under way has to be read before anything ends
    plan_error_ = std::current_exception();
    next_ready_ = false;
  }
  if (plans_next_) {
    plans_next_ = false;
    std::swap(shares_, next_shares_);
    std::swap(batch_, next_batch_);
    if (!next_ready_) {
      next_shares_.clear();
      --steps_;
    }
  }
  // Whoever sat out, since another one is about to compute the same, is asked for again.
  changed_ = changed_ || !next_ready_ ||
             std::any_of(sequences_.begin(), sequences_.end(), [](const auto& s) { return s->sits_out; });
  return next_ready_ ? &next_batch_ : nullptr;
}

}  // namespace tenon
