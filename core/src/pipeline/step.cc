// This runs one step of a loaded pipeline: it writes the step state, launches the program of the least
// shape that fits, and reads what was chosen.
//
// On a device with queues the step after it may be launched ahead, before this one is read, if its rows are this step's
// moved on by what this one chooses. Invariants: at most one step is ahead, and it is read or dropped before anything
// else is launched; the next batch takes it only if its tokens, positions and slots are exactly those expected
// (is_ahead()). Tokens that leave here are within the vocabulary. Thread: the one that calls step().
#include <algorithm>
#include <thread>

#include "pipeline_impl.h"
#include "tenon/core/error.h"
#include "tenon/sdk/told.h"

namespace tenon {

const StepProgram* program_for(const StepBatch& batch, std::span<const StepProgram> programs) {
  const size_t rows = batch.token.size(), outs = batch.out_row.size();
  int32_t longest = 0;
  for (size_t s = 0; s + 1 < batch.seq_row.size(); ++s) {
    longest = std::max(longest, batch.seq_row[s + 1] - batch.seq_row[s]);
  }
  const StepProgram* best = nullptr;
  for (const StepProgram& p : programs) {
    const tenon_bounds& b = p.program->bounds();
    const bool masks_fit = batch.mask.empty() ? !p.masked || p.pool : p.masked;
    if (p.sample != batch.sample || p.pool != batch.pool || !masks_fit || p.round != batch.round || b.rows < rows ||
        b.out_rows < outs || b.rows_per_seq < static_cast<uint32_t>(longest)) {
      continue;
    }
    if (best == nullptr || b.rows < best->program->bounds().rows) best = &p;
  }
  return best;
}

Status Pipeline::Impl::reserve(uint32_t slot, uint32_t kv_len) const {
  Status status = target.reserve(slot, kv_len);
  return status.ok() && draft_model ? draft_model->reserve(slot, kv_len) : status;
}

// Before every launch, what reserve() and truncate() changed in the tables is enqueued.
Status Pipeline::Impl::publish_caches() const {
  Status status = target.publish();
  return status.ok() && draft_model ? draft_model->publish() : status;
}

Status Pipeline::Impl::launch(const StepBatch& batch) {
  running = program_for(batch, programs);
  restated = false;
  if (running == nullptr) {
    return Status::error(ErrorCode::kInternal, "no program takes " + std::to_string(batch.token.size()) + " rows and " +
                                                   std::to_string(batch.out_row.size()) + " rows of logits");
  }
  Status status = publish_caches();
  if (status.ok()) status = state.publish(batch);
  if (!status.ok()) return status;
  return run(batch);
}

// Runs the program of the batch; its masks are made while the model's ops are under way.
Status Pipeline::Impl::run(const StepBatch& batch) {
  StepLoad load{.rows = static_cast<double>(batch.token.size()),
                .context = 0,
                .step = steps,
                .phase = StepOrigins::kPhases[StepOrigins::phase_of(batch)]};
  for (const int32_t position : batch.position) load.context += position + 1;
  const auto make_masks = [&] { return running->masked ? masks.publish(batch) : Status(); };
  if (look) {
    Status status = make_masks();
    return status.ok() ? run_and_look(*running->program, batch) : status;
  }
  if (!running->masked) return runner->run(*running->program, load);
  return runner->run_in_two(*running->program, load, running->mask_op, make_masks);
}

// Launches the step after this one: the device moves its rows on by itself, by no more than they are. If the cache has
// no room, it has to wait.
Status Pipeline::Impl::launch_ahead(const StepBatch& batch) {
  for (size_t s = 0; s < batch.seq_slot.size(); ++s) {
    const int32_t first = batch.seq_row[s], rows = batch.seq_row[s + 1] - first;
    const int32_t length = batch.position[static_cast<size_t>(first)] + 2 * rows;
    const Status room = reserve(static_cast<uint32_t>(batch.seq_slot[s]), static_cast<uint32_t>(length));
    if (!room.ok()) return room.code() == ErrorCode::kMemory ? Status() : room;
  }
  Status status = publish_caches();
  if (!status.ok()) return status;
  StepLoad load{.rows = static_cast<double>(batch.token.size()),
                .context = 0,
                .step = steps + 1,
                .phase = StepOrigins::kPhases[StepOrigins::phase_of(batch)]};
  for (const int32_t position : batch.position) load.context += position + 2;
  status = runner->run(*running->program, load);
  if (!status.ok()) return status;
  ahead_pending = true;
  return {};
}

// The rows of the step that is under way are those of the batch, moved on by what it chose.
void Pipeline::Impl::expect_ahead(const StepBatch& batch, const StepResult& result) {
  ahead_token = batch.token;
  ahead_position = batch.position;
  ahead_slot = batch.slot;
  for (size_t s = 0; s < batch.seq_slot.size(); ++s) {
    const auto first = static_cast<size_t>(batch.seq_row[s]), end = static_cast<size_t>(batch.seq_row[s + 1]);
    const int32_t accepted = result.accepted[s];
    ahead_token[first] = result.next[first + static_cast<size_t>(accepted) - 1];
    for (size_t row = first; row < end; ++row) ahead_position[row] += accepted;
  }
}

bool Pipeline::Impl::is_ahead(const StepBatch& batch) const {
  return ahead_pending && batch.sample && !batch.pool && !batch.want_logits && batch.mask.empty() &&
         batch.round == running->round && (batch.drafted == 0 || batch.round) && batch.prompts == 0 &&
         batch.token == ahead_token && batch.position == ahead_position && batch.slot == ahead_slot;
}

// Nobody wants the step that was launched ahead: its sequences have ended.
Status Pipeline::Impl::drop_ahead() {
  if (!ahead_pending) return {};
  ahead_pending = false;
  StepBatch none;
  StepResult result;
  return state.read(none, false, *runner, result);
}

Status Pipeline::Impl::read(const StepBatch& batch, StepResult& result) {
  result = {};
  const uint32_t columns = target.out_columns();
  const size_t logits = batch.out_row.size() * columns;
  const auto* from = static_cast<const float*>(running->program->address(running->logits));
  if (!context.queues()) {
    result.logits = {from, logits};
  } else if (batch.want_logits || !batch.sample) {
    uint32_t rows = 0;
    for (const tenon_bounds& b : shapes) rows = std::max(rows, b.out_rows);
    if (host_logits == nullptr) {
      try {
        host_logits = static_cast<float*>(
            context.memory().alloc(TENON_SPACE_HOST, uint64_t{rows} * columns * sizeof(float), "logits for the host"));
      } catch (const Error& e) {
        return Status::error(e.code(), e.diagnostics().front().message);
      }
    }
    const Status copied = context.copy(host_logits, from, logits * sizeof(float));
    Status status = runner->finish();  // says more than the copy if a kernel has failed
    if (status.ok()) status = copied;
    if (!status.ok()) return status;
    result.logits = {host_logits, logits};
  }
  if (!batch.sample) return {};
  const Status status = state.read(batch, running->program->bounds().trees != 0, *runner, result);
  return status.ok() ? check_chosen(result) : status;
}

// Checks the selector's choices, which go on as tokens of the next step.
Status Pipeline::Impl::check_chosen(const StepResult& result) const {
  for (const int32_t token : result.next) {
    if (token == sdk::kNoLogits || token == sdk::kNoCandidates) continue;
    if (token >= 0 && static_cast<uint32_t>(token) < target.info().vocab) continue;
    return Status::error(ErrorCode::kPlugin, samplers.back().instance.id() + ": chooses token " +
                                                 std::to_string(token) + ", outside of the vocabulary of " +
                                                 std::to_string(target.info().vocab));
  }
  return {};
}

// Says whether the step after this one may be launched before this one is read. It is asked for as late as can be:
// whoever comes until then is in the next step, and would else wait for the end of that one, too.
bool Pipeline::Impl::wants_ahead(const StepBatch& batch, const GoesOn& goes_on) {
  // A program can be run again as it is only if its rows move on by themselves.
  const bool possible =
      goes_on && !restated && !look && context.queues() && running->moves_on && !running->masked && !batch.want_logits;
  if (!possible || !goes_on()) return false;
  const auto late = launch_time().after(began);
  if (late <= LaunchTime::Clock::now()) return true;
  std::this_thread::sleep_until(late);
  return goes_on();
}

Status Pipeline::Impl::step(const StepBatch& batch, const GoesOn& goes_on, StepResult& result) {
  context.enter();
  Status status;
  if (is_ahead(batch)) {
    ahead_pending = false;
  } else {
    status = drop_ahead();
    if (status.ok()) status = launch(batch);
    if (!status.ok()) return status;
    began = LaunchTime::Clock::now();
  }
  Status next;
  if (wants_ahead(batch, goes_on)) next = launch_ahead(batch);
  const auto launched = LaunchTime::Clock::now();
  status = read(batch, result);
  const auto ended = LaunchTime::Clock::now();
  if (ahead_pending) launch_time().add(ended - began, ended - launched);
  began = ended;
  if (status.ok()) status = next;
  if (ahead_pending) expect_ahead(batch, result);
  result.ahead = ahead_pending;
  return status;
}

Status Pipeline::step(const StepBatch& batch, StepResult& result, const GoesOn& goes_on, const Use& use) {
  trace::Recorder* recorder = impl_->options.recorder;
  if (recorder == nullptr) {
    Status status = impl_->step(batch, goes_on, result);
    if (status.ok() && use) use(result);
    return status;
  }
  recorder->begin_step();
  Status status;
  {
    const size_t phase = StepOrigins::phase_of(batch);
    trace::Span span(track(), impl_->origins->steps[phase]);
    {
      const trace::Span section(track(), impl_->origins->phases[phase]);
      status = impl_->step(batch, goes_on, result);
    }
    if (status.ok() && use) span.set_text(use(result));
    uint64_t accepted = 0;
    for (const int32_t n : result.accepted) accepted += static_cast<uint64_t>(n);
    const uint64_t rows = batch.token.size(), gen_rows = rows - batch.prompt_rows;
    const uint64_t gen_seqs = batch.seq_slot.size() - batch.prompts;
    // Rows that survive were drafts if they are neither prompt nor the newest token.
    const uint64_t given = batch.prompt_rows + gen_seqs;
    span.set({impl_->steps++, batch.prompts, batch.prompt_rows, gen_seqs, gen_rows, batch.drafted,
              accepted > given ? accepted - given : 0});
  }
  recorder->end_step();
  return status;
}

}  // namespace tenon
