// A configuration becomes recorded programs and a plan of their memory: the models are declared, batch shapes chosen,
// components asked (negotiation.cc), storages added, programs recorded, and the bytes of each kind summed up. Nothing
// here touches device memory. Invariants: all storages are known before the first program is recorded; the programs
// share the storages and the room for activations, which is that of the largest; a program takes any batch within its
// bounds.
#include <algorithm>

#include "../cpu/memory_limit.h"
#include "pipeline_impl.h"
#include "remembering.h"
#include "session_facts.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

// A model may have room for far more tokens than anyone means to use.
constexpr uint32_t kDefaultCapacity = 8192;
constexpr uint32_t kFewRows = 16;
constexpr uint32_t kFirstHalfway = 48, kFirstMixedHalfway = 768;  // rows
// Steps of one row a sequence keep what row_invariant_max promises for so many sequences.
constexpr uint32_t kSteadySequences = 4;

// Takes the largest of each bound.
tenon_bounds largest_of(const std::vector<tenon_bounds>& shapes) {
  tenon_bounds all = shapes.front();
  for (const tenon_bounds& b : shapes) {
    for (uint32_t tenon_bounds::*bound :
         {&tenon_bounds::rows, &tenon_bounds::seqs, &tenon_bounds::rows_per_seq, &tenon_bounds::out_rows,
          &tenon_bounds::kv_len, &tenon_bounds::slots, &tenon_bounds::steps_ahead}) {
      all.*bound = std::max(all.*bound, b.*bound);
    }
  }
  return all;
}

// Returns "sampler.top_k (k = 40)" and the like.
std::string described(const Instance& instance, const ParamValues& params) {
  std::string values;
  for (size_t i = 0; i < params.schema().count; ++i) {
    values += (values.empty() ? "" : ", ") + std::string(spec_at(params.schema(), i).name) + " = " +
              value_text(params.get(i));
  }
  return values.empty() ? instance.id() : instance.id() + " (" + values + ")";
}

}  // namespace

// Chooses which batch shapes get a program; a step takes the smallest that fits. A pipeline for one sequence has steps
// of one row, of its drafts and of a prompt. With several sequences any number of rows comes up, so there are programs
// of 1, 2, 4, ... rows of three sorts: one row a sequence; drafts to verify; and any mix, for prompts beside sequences
// that generate. A device with queues has more, since a program takes as long for few live rows as for many: of the
// first sort 48, 96, 192, ... rows, of the last one 768, 1536, ... rows. Scoring has a program of its own.
void Pipeline::Impl::choose_shapes() {
  const uint32_t seqs = std::max(1u, options.sequences), verified = seqs * (1 + draft_tokens);
  const uint32_t prefill = std::max(options.prefill_rows, verified);
  const auto add = [&](uint32_t rows, uint32_t rows_per_seq, uint32_t out_rows, bool sample) {
    auto b = sdk::abi_struct<tenon_bounds>();
    b.rows = rows;
    b.seqs = std::min(rows, seqs);
    b.rows_per_seq = std::min(rows, rows_per_seq);
    b.out_rows = std::min(rows, out_rows);
    b.trees = draft_trees && sample && b.rows_per_seq > 1 ? 1 : 0;
    b.kv_len = capacity;
    b.slots = seqs;
    b.steps_ahead = context.queues() ? 2 : 1;
    shapes.push_back(b);
    shape_samples.push_back(sample);
  };
  const auto add_powers = [&](uint32_t first, uint32_t last, uint32_t rows_per_seq) {
    for (uint64_t rows = first; rows < last; rows *= 2) add(static_cast<uint32_t>(rows), rows_per_seq, verified, true);
    add(last, rows_per_seq, verified, true);
  };
  add_powers(1, seqs, 1);
  if (context.queues()) {
    for (uint64_t rows = kFirstHalfway; rows < seqs; rows *= 2) add(static_cast<uint32_t>(rows), 1, verified, true);
  }
  if (draft_model) {  // its rounds take as many rows of every sequence as there are drafts, and one more
    round = shapes.size();
    add(verified, 1 + draft_tokens, verified, true);
  } else if (draft_tokens > 0) {
    add_powers(seqs == 1 ? verified : 2, verified, 1 + draft_tokens);
  }
  // Short prompts, or rests of prompts, come next: weights pass once, as for one token, not through a product of many
  // rows.
  const bool few = prefill > kFewRows && (seqs > 1 || (context.queues() && verified < kFewRows));
  if (few && seqs > 1) {
    add_powers(kFewRows, prefill, prefill);
    for (uint64_t rows = kFirstMixedHalfway; context.queues() && rows < prefill; rows *= 2) {
      add(static_cast<uint32_t>(rows), prefill, verified, true);
    }
  } else {
    if (few) add(kFewRows, kFewRows, verified, true);
    if (prefill > shapes.back().rows_per_seq) add(prefill, prefill, verified, true);
  }
  if (options.score_rows > 0) add(prefill, prefill, options.score_rows, false);
}

