// Invariants:
//  - A processor rewrites the candidates that the next sampler is given; a selector writes NEXT. Both are checked while
//    they are recorded (sampler_check.h), and what a processor leaves in a step is looked at by an op after it where the
//    device walks (candidates_check.h).
//  - VERIFY sees what every processor left (tenon/sdk/told.h): what is not finite is told as a row without candidates.
//  - What a sampler remembers is recorded after VERIFY, from what the sampler itself was given.
#include "token_choice.h"

#include "../cpu/candidates_check.h"
#include "sampler_check.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/fop.h"
#include "tenon/sdk/mask.h"
#include "tenon/sdk/recorder.h"
#include "tenon/sdk/told.h"

namespace tenon {
namespace {

tenon_sampling sampling_of(const ChainEntry& entry, ModelBuilder& builder, tenon_tid next) {
  auto s = sdk::abi_struct<tenon_sampling>();
  s.params = builder.state_records(entry.param_storage, entry.table().param_bytes);
  s.state = entry.state_bytes == 0 ? 0 : builder.state_records(entry.state_storage, entry.state_bytes);
  s.next = next;
  return s;
}

void enter_sampler(const ChainEntry& entry, ModelBuilder& builder) {
  builder.enter("sampler", entry.instance.id(), -1);
}

// Records the selector at the end of the chain over `given`.
void record_selector(const ChainEntry& entry, ModelBuilder& builder, const tenon_candidates& given, tenon_tid next) {
  ProgramRecording& rec = builder.recording();
  const tenon_sampling s = sampling_of(entry, builder, next);
  const size_t first_op = rec.op_count();
  Call call(entry.instance, "record");
  call.check(entry.table().record_select(entry.instance.self(), &s, &given, rec.recorder(), call.why()));
  if (!rec.error().empty()) return;  // That says more.
  const std::string problem = selection_problem(rec, first_op, next);
  if (!problem.empty()) throw Error(ErrorCode::kPlugin, entry.instance.id() + ": " + problem);
}

// Records a processor over `given`; the result is what it leaves. If it is `looked_at`, an op looks at that in every
// step.
tenon_candidates record_processor(const ChainEntry& entry, ModelBuilder& builder, const tenon_candidates& given,
                                  bool looked_at) {
  ProgramRecording& rec = builder.recording();
  const tenon_sampling s = sampling_of(entry, builder, 0);
  const size_t first_op = rec.op_count();
  tenon_candidates left = given;
  Call call(entry.instance, "record");
  call.check(entry.table().record_apply(entry.instance.self(), &s, &left, rec.recorder(), call.why()));
  if (!rec.error().empty()) return left;
  const std::string problem = candidates_problem(rec, first_op, given, left);
  if (!problem.empty()) throw Error(ErrorCode::kPlugin, entry.instance.id() + ": " + problem);
  if (!looked_at) return left;
  try {
    record_candidates_check(given, left, rec.recorder());
  } catch (const sdk::Failed&) {
    rec.check();  // The recording knows why it did not take the op.
    throw;
  }
  return left;
}

tenon_tid told_tensor(const ProgramContext& context, ProgramRecording& rec) {
  return rec.storage(context.state.told(), sdk::tensor(TENON_I32, {context.state.told_rows()}));
}

// Returns the candidates that the processors left, in their order. The first sampler was given the model's logits.
std::vector<sdk::Left> all_left(const std::vector<GivenCandidates>& given) {
  std::vector<sdk::Left> all;
  for (size_t i = 1; i < given.size(); ++i) {
    const tenon_candidates& left = given[i].candidates;
    const bool counted = left.form == TENON_SPARSE && left.count != 0;
    all.push_back({left.logits, counted ? left.count : 0, counted ? left.id : 0, counted ? left.cap : 0});
  }
  return all;
}

void record_verify(const ProgramContext& context, ModelBuilder& builder, const StepProgram& step) {
  ProgramRecording& rec = builder.recording();
  const std::string device = std::string("device.") + context.device.device().kind;
  builder.enter("verify", device, -1);
  const std::vector<sdk::Left> left = all_left(step.given);
  sdk::VerifyOp verify{sdk::abi_struct<tenon_fop>(), left.data(), left.size()};
  verify.op.h.size = sizeof(verify);
  verify.op.id = TENON_F_VERIFY;
  verify.set_logits(step.logits);
  verify.set_told(told_tensor(context, rec));
  const size_t first_op = rec.op_count();
  builder.record_step_op(verify.op, rec.step(TENON_STEP_NEXT), rec.step(TENON_STEP_ACCEPTED));
  if (rec.error().empty() && !rec.written_since(first_op, verify.told())) {
    throw Error(ErrorCode::kPlugin, device + " does not say which rows have logits that are not finite");
  }
}

// Lets the samplers remember the rows that survive.
void record_memory(const ProgramContext& context, ModelBuilder& builder, const StepProgram& step) {
  for (size_t i = 0; i < step.given.size(); ++i) {
    const ChainEntry& entry = context.samplers[i];
    if (remembers(entry)) record_accept(entry, builder, step.given[i].candidates);
  }
}

}  // namespace

bool remembers(const ChainEntry& entry) {
  return entry.state_bytes > 0 && entry.table().record_accept != nullptr;
}

void record_accept(const ChainEntry& entry, ModelBuilder& builder, const tenon_candidates& given) {
  ProgramRecording& rec = builder.recording();
  enter_sampler(entry, builder);
  const tenon_sampling s = sampling_of(entry, builder, rec.step(TENON_STEP_NEXT));
  Call call(entry.instance, "record accept");
  call.check(entry.table().record_accept(entry.instance.self(), &s, &given, rec.recorder(), call.why()));
}

tenon_tid record_mask(const ProgramContext& context, ModelBuilder& builder, tenon_tid logits) {
  ProgramRecording& rec = builder.recording();
  const StepMasks& masks = context.masks;
  builder.enter("mask", std::string("device.") + context.device.device().kind, -1);
  const sdk::MaskOp mask(rec.storage(masks.masks(), sdk::tensor(TENON_U32, {masks.rows(), masks.words()})),
                         rec.storage(masks.numbers(), sdk::tensor(TENON_I32, {masks.rows()})));
  const tenon_tid masked = builder.new_rows(context.target.info().vocab, "masked");
  tenon_fop op = mask.fop();
  builder.record_step_op(op, logits, masked);
  return masked;
}

std::vector<GivenCandidates> record_token_choice(const ProgramContext& context, ModelBuilder& builder, tenon_tid logits,
                                                 uint32_t vocab) {
  ProgramRecording& rec = builder.recording();
  auto candidates = sdk::abi_struct<tenon_candidates>();
  candidates.form = TENON_DENSE;
  candidates.vocab = vocab;
  candidates.cap = vocab;
  candidates.logits = logits;
  const tenon_tid next = rec.step(TENON_STEP_NEXT);
  std::vector<GivenCandidates> given;
  for (const ChainEntry& entry : context.samplers) {
    given.push_back({candidates, rec.op_count()});
    enter_sampler(entry, builder);
    if ((entry.table().in_forms & candidates.form) == 0) {
      throw Error(ErrorCode::kConfig, entry.instance.id() + " cannot work on what the sampler before it leaves");
    }
    if (entry.table().is_selector != 0) {
      record_selector(entry, builder, candidates, next);
    } else {
      candidates = record_processor(entry, builder, candidates, !context.device.queues());
    }
  }
  return given;
}

void record_verification(const ProgramContext& context, ModelBuilder& builder, const StepProgram& step) {
  record_verify(context, builder, step);
  record_memory(context, builder, step);
}

void record_advance(const ProgramContext& context, ModelBuilder& builder, bool moves_on) {
  ProgramRecording& rec = builder.recording();
  const StepState& state = context.state;
  builder.enter("advance", std::string("device.") + context.device.device().kind, -1);
  sdk::AdvanceOp advance{};
  advance.count = rec.storage(state.count(), sdk::tensor(TENON_U32, {1}));
  advance.entries = state.entries();
  advance.entry_words = state.entry_words();
  advance.moves_on = moves_on;
  advance.first_survivor = rec.bounds().trees != 0 ? state.first_survivor() : 0;
  tenon_tensor outbox = sdk::tensor(TENON_U32, {state.entries(), state.entry_words()});
  outbox.space = TENON_SPACE_HOST;
  tenon_fop op = advance.fop();
  builder.record_step_op(op, told_tensor(context, rec), rec.storage(state.outbox(), outbox));
}

}  // namespace tenon
