// This runs one step of a loaded pipeline: it writes the step state, launches the program of the least
// shape that fits, and reads what was chosen.
//
// On a device with queues the step after it may be launched ahead, before this one is read: its rows are this step's
// moved on by what this one chooses, or other ones, of which some take their token from this step. Invariants: at most
// one step is ahead, and it is read or dropped before anything else is launched; the next batch takes it only if its
// tokens, positions, slots, out rows and masks are exactly those expected (is_ahead()). Tokens that leave here are within
// the vocabulary. Thread: the one that calls step().
//
// Only the ops before its masks are launched ahead of a step that has some. The others follow when the step is taken: the
// tokens before it are known by then, and its masks are made while the model's ops are under way. A step that nobody takes is
// completed without masks, before anything is enqueued that changes what its last ops work on.
//
// Logits that the host wants are copied before the next step is launched, which writes its own over them: the copy
// stands between the two in the queue, and a number after it says when it is done, since to wait for the device would
// be to wait for the next step, too.
#include <algorithm>
#include <thread>
#include <utility>

#include "pipeline_impl.h"
#include "tenon/core/error.h"
#include "tenon/sdk/told.h"

namespace tenon {

namespace {

// Returns what the step has to do if its rows were moved on by so many tokens each.
StepLoad load_of(const StepBatch& batch, uint64_t step, int32_t moved = 0) {
  StepLoad load{.rows = static_cast<double>(batch.token.size()),
                .out_rows = static_cast<double>(batch.out_row.size()),
                .context = 0,
                .step = step,
                .phase = StepOrigins::kPhases[StepOrigins::phase_of(batch)]};
  for (const int32_t position : batch.position) load.context += position + 1 + moved;
  return load;
}

}  // namespace

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
  const Program& program = *running->program;
  const StepLoad load = load_of(batch, steps);
  const auto make_masks = [&] { return running->masked ? masks.publish(batch.mask, batch.fill_mask) : Status(); };
  if (look) {
    Status status = make_masks();
    return status.ok() ? run_and_look(program, batch) : status;
  }
  if (!running->masked) return runner->run(program, load);
  Status status = runner->run_first(program, load, running->mask_op);
  if (status.ok()) status = make_masks();
  return status.ok() ? runner->run_rest(program, load, running->mask_op) : status;
}

// Launches the program of the step after this one, without what needs its masks.
Status Pipeline::Impl::run_ahead(const StepProgram& program, const StepLoad& load, const StepBatch* batch) {
  Status status =
      program.masked ? runner->run_first(*program.program, load, program.mask_op) : runner->run(*program.program, load);
  if (!status.ok()) return status;
  ahead_pending = true;
  ahead_lacks_masks = program.masked;
  ahead_program = &program;
  ahead_load = load;
  ahead_batch = batch;
  return {};
}

// Launches the step after this one: the device moves its rows on by itself, by no more than they are. If the cache has
// no room, it has to wait.
Status Pipeline::Impl::launch_moved(const StepBatch& batch) {
  for (size_t s = 0; s < batch.seq_slot.size(); ++s) {
    const int32_t first = batch.seq_row[s], rows = batch.seq_row[s + 1] - first;
    const int32_t length = batch.position[static_cast<size_t>(first)] + 2 * rows;
    const Status room = reserve(static_cast<uint32_t>(batch.seq_slot[s]), static_cast<uint32_t>(length));
    if (!room.ok()) return room.code() == ErrorCode::kMemory ? Status() : room;
  }
  Status status = publish_caches();
  if (!status.ok()) return status;
  return run_ahead(*running, load_of(batch, steps + 1, 1), nullptr);
}