// Checks what the configuration asks of the device itself.
void Pipeline::Impl::check_device() const {
  const tenon_device& device = context.device();
  if (context.queues()) return;
  const std::string name = std::string("device.") + device.kind;
  if (config.device_index != 0) {
    throw Error(ErrorCode::kConfig, config.device.where,
                name + ": there is one of it; found index = " + std::to_string(config.device_index) + ", expected 0");
  }
  if (config.execution == Execution::kGraph && config.strict) {
    throw Error(ErrorCode::kConfig, config.device.where,
                name +
                    " captures no graphs: pipeline.execution = \"graph\" would be \"recorded\"; say \"recorded\" or "
                    "\"auto\", or set pipeline.strict = false");
  }
}

Pipeline::Impl::Impl(const PipelineConfig& c, Registry& registry, const Weights& weights, const PipelineOptions& o)
    : config(c),
      options(o),
      context(c, registry, o),
      target({.config = c,
              .strict = c.strict,
              .weights = weights,
              .kind = o.model != nullptr ? std::shared_ptr<const ModelKind>(std::shared_ptr<void>(), o.model)
                                         : model_kind_for(weights, o.model_dirs),
              .range = o.range},
             context, storages),
      samplers(create_samplers(c, context)) {
  if (c.draft) draft = context.create(*c.draft);
  if (!c.draft_model) return;
  if (o.draft_weights == nullptr) throw Error(ErrorCode::kInternal, "a draft model without weights");
  const ModelSource source{.config = *c.draft_model,
                           .strict = c.strict,
                           .weights = *o.draft_weights,
                           .kind = model_kind_for(*o.draft_weights, o.model_dirs),
                           .name = "draft/"};
  draft_model = std::make_unique<ModelInstance>(source, context, storages);
  draft_tokens = c.draft_model->tokens;
}

void Pipeline::Impl::warn_of_capacity(uint32_t model_context) const {
  if (!options.log) return;
  options.log(kWarning, "kv_cache.capacity is " + std::to_string(capacity) + " tokens, the model's context " +
                            std::to_string(model_context) +
                            ": the model was not made for what comes after that, and its text there may mean "
                            "nothing");
}

void Pipeline::Impl::declare() {
  check_device();
  const ModelInfo info = target.describe();
  const uint32_t model_context = config.model.context != 0 ? config.model.context : info.context;
  capacity = config.capacity != 0 ? config.capacity : std::min(model_context, kDefaultCapacity);
  if (capacity > model_context) warn_of_capacity(model_context);
  if (draft) {
    draft_tokens = draft.table<tenon_draft>().max_tokens(draft.self());
    draft_trees = (draft.table<tenon_draft>().flags & TENON_DRAFT_TREES) != 0;
  }
  target.observe(options.observers);
  target.declare(capacity);
  choose_shapes();
  target.negotiate(shapes, options.all_rows);
  for (size_t i = 0; i < samplers.size(); ++i) {
    const std::string does = samplers[i].table().is_selector != 0 ? ", selects" : "";
    target.negotiation().note("sampler " + std::to_string(i + 1),
                              described(samplers[i].instance, samplers[i].params) + does);
  }
  if (draft) {
    target.negotiation().note("draft", described(draft, config.draft->params) + " proposes up to " +
                                           std::to_string(draft_tokens) + " tokens a step, verified in one step");
  }
  check_drafts();
  if (config.embeddings) {
    target.negotiation().note("embeddings",
                              "steps with such a request run programs of their own, which pool the final "
                              "hidden states");
  }
  decisions = target.negotiation().decisions();
  if (draft_model) declare_draft_model();
}

