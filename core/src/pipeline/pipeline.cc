#include "tenon/core/pipeline.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "../cpu/walker.h"
#include "components.h"
#include "declared.h"
#include "negotiation.h"
#include "step_recording.h"
#include "tenon/sdk/error.h"
#include "weight_loader.h"

namespace tenon {
namespace {

uint64_t aligned(uint64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

// A model may have room for far more tokens than anyone means to use.
constexpr uint32_t kDefaultCapacity = 8192;

}  // namespace

void StepBatch::clear() {
  for (auto* v : {&token, &position, &slot, &parent, &seq_slot, &seq_row, &out_row}) v->clear();
  prompts = prompt_rows = drafted = 0;
}

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

// How a step looks in the trace.
struct StepSites {
  explicit StepSites(trace::Recorder& recorder) {
    for (size_t i = 0; i < 3; ++i) {
      static constexpr const char* kPhases[] = {"decode", "verify", "prefill"};
      steps[i] = recorder.add_site(trace::step_site(kPhases[i]));
      phases[i] = recorder.add_site(trace::section_site(kPhases[i]));
    }
  }
  static size_t phase_of(const StepBatch& batch) { return batch.prompts > 0 ? 2 : batch.drafted > 0 ? 1 : 0; }

  std::array<trace::SiteId, 3> steps{}, phases{};
};

struct Pipeline::Impl {
  Impl(const PipelineConfig& c, Registry& registry, const Weights& w, const PipelineOptions& o)
      : config(c), weights(w), options(o), parts(c, registry, o) {}

  void check_device() const;
  void declare();
  void choose_shapes();
  void add_state();
  void record();
  void make_plan();
  void load(const LoadProgress& progress);
  void place(MemoryKind kind);
  const StepProgram* program_for(const StepBatch& batch) const;
  void publish(const StepBatch& batch);
  Status step(const StepBatch& batch, StepResult& result);
  void write(uint32_t role, const std::vector<int32_t>& values);
  std::byte* address(uint32_t storage) const { return static_cast<std::byte*>(storages[storage].address); }