// Launches a step of other rows, for which there is room already.
Status Pipeline::Impl::launch_next(const StepBatch& next) {
  const StepProgram* program = program_for(next, programs);
  if (program == nullptr) return {};
  Status status = publish_caches();
  if (status.ok()) status = state.publish(next);
  const StepLoad load = load_of(next, steps + 1);
  const bool takes = std::any_of(next.from.begin(), next.from.end(), [](int32_t row) { return row >= 0; });
  if (status.ok() && takes) status = runner->run(*taking, load);
  if (status.ok()) status = run_ahead(*program, load, &next);
  if (status.ok()) restated = false;
  return status;
}

// Launches what is left of the step that is ahead. If it is not `wanted`, no row has a mask.
Status Pipeline::Impl::complete_ahead(bool wanted) {
  if (!std::exchange(ahead_lacks_masks, false)) return {};
  Status status = wanted ? masks.publish(ahead_mask, ahead_fill_mask) : masks.publish({}, {});
  if (!status.ok()) return status;
  return runner->run_rest(*ahead_program->program, ahead_load, ahead_program->mask_op);
}

// A step may be followed at once only where no look at results stands in between. The step after a short one is launched
// as late as can be: whoever comes until then is in that one, and would else wait for its end, too. How long steps with
// prompts take, nobody knows.
Status Pipeline::Impl::launch_ahead(const StepBatch& batch, const StepAhead& ahead) {
  const bool possible = context.queues() && !look && batch.sample && !batch.pool;
  if (!possible) return {};
  // A program can be run again as it is only if its rows move on by themselves.
  const bool moves = ahead.goes_on && !restated && running->moves_on;
  const bool other = ahead.next && taking;
  if (!other && !(moves && ahead.goes_on())) return {};
  const auto late = launch_time().after(began);
  if (batch.prompts == 0 && late > LaunchTime::Clock::now()) std::this_thread::sleep_until(late);
  if (moves && ahead.goes_on()) return launch_moved(batch);
  const StepBatch* next = other ? ahead.next() : nullptr;
  return next == nullptr ? Status() : launch_next(*next);
}

// The rows of the step that is under way are those of its batch, or of this one, moved on by what it chose.
void Pipeline::Impl::expect_ahead(const StepBatch& batch, const StepResult& result) {
  const StepBatch& rows = ahead_batch != nullptr ? *ahead_batch : batch;
  ahead_token = rows.token;
  ahead_position = rows.position;
  ahead_slot = rows.slot;
  ahead_out_row = rows.out_row;
  ahead_host_row = rows.host_row;
  ahead_mask = rows.mask;
  ahead_fill_mask = rows.fill_mask;
  if (ahead_batch != nullptr) {
    for (size_t row = 0; row < rows.from.size(); ++row) {
      if (rows.from[row] >= 0) ahead_token[row] = result.next[static_cast<size_t>(rows.from[row])];
    }
    return;
  }
  for (size_t s = 0; s < batch.seq_slot.size(); ++s) {
    const auto first = static_cast<size_t>(batch.seq_row[s]), end = static_cast<size_t>(batch.seq_row[s + 1]);
    const int32_t accepted = result.accepted[s];
    ahead_token[first] = result.next[first + static_cast<size_t>(accepted) - 1];
    for (size_t row = first; row < end; ++row) ahead_position[row] += accepted;
  }
}

bool Pipeline::Impl::is_ahead(const StepBatch& batch) const {
  return ahead_pending && batch.sample && !batch.pool && batch.round == ahead_program->round &&
         (batch.drafted == 0 || batch.round) && batch.out_row == ahead_out_row && batch.mask == ahead_mask &&
         batch.token == ahead_token && batch.position == ahead_position && batch.slot == ahead_slot;
}

// Nobody wants the step that was launched ahead: its sequences have ended.
Status Pipeline::Impl::drop_ahead() {
  if (!ahead_pending) return {};
  ahead_pending = logits_copied = false;
  Status status = complete_ahead(false);
  if (!status.ok()) return status;
  StepBatch none;
  StepResult result;
  return state.read(none, false, *runner, result);
}