// The draft model takes part in every program: with its own rows in a round, with the target's in all others.
void Pipeline::Impl::declare_draft_model() {
  if (context.device().record_draft_pass == nullptr) {
    throw Error(ErrorCode::kConfig, config.draft_model->where,
                std::string("device.") + context.device().kind + " has no draft models");
  }
  draft_model->declare(capacity);
  if (draft_model->info().vocab != target.info().vocab) {
    throw Error(ErrorCode::kConfig, config.draft_model->where,
                "the draft model has a vocabulary of " + std::to_string(draft_model->info().vocab) +
                    " tokens and the model one of " + std::to_string(target.info().vocab) +
                    "; a draft model must have the vocabulary of its target");
  }
  std::vector<tenon_bounds> own = shapes;
  own[round].rows = own[round].out_rows = own[round].seqs;
  own[round].rows_per_seq = 1;
  draft_model->negotiate(own, options.all_rows);
  decisions.push_back({"draft", config.draft_model->model.path + ", " + std::to_string(draft_model->info().layers) +
                                    " layers: proposes " + std::to_string(draft_tokens) +
                                    " tokens a round, drafted and verified by one program"});
  for (const Decision& d : draft_model->negotiation().decisions()) decisions.push_back(d);
}

// Text is the same with drafts and without, and beside other sequences and without, as long as a row's
// result does not depend on the rows beside it.
void Pipeline::Impl::check_drafts() {
  const uint32_t invariant = target.row_invariant_max(), slots = shapes.front().slots,
                 verified = slots * (1 + draft_tokens);
  if (const uint32_t steady = std::min(invariant, kSteadySequences); invariant < UINT32_MAX && slots > steady) {
    target.negotiation().note("sequences", "in steps of more than " + std::to_string(steady) +
                                               " of them a text may depend on those beside it");
  }
  if (draft_tokens == 0 || invariant >= verified) return;
  const std::string text = "verifying " + std::to_string(draft_tokens) + " drafts takes " + std::to_string(verified) +
                           " rows, but results are equal to single steps up to " + std::to_string(invariant) +
                           " rows only: text may differ from that without drafts";
  if (config.strict) {
    throw Error(ErrorCode::kConfig, config.draft ? config.draft->where : config.draft_model->where, text);
  }
  target.negotiation().note("draft", text);
}

void Pipeline::Impl::record() {
  const tenon_bounds largest = largest_of(shapes);
  const ProgramContext shared{.device = context,
                              .target = target,
                              .draft = draft_model.get(),
                              .samplers = samplers,
                              .storages = storages,
                              .state = state,
                              .draft_state = draft_state,
                              .masks = masks,
                              .largest = largest,
                              .pooled = pooled};
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shape_samples[i] && !target.has_head()) continue;  // there is nothing to choose from
    const StepKind kind = shape_samples[i] ? StepKind::kSample : StepKind::kScore;
    programs.push_back(is_round(i) ? record_round(shared, shapes[i], i) : record_step(shared, shapes[i], i, kind));
    if (!options.masks || !shape_samples[i] || is_round(i)) continue;
    programs.push_back(record_step(shared, shapes[i], i, StepKind::kMasked));
  }
  // A step with a request for an embedding may have rows of any others beside: it has the shape of a step of prompts.
  for (size_t i = 0; pooled && i < shapes.size(); ++i) {
    if (!shape_samples[i] || is_round(i) || shapes[i].rows_per_seq != shapes[i].rows) continue;
    programs.push_back(record_step(shared, shapes[i], i, StepKind::kPool));
  }
  launch_times.resize(programs.size());
  if (finds() || options.load_sessions) remembering = record_remembering(shared, largest);
  taking = record_taking(shared, largest);
}

