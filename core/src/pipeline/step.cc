// One step of a loaded pipeline.
#include <algorithm>
#include <charconv>

#include "pipeline_impl.h"
#include "tenon/core/error.h"

namespace tenon {
namespace {

// A request's value as the parameter's type has it; a text where it cannot be, which set() then refuses with what is
// right.
ParamValue as_value(const tenon_param_spec& spec, const std::string& text) {
  const char* end = text.data() + text.size();
  if (spec.type == TENON_PARAM_BOOL && (text == "true" || text == "false")) return text == "true";
  int64_t integer = 0;
  if (spec.type == TENON_PARAM_INT) {
    const auto [at, error] = std::from_chars(text.data(), end, integer);
    if (error == std::errc() && at == end) return integer;
  }
  double real = 0;
  if (spec.type == TENON_PARAM_REAL) {
    const auto [at, error] = std::from_chars(text.data(), end, real);
    if (error == std::errc() && at == end) return real;
  }
  return text;
}

}  // namespace

const StepProgram* Pipeline::Impl::program_for(const StepBatch& batch) const {
  const size_t rows = batch.token.size(), outs = batch.out_row.size();
  int32_t longest = 0;
  for (size_t s = 0; s + 1 < batch.seq_row.size(); ++s) {
    longest = std::max(longest, batch.seq_row[s + 1] - batch.seq_row[s]);
  }
  const StepProgram* best = nullptr;
  for (const StepProgram& p : programs) {
    const tenon_bounds& b = p.program->bounds();
    if (p.sample != batch.sample || b.rows < rows || b.out_rows < outs ||
        b.rows_per_seq < static_cast<uint32_t>(longest)) {
      continue;
    }
    if (best == nullptr || b.rows < best->program->bounds().rows) best = &p;
  }
  return best;
}

void Pipeline::start_sequence(uint32_t slot, uint64_t seed, std::span<const Override> overrides) {
  impl_->parts.enter();
  std::vector<bool> used(overrides.size(), false);
  std::vector<std::byte> record;
  for (ChainLink& link : impl_->parts.samplers) {
    ParamValues values = link.params;
    for (size_t i = 0; i < overrides.size(); ++i) {
      if (!overrides[i].first.starts_with(link.name + ".")) continue;
      const std::string key = overrides[i].first.substr(link.name.size() + 1);
      const size_t index = find_param(values.schema(), key);
      const std::string problem =
          index == values.schema().count
              ? "has no parameter of that name"
              : values.set(index, as_value(spec_at(values.schema(), index), overrides[i].second));
      if (!problem.empty()) throw Error(ErrorCode::kRequest, "sampler." + overrides[i].first + ": " + problem);
      used[i] = true;
    }
    record.assign(link.table().param_bytes, std::byte{0});
    Call call(link.instance, "encode");
    call.check(link.table().encode(link.instance.self(), values.abi(), record.data(), call.why()));
    impl_->parts.copy_now(impl_->address(link.param_storage) + slot * record.size(), record.data(), record.size());
    if (link.state_bytes > 0) {
      impl_->parts.copy_now(impl_->address(link.state_storage) + slot * link.state_bytes, nullptr, link.state_bytes);
    }
  }
  for (size_t i = 0; i < overrides.size(); ++i) {
    if (!used[i]) throw Error(ErrorCode::kRequest, "sampler." + overrides[i].first + ": the chain has no such sampler");
  }
  const uint32_t key[4] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U), 0, 0};
  impl_->state.set_key(slot, key);
  truncate(slot, 0);
  if (impl_->parts.draft && impl_->parts.draft.table<tenon_draft>().forget != nullptr) {
    impl_->parts.draft.table<tenon_draft>().forget(impl_->parts.draft.self(), slot);
  }
}

Status Pipeline::Impl::launch(const StepBatch& batch) {
  running = program_for(batch);
  if (running == nullptr) {
    return Status::error(ErrorCode::kInternal, "no program takes " + std::to_string(batch.token.size()) + " rows and " +
                                                   std::to_string(batch.out_row.size()) + " rows of logits");
  }
  const Instance& cache = parts.kv_cache;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (cache.table<tenon_kv_cache>().publish(cache.self(), parts.queue(), &why) != TENON_OK) {
    return Status::error(ErrorCode::kPlugin, cache.id() + ": " + text);
  }
  Status status = state.publish(batch);
  if (!status.ok()) return status;
  StepLoad load{.rows = static_cast<double>(batch.token.size()),
                .context = 0,
                .step = steps,
                .phase = StepSites::kPhases[StepSites::phase_of(batch)]};
  for (const int32_t position : batch.position) load.context += position + 1;
  return runner->run(*running->program, load);
}

