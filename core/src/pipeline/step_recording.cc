// A program is recorded in the order in which its ops will run:
//
//   a step    the target's model; the draft model, for its cache alone; the end
//   a round   for each row of a sequence a pass of the draft model and, but for the last row, its choice of the next
//             token; the target's model; the end
//   the end   the choice of tokens, their verification, the caches' commit, the rows that move on
//
// A step that does not sample ends after the models. Every part runs with bounds and a step state of its own, which the
// recording enters before it: the rows of a step, the one row a sequence of a pass, or the out rows of a choice.
//
// A round is speculative decoding (Leviathan et al., arXiv:2211.17192) without its rejection sampling: samplers repeat
// themselves, so each draft is compared with what they choose for the target's row before it, and the text is the one
// that there would be without drafts.
#include "step_recording.h"

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/told.h"
#include "token_choice.h"

namespace tenon {
namespace {

// Survivors of chains lie in place already, those of trees are moved there.
void record_commits(const ProgramContext& context, ModelBuilder& builder) {
  if (builder.recording().bounds().trees == 0) return;
  builder.commit();
  if (context.draft == nullptr) return;
  ModelBuilder draft(*context.draft, context.storages, builder.recording(), 0);
  draft.commit();
}

void record_end(const ProgramContext& context, ModelBuilder& builder, StepProgram& step) {
  if (step.sample) {
    step.mask_op = builder.recording().op_count();
    const tenon_tid logits = step.masked ? record_mask(context, builder, step.logits) : step.logits;
    step.given = record_token_choice(context, builder, logits, context.target.info().vocab);
    record_verification(context, builder, step);
    record_commits(context, builder);
    if (context.device.queues()) record_advance(context, builder, step.moves_on);
  }
  const tenon_tid outputs[] = {step.logits};
  step.program = builder.recording().finish(outputs);
}

// The draft model runs over the target's rows for its cache alone.
void record_models(const ProgramContext& context, ModelBuilder& builder, size_t shape, StepProgram& step) {
  if (step.pool) builder.pool_in(*context.pooled);
  step.logits = builder.record();
  step.model_ops = builder.recording().op_count();
  step.heads = builder.read_heads();
  if (context.draft != nullptr && step.sample) {
    ModelBuilder draft(*context.draft, context.storages, builder.recording(), shape, ModelBuilder::Logits::kUnwanted);
    draft.record();
  }
  record_end(context, builder, step);
}

// Returns the step state of a pass and of its choice, as the device's op takes it.
sdk::DraftPass draft_pass(const ProgramContext& context, ProgramRecording& rec) {
  const auto tensor = [&](std::span<const uint32_t> state, uint32_t role) {
    const uint32_t storage = state[role];
    const tenon_format format = role == TENON_STEP_LIVE ? TENON_U32 : TENON_I32;
    return rec.storage(storage, sdk::tensor(format, {static_cast<int64_t>(context.storages[storage].bytes / 4)}));
  };
  const auto in_pass = [&](uint32_t role) { return tensor(context.draft_state.pass(), role); };
  const auto in_choice = [&](uint32_t role) { return tensor(context.draft_state.choice(), role); };
  sdk::DraftPass longer{sdk::abi_struct<tenon_draft_pass>(), 0, 0};
  longer.vocab = std::min(context.draft->info().vocab, context.target.info().vocab);
  tenon_draft_pass& to = longer.pass;
  to.h.size = sizeof(longer);
  to.next = in_choice(TENON_STEP_NEXT);
  to.live = in_pass(TENON_STEP_LIVE);
  to.token = in_pass(TENON_STEP_TOKEN);
  to.pos = in_pass(TENON_STEP_POS);
  to.slot = in_pass(TENON_STEP_SLOT);
  to.parent = in_pass(TENON_STEP_PARENT);
  to.seq_row = in_pass(TENON_STEP_SEQ_ROW);
  to.kv_len = in_pass(TENON_STEP_KV_LEN);
  to.out_row = in_pass(TENON_STEP_OUT_ROW);
  to.choice_live = in_choice(TENON_STEP_LIVE);
  to.choice_row = in_choice(TENON_STEP_OUT_ROW);
  return longer;
}

// Records the op before a pass: it takes what the pass before has chosen, and gives the pass its rows.
void record_pass_rows(const ProgramContext& context, ProgramRecording& rec, uint32_t pass, uint32_t rows_per_seq) {
  const tenon_device& device = context.device.device();
  const std::string id = std::string("device.") + device.kind;
  rec.scope(context.draft->name() + "rows", id, -1);
  sdk::DraftPass longer = draft_pass(context, rec);
  tenon_draft_pass& to = longer.pass;
  to.pass = pass;
  to.rows_per_seq = rows_per_seq;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (device.record_draft_pass(device.self, &to, rec.recorder(), &why) == TENON_OK) return;
  throw Error(ErrorCode::kPlugin, id + ": record a draft's pass: " + text);
}

// Records the draft model's run over one row of every sequence, and its choice of the next token. If it is `last`,
// nothing follows, and the pass is for the cache.
void record_draft_pass(const ProgramContext& context, ProgramRecording& rec, size_t shape, bool last) {
  const DraftState& state = context.draft_state;
  rec.enter(state.pass_bounds(), state.pass());
  ModelBuilder draft(*context.draft, context.storages, rec, shape,
                     last ? ModelBuilder::Logits::kUnwanted : ModelBuilder::Logits::kWanted);
  const tenon_tid logits = draft.record();
  if (last) return;
  rec.enter(state.choice_bounds(), state.choice());
  record_token_choice(context, draft, logits, context.draft->info().vocab);
}

void record_speculation(const ProgramContext& context, ModelBuilder& builder, size_t shape, StepProgram& step) {
  ProgramRecording& rec = builder.recording();
  const tenon_bounds bounds = rec.bounds();
  for (uint32_t pass = 0; pass < bounds.rows_per_seq; ++pass) {
    rec.enter(bounds, context.state.storages());
    record_pass_rows(context, rec, pass, bounds.rows_per_seq);
    record_draft_pass(context, rec, shape, pass + 1 == bounds.rows_per_seq);
  }
  rec.enter(bounds, context.state.storages());
  step.logits = builder.record();
  record_end(context, builder, step);
}

// Records `step` by one of the functions above.
using RecordProgram = void (*)(const ProgramContext&, ModelBuilder&, size_t shape, StepProgram&);
void record_program(RecordProgram record, const ProgramContext& context, const tenon_bounds& bounds, size_t shape,
                    StepProgram& step) {
  ProgramRecording recording(bounds, context.storages, context.state.storages(), &context.largest);
  ModelBuilder builder(context.target, context.storages, recording, shape,
                       step.pool ? ModelBuilder::Logits::kBesideAllRows : ModelBuilder::Logits::kWanted);
  try {
    record(context, builder, shape, step);
  } catch (const Error&) {
    // The recorder refused the component something, and it just returned: the recorder knows why.
    recording.check();
    throw;
  }
}

}  // namespace

StepProgram record_step(const ProgramContext& context, const tenon_bounds& bounds, size_t shape, StepKind kind) {
  StepProgram step;
  step.sample = kind != StepKind::kScore;
  step.pool = kind == StepKind::kPool;
  step.masked = kind == StepKind::kMasked || (step.pool && context.masks.rows() > 0);
  step.moves_on = step.sample && !step.pool && bounds.rows_per_seq == 1;
  record_program(&record_models, context, bounds, shape, step);
  return step;
}

std::unique_ptr<Program> record_taking(const ProgramContext& context, const tenon_bounds& bounds) {
  if (!context.device.queues()) return nullptr;
  const tenon_device& device = context.device.device();
  ProgramRecording rec(bounds, context.storages, context.state.storages(), &context.largest);
  rec.scope("take", std::string("device.") + device.kind, -1);
  const StepState& state = context.state;
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = TENON_F_TAKE;
  op.t[0] = rec.storage(state.told(), sdk::tensor(TENON_I32, {state.told_rows()}));
  const tenon_tid from = rec.storage(state.from(), sdk::tensor(TENON_I32, {bounds.rows}));
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  const tenon_tid token = rec.step(TENON_STEP_TOKEN);
  if (device.record_step_op(device.self, &op, from, token, rec.recorder(), &why) != TENON_OK) return nullptr;
  return rec.finish({});
}

StepProgram record_round(const ProgramContext& context, const tenon_bounds& bounds, size_t shape) {
  StepProgram step;
  step.sample = true;
  step.moves_on = true;
  step.round = true;
  record_program(&record_speculation, context, bounds, shape, step);
  return step;
}

}  // namespace tenon