std::vector<Program*> Pipeline::Impl::all_programs() const {
  std::vector<Program*> all;
  for (const StepProgram& p : programs) all.push_back(p.program.get());
  if (remembering) all.push_back(remembering.get());
  if (taking) all.push_back(taking.get());
  return all;
}

void Pipeline::Impl::make_plan() {
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[static_cast<uint32_t>(i)];
    plan.bytes[static_cast<size_t>(s.kind)] += s.kind == MemoryKind::kMapped ? s.bytes : align(s.bytes);
  }
  uint64_t activations = 0, scratch = 0, zeroed = 0, thread_scratch = 0;
  for (const Program* p : all_programs()) {
    activations = std::max(activations, p->activation_bytes());
    scratch = std::max(scratch, p->scratch_bytes());
    zeroed = std::max(zeroed, p->zeroed_bytes());
    thread_scratch = std::max(thread_scratch, p->thread_scratch_bytes());
  }
  memory.thread_scratch_stride = thread_scratch;
  plan.bytes[static_cast<size_t>(MemoryKind::kActivations)] = activations;
  const uint64_t threads = context.queues() ? 0 : context.device().units;
  plan.bytes[static_cast<size_t>(MemoryKind::kWorkspace)] = scratch + zeroed + thread_scratch * threads;
  plan.load_scratch = std::max(target.load_scratch(), draft_model ? draft_model->load_scratch() : 0);
  plan.device_memory = context.device().memory;
  if (context.queues()) return;
  if (options.save_sessions) {
    const uint32_t tokens = target.endless() ? INT32_MAX : capacity;
    for (const ModelInstance* model : models()) plan.session_copy += model->kv_used_bytes(tokens);
  }
  MemoryLimit limit = memory_limit(options.system_root);
  if (limit.bytes >= plan.device_memory) return;
  plan.device_memory = limit.bytes;
  plan.limit = std::move(limit.file);
}

std::unique_ptr<Pipeline> Pipeline::build(const PipelineConfig& config, Registry& registry, const Weights& weights,
                                          const PipelineOptions& options) {
  std::unique_ptr<Pipeline> pipeline(new Pipeline);
  pipeline->impl_ = std::make_unique<Impl>(config, registry, weights, options);
  Impl& impl = *pipeline->impl_;
  impl.declare();
  impl.target.add_stores();
  if (impl.draft_model) impl.draft_model->add_stores();
  impl.state.declare(impl.storages, impl.shapes, impl.context.queues());
  if (config.embeddings) {
    const uint64_t floats = uint64_t{2} * impl.shapes.front().slots * impl.target.info().width;
    impl.pooled = impl.storages.add("step/pooled", MemoryKind::kState, floats * sizeof(float));
  }
  if (options.masks) impl.masks.declare(impl.storages, pipeline->max_out_rows(true), impl.target.info().vocab);
  if (impl.draft_model) impl.draft_state.declare(impl.storages, impl.shapes[impl.round], impl.state);
  declare_samplers(impl.samplers, impl.shapes.front().slots, impl.target.info().vocab, impl.storages);
  if (impl.context.queues())
    impl.staged =
        impl.storages.add("step/started", MemoryKind::kPinned, impl.start_bytes() * impl.shapes.front().slots);
  impl.record();
  impl.make_plan();
  if (options.load_sessions || options.save_sessions)
    impl.session_facts = tenon::session_facts(impl.target, impl.draft_model.get());
  return pipeline;
}

}  // namespace tenon