// The step behind this one: the device has moved its rows on by itself.
Status Pipeline::Impl::launch_ahead(const StepBatch& batch) {
  StepLoad load{.rows = static_cast<double>(batch.token.size()),
                .context = 0,
                .step = steps + 1,
                .phase = StepSites::kPhases[StepSites::phase_of(batch)]};
  for (const int32_t position : batch.position) load.context += position + 2;
  Status status = runner->run(*running->program, load);
  if (!status.ok()) return status;
  ahead_pending = true;
  ahead_position = batch.position;
  ahead_slot = batch.slot;
  for (int32_t& position : ahead_position) ++position;
  return {};
}

bool Pipeline::Impl::is_ahead(const StepBatch& batch) const {
  return ahead_pending && batch.sample && !batch.want_logits && batch.drafted == 0 && batch.prompts == 0 &&
         batch.token == ahead_token && batch.position == ahead_position && batch.slot == ahead_slot;
}

// Nobody wants the step that was launched ahead: its sequence has ended.
Status Pipeline::Impl::drop_ahead() {
  if (!ahead_pending) return {};
  ahead_pending = false;
  StepBatch none;
  StepResult result;
  return state.read(none, *runner, result);
}

Status Pipeline::Impl::read(const StepBatch& batch, StepResult& result) {
  result = {};
  const size_t logits = batch.out_row.size() * info.vocab;
  const auto* from = static_cast<const float*>(running->program->address(running->logits));
  if (!parts.queues()) {
    result.logits = {from, logits};
  } else if (batch.want_logits || !batch.sample) {
    uint32_t rows = 0;
    for (const tenon_bounds& b : shapes) rows = std::max(rows, b.out_rows);
    if (host_logits == nullptr) {
      try {
        host_logits = static_cast<float*>(
            parts.memory->alloc(TENON_SPACE_HOST, uint64_t{rows} * info.vocab * sizeof(float), "logits for the host"));
      } catch (const Error& e) {
        return Status::error(e.code(), e.diagnostics().front().message);
      }
    }
    const Status copied = parts.copy(host_logits, from, logits * sizeof(float));
    Status status = runner->finish();  // says more than the copy if a kernel has failed
    if (status.ok()) status = copied;
    if (!status.ok()) return status;
    result.logits = {host_logits, logits};
  }
  return batch.sample ? state.read(batch, *runner, result) : Status();
}

Status Pipeline::Impl::step(const StepBatch& batch, bool ahead, StepResult& result) {
  parts.enter();
  Status status;
  if (is_ahead(batch)) {
    ahead_pending = false;
  } else {
    status = drop_ahead();
    if (status.ok()) status = launch(batch);
    if (!status.ok()) return status;
  }
  // Only a program whose rows move on by themselves can be run again as it is.
  if (ahead && parts.queues() && running->moves_on && !batch.want_logits) status = launch_ahead(batch);
  if (status.ok()) status = read(batch, result);
  if (ahead_pending) ahead_token.assign(result.next.begin(), result.next.end());
  return status;
}

Status Pipeline::step(const StepBatch& batch, StepResult& result, bool ahead, const Use& use) {
  trace::Recorder* recorder = impl_->options.recorder;
  if (recorder == nullptr) {
    Status status = impl_->step(batch, ahead, result);
    if (status.ok() && use) use(result);
    return status;
  }
  recorder->begin_step();
  Status status;
  {
    const size_t phase = StepSites::phase_of(batch);
    trace::Span span(track(), impl_->sites->steps[phase]);
    {
      const trace::Span section(track(), impl_->sites->phases[phase]);
      status = impl_->step(batch, ahead, result);
    }
    if (status.ok() && use) span.set_text(use(result));
    uint64_t accepted = 0;
    for (const int32_t n : result.accepted) accepted += static_cast<uint64_t>(n);
    const uint64_t rows = batch.token.size(), gen_rows = rows - batch.prompt_rows;
    const uint64_t gen_seqs = batch.seq_slot.size() - batch.prompts;
    // Of the rows that survive, those that are neither prompt nor the newest token were drafts.
    const uint64_t given = batch.prompt_rows + gen_seqs;
    span.set({impl_->steps++, batch.prompts, batch.prompt_rows, gen_seqs, gen_rows, batch.drafted,
              accepted > given ? accepted - given : 0});
  }
  recorder->end_step();
  return status;
}
}  // namespace tenon
