#include "step_recording.h"

#include <algorithm>

#include "../cpu/candidates_check.h"
#include "sampler_check.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/told.h"

namespace tenon {
namespace {

tenon_sampling sampling_of(const ChainLink& link, ModelBuilder& builder, tenon_tid next) {
  auto s = sdk::abi_struct<tenon_sampling>();
  s.params = builder.state_records(link.param_storage, link.table().param_bytes);
  s.state = link.state_bytes == 0 ? 0 : builder.state_records(link.state_storage, link.state_bytes);
  s.next = next;
  return s;
}

// One link of the chain over *c, which a processor rewrites. Throws Error(kPlugin) for what it leaves; `checked`: what
// it leaves in a step is looked at there.
void record_link(const ChainLink& link, ModelBuilder& builder, tenon_tid next, bool checked, tenon_candidates& c) {
  ProgramRecording& rec = builder.recording();
  const tenon_sampler& table = link.table();
  builder.enter("sampler", link.instance.id(), -1);
  if ((table.in_forms & c.form) == 0) {
    throw Error(ErrorCode::kConfig, link.instance.id() + " cannot work on what the sampler before it leaves");
  }
  const bool selects = table.is_selector != 0;
  const tenon_sampling s = sampling_of(link, builder, selects ? next : 0);
  const tenon_candidates given = c;
  const size_t first_op = rec.op_count();
  Call call(link.instance, "record");
  call.check(selects ? table.record_select(link.instance.self(), &s, &c, rec.recorder(), call.why())
                     : table.record_apply(link.instance.self(), &s, &c, rec.recorder(), call.why()));
  if (!rec.error().empty()) return;  // that says more
  const std::string problem =
      selects ? selection_problem(rec, first_op, next) : candidates_problem(rec, first_op, given, c);
  if (!problem.empty()) throw Error(ErrorCode::kPlugin, link.instance.id() + ": " + problem);
  if (selects || !checked) return;
  try {
    record_candidates_check(given, c, rec.recorder());
  } catch (const sdk::Failed&) {
    rec.check();  // The recording knows why it did not take the op.
    throw;
  }
}

// The chain of samplers over the logits; the chosen tokens are NEXT. Gives what each of them was given.
std::vector<GivenCandidates> record_choice(const ProgramContext& context, ModelBuilder& builder, tenon_tid logits,
                                           uint32_t vocab) {
  ProgramRecording& rec = builder.recording();
  auto candidates = sdk::abi_struct<tenon_candidates>();
  candidates.form = TENON_DENSE, candidates.cap = candidates.vocab = vocab;
  candidates.logits = logits;
  const tenon_tid next = rec.step(TENON_STEP_NEXT);
  std::vector<GivenCandidates> given;
  for (const ChainLink& link : context.samplers) {
    given.push_back({candidates, rec.op_count()});
    record_link(link, builder, next, !context.device.queues(), candidates);
  }
  return given;
}

tenon_tid told_tensor(const ProgramContext& context, ProgramRecording& rec) {
  return rec.storage(context.state.told(), sdk::tensor(TENON_I32, {context.state.told_rows()}));
}

// What the processors left, the last of them first; of a longer chain only the last ones are looked at.
void name_left(const std::vector<GivenCandidates>& given, tenon_fop& verify) {
  uint32_t n = 0;
  for (size_t i = given.size(); i-- > 1 && n < sdk::kMostLeft; ++n) {
    const tenon_candidates& left = given[i].candidates;
    const tenon_tid count = left.form == TENON_SPARSE ? left.count : 0;
    if (n == 0) {
      verify.t[1] = left.logits, verify.t[2] = count;
    } else {
      verify.i[2 * n - 2] = static_cast<int32_t>(left.logits), verify.i[2 * n - 1] = static_cast<int32_t>(count);
    }
  }
}

// Which rows survive, and what the host is told. Throws Error(kPlugin) for a device that tells nothing.
void record_verify(const ProgramContext& context, ModelBuilder& builder, const StepProgram& step) {
  ProgramRecording& rec = builder.recording();
  const std::string device = std::string("device.") + context.device.device().kind;
  builder.enter("verify", device, -1);
  auto verify = sdk::abi_struct<tenon_fop>();
  verify.id = TENON_F_VERIFY;
  verify.t[0] = step.logits;
  name_left(step.given, verify);
  const tenon_tid told = verify.t[3] = told_tensor(context, rec);
  const size_t first_op = rec.op_count();
  builder.record_step_op(verify, rec.step(TENON_STEP_NEXT), rec.step(TENON_STEP_ACCEPTED));
  if (rec.error().empty() && !rec.written_since(first_op, told)) {
    throw Error(ErrorCode::kPlugin, device + " does not say which rows have logits that are not finite");
  }
}

// The verification, and what the samplers remember of the rows that survive it.
void record_verification(const ProgramContext& context, ModelBuilder& builder, const StepProgram& step) {
  ProgramRecording& rec = builder.recording();
  record_verify(context, builder, step);
  const tenon_tid next = rec.step(TENON_STEP_NEXT);
  for (size_t i = 0; i < step.given.size(); ++i) {
    const ChainLink& link = context.samplers[i];
    if (link.state_bytes == 0 || link.table().record_accept == nullptr) continue;
    builder.enter("sampler", link.instance.id(), -1);
    const tenon_sampling s = sampling_of(link, builder, next);
    Call call(link.instance, "record accept");
    call.check(
        link.table().record_accept(link.instance.self(), &s, &step.given[i].candidates, rec.recorder(), call.why()));
  }
}

// The op that ends a sampling step on a device with queues: the rows move on, and the host hears what was chosen.
void record_advance(const ProgramContext& context, ModelBuilder& builder, bool moves_on) {
  ProgramRecording& rec = builder.recording();
  const StepState& state = context.state;
  builder.enter("advance", std::string("device.") + context.device.device().kind, -1);
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_ADVANCE;
  op.t[0] = rec.storage(state.count(), sdk::tensor(TENON_U32, {1}));
  op.i[0] = static_cast<int32_t>(state.entries()), op.i[1] = static_cast<int32_t>(state.entry_words());
  op.i[2] = moves_on ? 1 : 0;
  op.i[3] = rec.bounds().trees != 0 ? static_cast<int32_t>(state.first_survivor()) : 0;
  tenon_tensor outbox = sdk::tensor(TENON_U32, {state.entries(), state.entry_words()});
  outbox.space = TENON_SPACE_HOST;
  builder.record_step_op(op, told_tensor(context, rec), rec.storage(state.outbox(), outbox));
}

// What ends every program: the choice of tokens and its verification, the caches' commit, the rows that move on.
void record_end(const ProgramContext& context, ModelBuilder& builder, StepProgram& step) {
  if (step.sample) {
    step.given = record_choice(context, builder, step.logits, context.target.info().vocab);
    record_verification(context, builder, step);
  }
  // Of chains the survivors lie in place already.
  if (step.sample && builder.recording().bounds().trees != 0) {
    builder.commit();
    if (context.draft != nullptr) {
      ModelBuilder draft(*context.draft, context.storages, builder.recording(), 0);
      draft.commit();
    }
  }
  if (step.sample && context.device.queues()) record_advance(context, builder, step.moves_on);
  const tenon_tid outputs[] = {step.logits};
  step.program = builder.recording().finish(outputs);
}

// The op before a pass: it takes what the pass before has chosen, and gives the pass its rows.
void record_pass_state(const ProgramContext& context, ProgramRecording& rec, uint32_t pass, uint32_t rows_per_seq) {
  const tenon_device& device = context.device.device();
  rec.scope(context.draft->name() + "rows", std::string("device.") + device.kind, -1);
  const auto tensor = [&](std::span<const uint32_t> state, uint32_t role) {
    const uint32_t storage = state[role];
    const tenon_format format = role == TENON_STEP_LIVE ? TENON_U32 : TENON_I32;
    return rec.storage(storage, sdk::tensor(format, {static_cast<int64_t>(context.storages[storage].bytes / 4)}));
  };
  const auto in_pass = [&](uint32_t role) { return tensor(context.draft_state.pass(), role); };
  const auto in_choice = [&](uint32_t role) { return tensor(context.draft_state.choice(), role); };
  auto to = sdk::abi_struct<tenon_draft_pass>();
  to.pass = pass, to.rows_per_seq = rows_per_seq, to.next = in_choice(TENON_STEP_NEXT);
  to.live = in_pass(TENON_STEP_LIVE), to.token = in_pass(TENON_STEP_TOKEN), to.pos = in_pass(TENON_STEP_POS);
  to.slot = in_pass(TENON_STEP_SLOT), to.parent = in_pass(TENON_STEP_PARENT);
  to.seq_row = in_pass(TENON_STEP_SEQ_ROW), to.kv_len = in_pass(TENON_STEP_KV_LEN);
  to.out_row = in_pass(TENON_STEP_OUT_ROW);
  to.choice_live = in_choice(TENON_STEP_LIVE), to.choice_row = in_choice(TENON_STEP_OUT_ROW);
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.record_draft_pass(device.self, &to, rec.recorder(), &why) == TENON_OK) return;
  throw Error(ErrorCode::kPlugin, std::string("device.") + device.kind + ": record a draft's pass: " + text);
}

// The draft model runs over the target's rows for its cache alone.
void record_one(const ProgramContext& context, ModelBuilder& builder, size_t shape, StepProgram& step) {
  step.logits = builder.record();
  step.model_ops = builder.recording().op_count(), step.heads = builder.read_heads();
  if (context.draft != nullptr && step.sample) {
    ModelBuilder draft(*context.draft, context.storages, builder.recording(), shape, ModelBuilder::Logits::kUnwanted);
    draft.record();
  }
  record_end(context, builder, step);
}

void record_passes(const ProgramContext& context, ModelBuilder& builder, size_t shape, StepProgram& step) {
  ProgramRecording& rec = builder.recording();
  const DraftState& state = context.draft_state;
  const tenon_bounds bounds = rec.bounds();
  for (uint32_t pass = 0; pass < bounds.rows_per_seq; ++pass) {
    rec.enter(bounds, context.state.storages());
    record_pass_state(context, rec, pass, bounds.rows_per_seq);
    rec.enter(state.pass_bounds(), state.pass());
    const bool last = pass + 1 == bounds.rows_per_seq;
    ModelBuilder draft(*context.draft, context.storages, rec, shape,
                       last ? ModelBuilder::Logits::kUnwanted : ModelBuilder::Logits::kWanted);
    const tenon_tid logits = draft.record();
    if (last) break;
    rec.enter(state.choice_bounds(), state.choice());
    record_choice(context, draft, logits, context.draft->info().vocab);
  }
  rec.enter(bounds, context.state.storages());
  step.logits = builder.record();
  record_end(context, builder, step);
}

using Record = void (*)(const ProgramContext&, ModelBuilder&, size_t, StepProgram&);
StepProgram record_with(Record record, const ProgramContext& context, const tenon_bounds& bounds, size_t shape,
                        StepProgram step) {
  ProgramRecording recording(bounds, context.storages, context.state.storages(), &context.largest);
  ModelBuilder builder(context.target, context.storages, recording, shape);
  try {
    record(context, builder, shape, step);
    return step;
  } catch (const Error&) {
    // A component that the recorder refused something just returns: the recorder knows why.
    recording.check();
    throw;
  }
}

}  // namespace

StepProgram record_step(const ProgramContext& context, const tenon_bounds& bounds, size_t shape, bool sample) {
  const bool moves_on = sample && bounds.rows_per_seq == 1;
  return record_with(&record_one, context, bounds, shape, {.program = nullptr, .sample = sample, .moves_on = moves_on});
}

StepProgram record_round(const ProgramContext& context, const tenon_bounds& bounds, size_t shape) {
  return record_with(&record_passes, context, bounds, shape,
                     {.program = nullptr, .sample = true, .moves_on = true, .round = true});
}

}  // namespace tenon
