#include "run.h"

#include <algorithm>
#include <chrono>

#include "tenon/core/error.h"

namespace tenon {

Run::Run(Pipeline& pipeline, Scheduler& scheduler, const RequestTrace* trace, RunStats& stats)
    : pipeline_(pipeline), scheduler_(scheduler), trace_(trace), stats_(stats) {
  const uint32_t slots = pipeline_.sequences(), rows = pipeline_.max_rows();
  for (auto* v : {&batch_.token, &batch_.position, &batch_.slot, &batch_.parent, &batch_.out_row}) v->reserve(rows);
  batch_.seq_slot.reserve(slots);
  batch_.seq_row.reserve(slots + 1);
  batch_.kv_len.assign(slots, 0);
  active_.reserve(slots);
  states_.reserve(slots);
  shares_.reserve(slots);
  if (trace_ != nullptr) text_.reserve(trace::kMaxText);
  for (uint32_t i = slots; i-- > 0;) free_slots_.push_back(i);
}

void Run::admit(std::vector<Sequence>& sequences, uint64_t seed) {
  while (next_ < sequences.size() && !free_slots_.empty()) {
    Sequence& s = sequences[next_];
    // Sequences of one call draw from different streams; the first from the seed itself.
    const uint64_t own_seed = s.request().seed.value_or(seed + next_ * 0x9E3779B97F4A7C15U);
    ++next_;
    if (trace_ != nullptr) trace_->queue(pipeline_.track(), s.request_id);
    if (trace_ != nullptr) trace_->start(pipeline_.track(), s.request_id);
    s.slot = free_slots_.back();
    free_slots_.pop_back();
    active_.push_back(&s);
    pipeline_.start_sequence(s.slot, own_seed, s.request().sampler);
    s.drafts.reserve(pipeline_.draft_tokens());
  }
}

void Run::draft(Sequence& s) {
  s.drafts.clear();
  if (pipeline_.draft_tokens() == 0 || !s.generating() || s.tokens_left() <= 1) return;
  const auto room = static_cast<uint32_t>(pipeline_.capacity() - s.tokens().size());
  s.drafts.resize(std::min({pipeline_.draft_tokens(), s.tokens_left() - 1, room}));
  s.drafts.resize(pipeline_.propose(s.slot, s.tokens(), s.drafts));
}

void Run::add_rows(Sequence& s, uint32_t rows) {
  const Status status = pipeline_.reserve(s.slot, s.kv_len + rows);
  if (!status.ok()) throw Error(status.code(), status.message());
  const auto first_row = static_cast<int32_t>(batch_.token.size());
  const auto newest = static_cast<uint32_t>(s.tokens().size()) - 1 - s.kv_len;  // from that row on, logits are wanted
  for (uint32_t i = 0; i < rows; ++i) {
    const auto row = first_row + static_cast<int32_t>(i);
    batch_.token.push_back(i <= newest ? s.tokens()[s.kv_len + i] : s.drafts[i - newest - 1]);
    batch_.position.push_back(static_cast<int32_t>(s.kv_len + i));
    batch_.slot.push_back(static_cast<int32_t>(s.slot));
    batch_.parent.push_back(i == 0 ? -1 : row - 1);
    if (i >= newest) batch_.out_row.push_back(row);
  }
  batch_.seq_slot.push_back(static_cast<int32_t>(s.slot));
  batch_.seq_row.push_back(first_row + static_cast<int32_t>(rows));
  batch_.kv_len[s.slot] = static_cast<int32_t>(s.kv_len);
  if (s.generating()) {
    batch_.drafted += rows - 1;
  } else {
    ++batch_.prompts;
    batch_.prompt_rows += rows;
  }
}

void Run::fill_batch() {
  states_.clear();
  for (Sequence* s : active_) {
    draft(*s);
    states_.push_back({s->pending(), s->generating()});
  }
  scheduler_.next(states_, {pipeline_.max_rows(), pipeline_.max_out_rows(true)}, shares_);
  batch_.clear();
  batch_.want_logits =
      std::any_of(active_.begin(), active_.end(), [](const Sequence* s) { return s->request().logprobs; });
  batch_.seq_row.push_back(0);
  for (const StepShare& share : shares_) add_rows(*active_[share.sequence], share.rows);
}

void Run::commit(Sequence& s, size_t share, size_t& out, const StepResult& result) {
  const int32_t begin = batch_.seq_row[share], end = batch_.seq_row[share + 1];
  const int32_t survivors = std::clamp(result.accepted[share], 1, end - begin);
  const bool in_prompt = !s.generating();
  if (!in_prompt) stats_.accepted += static_cast<uint64_t>(survivors - 1);
  s.kv_len += static_cast<uint32_t>(survivors);
  if (survivors < end - begin) pipeline_.truncate(s.slot, s.kv_len);
  const size_t vocab = pipeline_.model().vocab;
  const auto row_of = [&](size_t o) {
    return result.logits.empty() ? std::span<const float>() : result.logits.subspan(o * vocab, vocab);
  };
  const size_t text_before = s.text().size();
  bool on = true;
  for (; out < batch_.out_row.size() && batch_.out_row[out] < end; ++out) {
    if (!on || batch_.out_row[out] - begin >= survivors) continue;
    on = s.take(result.next[out], row_of(out));
    ++stats_.new_tokens;
  }
  if (trace_ != nullptr && s.text().size() > text_before && text_.size() < trace::kMaxText) {
    if (!text_.empty()) text_ += " | ";
    text_ += s.text().substr(text_before, trace::kMaxText);
  }
  if (!in_prompt) return;
  if (s.generating() && trace_ != nullptr) trace_->first_token(pipeline_.track(), s.request_id);
  if (s.request().on_prompt) s.request().on_prompt(std::min(s.kv_len, s.prompt_size()), s.prompt_size());
}

std::string_view Run::commit(const StepResult& result) {
  text_.clear();
  size_t out = 0;
  for (size_t i = 0; i < shares_.size(); ++i) commit(*active_[shares_[i].sequence], i, out, result);
  return text_;
}

void Run::account(double seconds, uint64_t new_tokens) {
  ++stats_.steps;
  stats_.drafted += batch_.drafted;
  stats_.prompt_tokens += batch_.prompt_rows;
  RequestTrace::Counts counts{.tokens_per_second = static_cast<double>(new_tokens) / seconds};
  for (const Sequence* s : active_) {
    counts.kv_bytes += static_cast<double>(pipeline_.kv_used_bytes(s->kv_len));
    counts.kv_blocks += static_cast<double>(pipeline_.kv_used_blocks(s->kv_len));
  }
  if (batch_.prompts > 0) {
    stats_.prompt_seconds += seconds;
  } else {
    stats_.decode_seconds += seconds;
    stats_.decode_tokens += new_tokens;
    stats_.decode_weight_bytes += static_cast<double>(pipeline_.step_weight_bytes());
    stats_.decode_kv_bytes += counts.kv_bytes;
    counts.read_gbps = (static_cast<double>(pipeline_.step_weight_bytes()) + counts.kv_bytes) / seconds / 1e9;
  }
  if (trace_ != nullptr) trace_->step(pipeline_.track(), counts);
}

bool Run::certain_to_go_on() const {
  if (batch_.prompts > 0 || pipeline_.draft_tokens() > 0 || shares_.size() != active_.size()) return false;
  return std::all_of(active_.begin(), active_.end(), [&](const Sequence* s) {
    const Request& r = s->request();
    const bool by_count_only = r.ignore_end && r.stop.empty() && !r.on_token;
    return s->tokens_left() > 1 && s->tokens().size() + 1 < pipeline_.capacity() && !r.cancel.stop_requested() &&
           (active_.size() == 1 || by_count_only);
  });
}

void Run::step() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  fill_batch();
  StepResult result;
  const uint64_t before = stats_.new_tokens;
  const Status status =
      pipeline_.step(batch_, result, certain_to_go_on(), [this](const StepResult& given) { return commit(given); });
  if (!status.ok()) throw Error(status.code(), status.message());
  account(std::chrono::duration<double>(Clock::now() - start).count(), stats_.new_tokens - before);
}

void Run::retire() {
  std::erase_if(active_, [&](Sequence* s) {
    if (!s->done() && s->request().cancel.stop_requested()) s->finish(FinishReason::kCancelled);
    if (!s->done()) return false;
    if (trace_ != nullptr) trace_->end(pipeline_.track(), s->request_id, s->generating());
    free_slots_.push_back(s->slot);
    return true;
  });
}

void Run::run(std::vector<Sequence>& sequences, uint64_t seed) {
  while (true) {
    admit(sequences, seed);
    retire();
    if (!active_.empty()) {
      step();
    } else if (next_ == sequences.size()) {
      return;
    }
  }
}

}  // namespace tenon