// Enqueues the copy of some out rows of the program that was launched last.
Status Pipeline::Impl::copy_logits(const StepProgram& program, size_t first, size_t count) {
  const uint32_t columns = target.out_columns();
  if (host_logits == nullptr) {
    uint32_t rows = 0;
    for (const tenon_bounds& b : shapes) rows = std::max(rows, b.out_rows);
    const size_t words = size_t{rows} * columns;
    try {
      host_logits = static_cast<float*>(
          context.memory().alloc(TENON_SPACE_HOST, (words + 1) * sizeof(float), "logits for the host"));
    } catch (const Error& e) {
      return Status::error(e.code(), e.diagnostics().front().message);
    }
    host_logits_step = reinterpret_cast<uint32_t*>(host_logits + words);
    *host_logits_step = 0;
  }
  const size_t at = first * columns;
  const auto* from = static_cast<const float*>(program.program->address(program.logits));
  return context.copy(host_logits + at, from + at, count * columns * sizeof(float));
}

// Does so for the rows that the host wants of a step that samples. Rows side by side are one copy.
Status Pipeline::Impl::copy_logits(const StepProgram& program, std::span<const int32_t> rows) {
  if (!context.queues() || rows.empty()) return {};
  for (size_t i = 0, end = 0; i < rows.size(); i = end) {
    for (end = i + 1; end < rows.size() && rows[end] == rows[end - 1] + 1;) ++end;
    Status status = copy_logits(program, static_cast<size_t>(rows[i]), end - i);
    if (!status.ok()) return status;
  }
  return state.post_number(host_logits_step);
}

// `copied` says whether the copy of the logits was enqueued. Where both have failed, the step says more.
Status Pipeline::Impl::read(const StepBatch& batch, const Status& copied, StepResult& result) {
  result = {};
  const size_t rows = batch.out_row.size(), logits = rows * target.out_columns();
  const bool queues = context.queues();
  if (!queues) result.logits = {static_cast<const float*>(running->program->address(running->logits)), logits};
  if (!batch.sample) {
    if (!queues) return {};
    Status all = copy_logits(*running, 0, rows), status = runner->finish();
    result.logits = {host_logits, logits};
    return status.ok() ? all : status;
  }
  Status status = state.read(batch, running->program->bounds().trees != 0, *runner, result);
  if (status.ok()) status = copied;
  if (status.ok() && queues && !batch.host_row.empty()) {
    status = state.wait_for_number(host_logits_step, *runner);
    result.logits = {host_logits, logits};
  }
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

Status Pipeline::Impl::step(const StepBatch& batch, const StepAhead& ahead, StepResult& result) {
  context.enter();
  Status status;
  if (is_ahead(batch)) {
    ahead_pending = false;
    running = ahead_program;
    status = complete_ahead(true);
  } else {
    status = drop_ahead();
    if (status.ok()) status = launch(batch);
    began = LaunchTime::Clock::now();
  }
  if (!status.ok()) return status;
  const Status copied = logits_copied ? Status() : copy_logits(*running, batch.host_row);
  logits_copied = false;
  const Status next = copied.ok() ? launch_ahead(batch, ahead) : Status();
  const auto launched = LaunchTime::Clock::now();
  status = read(batch, copied, result);
  const auto ended = LaunchTime::Clock::now();
  // Where nothing could be launched, the device may have waited.
  if (ahead.goes_on && batch.prompts == 0) {
    launch_time().add(ended - began, ahead_pending ? ended - launched : LaunchTime::Clock::duration());
  }
  began = ended;
  if (status.ok()) status = next;
  if (!status.ok()) ahead_token.clear();  // nobody wants what is ahead
  if (ahead_pending && status.ok()) expect_ahead(batch, result);
  result.ahead = ahead_pending;
  return status;
}

Status Pipeline::step(const StepBatch& batch, StepResult& result, const StepAhead& ahead, const Use& use) {
  trace::Recorder* recorder = impl_->options.recorder;
  if (recorder == nullptr) {
    Status status = impl_->step(batch, ahead, result);
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
      status = impl_->step(batch, ahead, result);
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
