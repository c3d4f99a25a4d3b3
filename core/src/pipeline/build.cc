// From a configuration to recorded programs and a plan: nothing here touches device memory.
#include <algorithm>

#include "pipeline_impl.h"
#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

// A model may have room for far more tokens than anyone means to use.
constexpr uint32_t kDefaultCapacity = 8192;
constexpr uint32_t kFewRows = 16;

}  // namespace

// Which batch shapes get a program: one new token each, drafts to verify, prompts, and scoring.
void Pipeline::Impl::choose_shapes() {
  const uint32_t seqs = std::max(1u, options.sequences);
  const uint32_t prefill = std::max(options.prefill_rows, seqs * (1 + draft_tokens));
  const auto add = [&](uint32_t rows, uint32_t rows_per_seq, uint32_t out_rows, bool sample) {
    auto b = sdk::abi_struct<tenon_bounds>();
    b.rows = rows, b.seqs = seqs, b.rows_per_seq = rows_per_seq, b.out_rows = out_rows;
    b.kv_len = capacity, b.slots = seqs, b.steps_ahead = parts.queues() ? 2 : 1, b.rank = 0, b.world = 1;
    shapes.push_back(b);
    shape_samples.push_back(sample);
  };
  add(seqs, 1, seqs, true);
  if (draft_tokens > 0) add(seqs * (1 + draft_tokens), 1 + draft_tokens, seqs * (1 + draft_tokens), true);
  // Short prompts and their rests: weights then pass once, as for one token, and not through a product of many rows.
  if (parts.queues() && prefill > kFewRows && shapes.back().rows < kFewRows)
    add(kFewRows, kFewRows, shapes.back().out_rows, true);
  if (prefill > shapes.back().rows_per_seq) add(prefill, prefill, shapes.back().out_rows, true);
  if (options.score_rows > 0) add(prefill, prefill, std::min(prefill, options.score_rows), false);
}