  PipelineConfig config;
  const Weights& weights;
  PipelineOptions options;
  Components parts;
  StorageTable storages;
  std::unique_ptr<Declared> declared;
  std::unique_ptr<Model> model;
  ModelInfo info;
  uint32_t capacity = 0, draft_tokens = 0, row_invariant_max = 0;
  std::vector<tenon_bounds> shapes;
  std::vector<bool> shape_samples;
  std::unique_ptr<Negotiation> negotiation;
  std::vector<Decision> decisions;
  std::unique_ptr<WeightLoader> loader;
  std::vector<uint32_t> state, kv_stores;
  std::vector<StepProgram> programs;
  MemoryPlan plan;
  Program::Memory memory;
  std::unique_ptr<Walker> walker;
  std::optional<StepSites> sites;
  uint64_t steps = 0;
  trace::Track no_track;
};

// Which batch shapes get a program: one new token each, drafts to verify, prompts, and scoring.
void Pipeline::Impl::choose_shapes() {
  const uint32_t seqs = std::max(1u, options.sequences);
  const uint32_t prefill = std::max(options.prefill_rows, seqs * (1 + draft_tokens));
  const auto add = [&](uint32_t rows, uint32_t rows_per_seq, uint32_t out_rows, bool sample) {
    auto b = sdk::abi_struct<tenon_bounds>();
    b.rows = rows, b.seqs = seqs, b.rows_per_seq = rows_per_seq, b.out_rows = out_rows;
    b.kv_len = capacity, b.slots = seqs, b.steps_ahead = 1, b.rank = 0, b.world = 1;
    shapes.push_back(b);
    shape_samples.push_back(sample);
  };
  add(seqs, 1, seqs, true);
  if (draft_tokens > 0) add(seqs * (1 + draft_tokens), 1 + draft_tokens, seqs * (1 + draft_tokens), true);
  if (prefill > shapes.back().rows) add(prefill, prefill, shapes.back().out_rows, true);
  if (options.score_rows > 0) add(prefill, prefill, std::min(prefill, options.score_rows), false);
}

// What the configuration asks of the device itself.
void Pipeline::Impl::check_device() const {
  const tenon_device& device = parts.device();
  if ((device.flags & TENON_DEVICE_WALKS) == 0) return;
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
  const tenon_bounds& last = shapes.back();
  uint32_t rows = 0, out_rows = 0;
  for (const tenon_bounds& b : shapes) rows = std::max(rows, b.rows), out_rows = std::max(out_rows, b.out_rows);
  const auto add = [&](uint32_t role, const char* name, uint64_t words) {
    if (state.size() <= role) state.resize(role + 1);
    state[role] = storages.add(std::string("step/") + name, MemoryKind::kState, words * 4);
  };
  add(TENON_STEP_LIVE, "live", 4);
  add(TENON_STEP_TOKEN, "token", rows);
  add(TENON_STEP_POS, "pos", rows);
  add(TENON_STEP_SLOT, "slot", rows);
  add(TENON_STEP_PARENT, "parent", rows);
  add(TENON_STEP_SEQ_SLOT, "seq_slot", last.seqs);
  add(TENON_STEP_SEQ_ROW, "seq_row", last.seqs + 1);
  add(TENON_STEP_KV_LEN, "kv_len", last.slots);
  add(TENON_STEP_OUT_ROW, "out_row", out_rows);
  add(TENON_STEP_ADAPTER, "adapter", last.slots);
  add(TENON_STEP_RNG, "rng", uint64_t{last.slots} * 4);
  add(TENON_STEP_ACCEPTED, "accepted", last.seqs);
  add(TENON_STEP_NEXT, "next", out_rows);
  for (size_t i = 0; i < parts.samplers.size(); ++i) {
    ChainLink& link = parts.samplers[i];
    const std::string name = "sampler/" + std::to_string(i) + "." + link.name;
    link.state_bytes =
        link.table().state_bytes != nullptr ? link.table().state_bytes(link.instance.self(), info.vocab) : 0;
    link.param_storage =
        storages.add(name + "/params", MemoryKind::kState, uint64_t{last.slots} * link.table().param_bytes);
    if (link.state_bytes > 0) {
      link.state_storage = storages.add(name + "/state", MemoryKind::kState, last.slots * link.state_bytes);
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
    plan.bytes[static_cast<size_t>(s.kind)] += s.kind == MemoryKind::kMapped ? s.bytes : aligned(s.bytes);
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
  plan.bytes[static_cast<size_t>(MemoryKind::kWorkspace)] = scratch + zeroed + thread_scratch * parts.device().units;
  plan.load_scratch = loader->scratch_bytes();
  plan.device_memory = parts.device().memory;
}

// One block for all storages of a kind.
void Pipeline::Impl::place(MemoryKind kind) {
  const uint64_t bytes = plan.of(kind);
  auto* base = static_cast<std::byte*>(parts.memory->alloc_zeroed(TENON_SPACE_DEVICE, bytes, to_string(kind)));
  for (size_t i = 0; i < storages.size(); ++i) {
    Storage& s = storages[static_cast<uint32_t>(i)];
    if (s.kind != kind) continue;
    s.address = base;
    base += aligned(s.bytes);
  }
}

void Pipeline::Impl::load(const LoadProgress& progress) {
  if (plan.peak() > plan.device_memory) {
    throw Error(ErrorCode::kMemory, "the pipeline needs " + format_bytes(plan.peak()) + " and device " +
                                        parts.device().kind + " has " + format_bytes(plan.device_memory) +
                                        "; a smaller kv_cache.capacity (now " + std::to_string(capacity) +
                                        " tokens) or a smaller format of weights or cache needs less\n" +
                                        to_string(plan));
  }
  for (const Site& site : declared->sites) {
    for (const SiteGroup& group : site.groups) {
      for (size_t i = 0; i < group.stores.size(); ++i) {
        Storage& s = storages[group.stores[i]];
        if (s.kind != MemoryKind::kMapped) continue;
        const std::byte* bytes = weights.mapped(*site.decl.mats[group.mats[i]].source);
        s.address = const_cast<std::byte*>(bytes);  // recorded for reading only
      }
    }
  }
  place(MemoryKind::kWeights);
  place(MemoryKind::kTables);
  void* scratch = parts.memory->alloc(TENON_SPACE_DEVICE, plan.load_scratch, "converting weights");
  loader->load(parts.device(), static_cast<std::byte*>(scratch), progress);
  parts.memory->release(scratch);
  place(MemoryKind::kKvCache);
  place(MemoryKind::kState);
  std::vector<void*> stores;
  for (const uint32_t s : kv_stores) stores.push_back(storages[s].address);
  Call attach(parts.kv_cache, "attach");
  attach.check(
      parts.kv_cache.table<tenon_kv_cache>().attach(parts.kv_cache.self(), stores.data(), nullptr, attach.why()));

  const auto alloc = [&](uint64_t bytes, const char* purpose) {
    return static_cast<std::byte*>(parts.memory->alloc_zeroed(TENON_SPACE_DEVICE, bytes, purpose));
  };
  const uint64_t activations = plan.of(MemoryKind::kActivations), workspace = plan.of(MemoryKind::kWorkspace);
  memory.activations = alloc(activations, "activations");
  memory.thread_scratch = alloc(workspace, "workspace");
  memory.scratch = memory.thread_scratch + memory.thread_scratch_stride * parts.device().units;
  uint64_t scratch_bytes = 0;
  for (const StepProgram& p : programs) scratch_bytes = std::max(scratch_bytes, p.program->scratch_bytes());
  memory.zeroed = memory.scratch + scratch_bytes;
  walker = std::make_unique<Walker>(parts.device().units, options.recorder);
  for (StepProgram& p : programs) {
    p.program->link(storages, memory);
    walker->prepare(*p.program);
  }
  if (options.recorder != nullptr) sites.emplace(*options.recorder);
}

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

void Pipeline::Impl::write(uint32_t role, const std::vector<int32_t>& values) {
  const tenon_device& d = parts.device();
  if (!values.empty()) d.copy(d.self, nullptr, address(state[role]), values.data(), values.size() * 4, nullptr);
}

void Pipeline::Impl::publish(const StepBatch& batch) {
  const uint32_t live[4] = {static_cast<uint32_t>(batch.token.size()), static_cast<uint32_t>(batch.seq_slot.size()),
                            static_cast<uint32_t>(batch.out_row.size()), 0};
  const tenon_device& d = parts.device();
  d.copy(d.self, nullptr, address(state[TENON_STEP_LIVE]), live, sizeof(live), nullptr);
  write(TENON_STEP_TOKEN, batch.token);
  write(TENON_STEP_POS, batch.position);
  write(TENON_STEP_SLOT, batch.slot);
  write(TENON_STEP_PARENT, batch.parent);
  write(TENON_STEP_SEQ_SLOT, batch.seq_slot);
  write(TENON_STEP_SEQ_ROW, batch.seq_row);
  write(TENON_STEP_OUT_ROW, batch.out_row);
  write(TENON_STEP_KV_LEN, batch.kv_len);
}

Pipeline::Pipeline() = default;

Pipeline::~Pipeline() {
  if (!impl_) return;
  impl_->programs.clear();
  for (Site& site : impl_->declared ? impl_->declared->sites : std::vector<Site>{}) {
    for (SiteGroup& group : site.groups) {
      if (group.handle != nullptr) group.scheme->table().unbind(group.scheme->instance.self(), group.handle);
    }
  }
}

std::unique_ptr<Pipeline> Pipeline::build(const PipelineConfig& config, Registry& registry, const Weights& weights,
                                          const PipelineOptions& options) {
  std::unique_ptr<Pipeline> pipeline(new Pipeline);
  pipeline->impl_ = std::make_unique<Impl>(config, registry, weights, options);
  Impl& impl = *pipeline->impl_;
  impl.declare();
  impl.loader = std::make_unique<WeightLoader>(weights, *impl.declared, impl.storages);
  impl.loader->add_stores();
  impl.add_state();
  impl.record();
  impl.make_plan();
  return pipeline;
}

const ModelInfo& Pipeline::model() const {
  return impl_->info;
}
const MemoryPlan& Pipeline::plan() const {
  return impl_->plan;
}
const std::vector<Decision>& Pipeline::decisions() const {
  return impl_->decisions;
}
uint32_t Pipeline::capacity() const {
  return impl_->capacity;
}
uint32_t Pipeline::sequences() const {
  return impl_->shapes.front().seqs;
}
uint32_t Pipeline::draft_tokens() const {
  return impl_->draft_tokens;
}
uint32_t Pipeline::row_invariant_max() const {
  return impl_->row_invariant_max;
}
uint32_t Pipeline::threads() const {
  return impl_->parts.device().units;
}
const tenon_device& Pipeline::device() const {
  return impl_->parts.device();
}
uint64_t Pipeline::allocated() const {
  return impl_->parts.memory->used();
}
uint64_t Pipeline::high_water() const {
  return impl_->parts.memory->high_water();
}
void Pipeline::load(const LoadProgress& progress) {
  impl_->load(progress);
}

std::vector<const Program*> Pipeline::programs() const {
  std::vector<const Program*> list;
  for (const StepProgram& p : impl_->programs) list.push_back(p.program.get());
  return list;
}

uint32_t Pipeline::max_rows() const {
  uint32_t rows = 0;
  for (const tenon_bounds& b : impl_->shapes) rows = std::max(rows, b.rows);
  return rows;
}

uint32_t Pipeline::max_out_rows(bool sample) const {
  uint32_t rows = 0;
  for (size_t i = 0; i < impl_->shapes.size(); ++i) {
    if (impl_->shape_samples[i] == sample) rows = std::max(rows, impl_->shapes[i].out_rows);
  }
  return rows;
}

uint64_t Pipeline::weight_bytes() const {
  uint64_t sum = 0;
  for (const Site& site : impl_->declared->sites) {
    for (const SiteGroup& group : site.groups) {
      for (const uint32_t s : group.stores) sum += impl_->storages[s].bytes;
    }
  }
  return sum;
}

uint64_t Pipeline::step_weight_bytes() const {
  uint64_t sum = 0;
  for (const Site& site : impl_->declared->sites) {
    for (const SiteGroup& group : site.groups) {
      for (const uint32_t s : group.stores) sum += site.decl.product ? impl_->storages[s].bytes : 0;
    }
  }
  return sum;
}

void Pipeline::start_sequence(uint32_t slot, uint64_t seed, std::span<const Override> overrides) {
  std::vector<bool> used(overrides.size(), false);
  const tenon_device& d = impl_->parts.device();
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
    d.copy(d.self, nullptr, impl_->address(link.param_storage) + slot * record.size(), record.data(), record.size(),
           nullptr);
    if (link.state_bytes > 0) {
      d.copy(d.self, nullptr, impl_->address(link.state_storage) + slot * link.state_bytes, nullptr, link.state_bytes,
             nullptr);
    }
  }
  for (size_t i = 0; i < overrides.size(); ++i) {
    if (!used[i]) throw Error(ErrorCode::kRequest, "sampler." + overrides[i].first + ": the chain has no such sampler");
  }
  const uint32_t key[4] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32U), 0, 0};
  d.copy(d.self, nullptr, impl_->address(impl_->state[TENON_STEP_RNG]) + slot * sizeof(key), key, sizeof(key), nullptr);
  truncate(slot, 0);
  if (impl_->parts.draft && impl_->parts.draft.table<tenon_draft>().forget != nullptr) {
    impl_->parts.draft.table<tenon_draft>().forget(impl_->parts.draft.self(), slot);
  }
}

Status Pipeline::reserve(uint32_t slot, uint32_t kv_len) {
  const Instance& cache = impl_->parts.kv_cache;
  Call call(cache, "reserve");
  const tenon_status status = cache.table<tenon_kv_cache>().reserve(cache.self(), slot, kv_len, call.why());
  if (status == TENON_OK) return {};
  return Status::error(status == TENON_NO_SPACE ? ErrorCode::kMemory : ErrorCode::kPlugin,
                       cache.id() + ": " + call.text());
}

void Pipeline::truncate(uint32_t slot, uint32_t kv_len) {
  const Instance& cache = impl_->parts.kv_cache;
  Call call(cache, "truncate");
  call.check(cache.table<tenon_kv_cache>().truncate(cache.self(), slot, kv_len, call.why()));
}

uint64_t Pipeline::kv_used_bytes(uint32_t kv_len) const {
  const Instance& cache = impl_->parts.kv_cache;
  return cache.table<tenon_kv_cache>().used_bytes(cache.self(), kv_len);
}

uint32_t Pipeline::propose(uint32_t slot, std::span<const int32_t> tokens, std::span<int32_t> out) {
  const Instance& draft = impl_->parts.draft;
  if (!draft || out.empty()) return 0;
  uint32_t count = 0;
  Call call(draft, "propose");
  call.check(draft.table<tenon_draft>().propose(draft.self(), slot, tokens.data(), static_cast<uint32_t>(tokens.size()),
                                                out.data(), static_cast<uint32_t>(out.size()), &count, call.why()));
  return std::min<uint32_t>(count, static_cast<uint32_t>(out.size()));
}

trace::Track& Pipeline::track() {
  return impl_->walker ? impl_->walker->track() : impl_->no_track;
}

Status Pipeline::step(const StepBatch& batch, StepResult& result) {
  trace::Recorder* recorder = impl_->options.recorder;
  if (recorder == nullptr) return impl_->step(batch, result);
  recorder->begin_step();
  Status status;
  {
    const size_t phase = StepSites::phase_of(batch);
    trace::Span span(track(), impl_->sites->steps[phase]);
    const trace::Span section(track(), impl_->sites->phases[phase]);
    status = impl_->step(batch, result);
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

Status Pipeline::Impl::step(const StepBatch& batch, StepResult& result) {
  const StepProgram* p = program_for(batch);
  if (p == nullptr) {
    return Status::error(ErrorCode::kInternal, "no program takes " + std::to_string(batch.token.size()) + " rows and " +
                                                   std::to_string(batch.out_row.size()) + " rows of logits");
  }
  const Instance& cache = parts.kv_cache;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (cache.table<tenon_kv_cache>().publish(cache.self(), nullptr, &why) != TENON_OK) {
    return Status::error(ErrorCode::kPlugin, cache.id() + ": " + text);
  }
  publish(batch);
  StepLoad load{.rows = static_cast<double>(batch.token.size()), .context = 0};
  for (const int32_t position : batch.position) load.context += position + 1;
  const Status status = walker->run(*p->program, load);
  if (!status.ok()) return status;
  const auto ints = [&](uint32_t role, size_t n) {
    return std::span(reinterpret_cast<const int32_t*>(address(state[role])), n);
  };
  result.next = batch.sample ? ints(TENON_STEP_NEXT, batch.out_row.size()) : std::span<const int32_t>{};
  result.accepted = batch.sample ? ints(TENON_STEP_ACCEPTED, batch.seq_slot.size()) : std::span<const int32_t>{};
  result.logits =
      std::span(static_cast<const float*>(p->program->address(p->logits)), batch.out_row.size() * info.vocab);
  return {};
}

}  // namespace tenon