// What the configuration asks of the device itself.
void Pipeline::Impl::check_device() const {
  const tenon_device& device = parts.device();
  if (parts.queues()) return;
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

void Pipeline::Impl::declare() {
  check_device();
  const ModelKind& kind = model_kind_for(weights);
  info = kind.describe(weights);
  const uint32_t context = config.model.context != 0 ? config.model.context : info.context;
  capacity = config.capacity != 0 ? config.capacity : std::min(context, kDefaultCapacity);
  if (parts.draft) {
    draft_tokens = parts.draft.table<tenon_draft>().max_tokens(parts.draft.self());
    if ((parts.draft.table<tenon_draft>().flags & TENON_DRAFT_HOST) == 0) {
      throw Error(ErrorCode::kConfig, config.draft->where,
                  parts.draft.id() + " drafts on the device, which this engine does not run yet");
    }
  }
  declared = std::make_unique<Declared>(weights, storages, capacity);
  model = kind.build(weights, *declared);
  info = model->info();
  choose_shapes();
  negotiation = std::make_unique<Negotiation>(config, parts, *declared, shapes);
  negotiation->run();
  row_invariant_max = parts.attention.table<tenon_attention>().row_invariant_max;
  for (const Scheme& s : parts.schemes) row_invariant_max = std::min(row_invariant_max, s.table().row_invariant_max);
  if (draft_tokens > 0 && row_invariant_max < shapes[1].rows) {
    const std::string text = "verifying " + std::to_string(draft_tokens) + " drafts takes " +
                             std::to_string(shapes[1].rows) + " rows, but results are equal to single steps up to " +
                             std::to_string(row_invariant_max) + " rows only: text may differ from that without drafts";
    if (config.strict) throw Error(ErrorCode::kConfig, config.draft->where, text);
    negotiation->note("draft", text);
  }
  decisions = negotiation->decisions();
}

void Pipeline::Impl::add_state() {
  const uint64_t slots = shapes.front().slots;
  state.declare(storages, shapes, parts.queues());
  for (size_t i = 0; i < parts.samplers.size(); ++i) {
    ChainLink& link = parts.samplers[i];
    const std::string name = "sampler/" + std::to_string(i) + "." + link.name;
    link.state_bytes =
        link.table().state_bytes != nullptr ? link.table().state_bytes(link.instance.self(), info.vocab) : 0;
    link.param_storage = storages.add(name + "/params", MemoryKind::kState, slots * link.table().param_bytes);
    if (link.state_bytes > 0) {
      link.state_storage = storages.add(name + "/state", MemoryKind::kState, slots * link.state_bytes);
    }
  }
}

void Pipeline::Impl::record() {
  std::vector<tenon_kv_geometry> layers;
  for (const AttentionLayer& layer : declared->layers) {
    auto g = sdk::abi_struct<tenon_kv_geometry>();
    g.layer = static_cast<uint32_t>(layer.decl.layer), g.heads = layer.decl.kv_heads;
    g.k_dim = g.v_dim = layer.decl.head_dim, g.window = layer.decl.window;
    layers.push_back(g);
  }
  std::vector<const tenon_kv_geometry*> pointers;
  for (const tenon_kv_geometry& g : layers) pointers.push_back(&g);
  const tenon_bounds* largest = &shapes.front();
  for (const tenon_bounds& b : shapes) largest = b.rows > largest->rows ? &b : largest;
  auto footprint = sdk::abi_struct<tenon_footprint>();
  Call call(parts.kv_cache, "plan");
  call.check(parts.kv_cache.table<tenon_kv_cache>().plan(
      parts.kv_cache.self(), pointers.data(), static_cast<uint32_t>(pointers.size()), largest, &footprint, call.why()));
  if (footprint.n_stores > TENON_MAX_STORES) {
    throw Error(ErrorCode::kPlugin, parts.kv_cache.id() + " states more stores than there may be");
  }
  for (uint32_t i = 0; i < footprint.n_stores; ++i) {
    kv_stores.push_back(storages.add("kv_cache#" + std::to_string(i), MemoryKind::kKvCache, footprint.store_bytes[i]));
  }
  const ProgramContext context{parts, *declared, storages, state, kv_stores};
  for (size_t i = 0; i < shapes.size(); ++i) {
    programs.push_back(record_step(context, *model, shapes[i], i, shape_samples[i]));
  }
}

void Pipeline::Impl::make_plan() {
  for (size_t i = 0; i < storages.size(); ++i) {
    const Storage& s = storages[static_cast<uint32_t>(i)];
    plan.bytes[static_cast<size_t>(s.kind)] += s.kind == MemoryKind::kMapped ? s.bytes : align(s.bytes);
  }
  uint64_t activations = 0, scratch = 0, zeroed = 0, thread_scratch = 0;
  for (const StepProgram& p : programs) {
    activations = std::max(activations, p.program->activation_bytes());
    scratch = std::max(scratch, p.program->scratch_bytes());
    zeroed = std::max(zeroed, p.program->zeroed_bytes());
    thread_scratch = std::max(thread_scratch, p.program->thread_scratch_bytes());
  }
  memory.thread_scratch_stride = thread_scratch;
  plan.bytes[static_cast<size_t>(MemoryKind::kActivations)] = activations;
  const uint64_t threads = parts.queues() ? 0 : parts.device().units;
  plan.bytes[static_cast<size_t>(MemoryKind::kWorkspace)] = scratch + zeroed + thread_scratch * threads;
  plan.load_scratch = loader->scratch_bytes();
  plan.device_memory = parts.device().memory;
}

std::unique_ptr<Pipeline> Pipeline::build(const PipelineConfig& config, Registry& registry, const Weights& weights,
                                          const PipelineOptions& options) {
  std::unique_ptr<Pipeline> pipeline(new Pipeline);
  pipeline->impl_ = std::make_unique<Impl>(config, registry, weights, options);
  Impl& impl = *pipeline->impl_;
  impl.declare();
  impl.loader = std::make_unique<WeightLoader>(weights, *impl.declared, impl.storages, impl.parts);
  impl.loader->add_stores();
  impl.add_state();
  impl.record();
  impl.make_plan();
  return pipeline;
}

}  // namespace tenon
