// A pipeline holds these, in the order of their creation.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "context.h"
#include "launch_time.h"
#include "model_instance.h"
#include "runner.h"
#include "sampling.h"
#include "step_masks.h"
#include "step_origins.h"
#include "step_recording.h"
#include "step_state.h"
#include "tenon/core/pipeline.h"

namespace tenon {

struct Pipeline::Impl {
  Impl(const PipelineConfig& c, Registry& registry, const Weights& weights, const PipelineOptions& o);
  ~Impl();  // the runner goes first: nothing is under way when the components go

  // These are in build.cc.
  void check_device() const;
  void warn_of_capacity(uint32_t model_context) const;
  void declare();
  void choose_shapes();
  bool is_round(size_t shape) const { return draft_model && shape == round; }
  // Returns, ascending, the rows of the programs that choose tokens and are wanted.
  std::vector<uint32_t> rows_of_programs(bool (*wanted)(const tenon_bounds& bounds)) const;
  void declare_draft_model();
  void check_drafts();
  bool finds() const;
  uint32_t find(std::span<const int32_t> tokens, uint32_t& held) const;
  std::vector<const ModelInstance*> models() const;  // the target, and the draft model if there is one
  void record();
  std::vector<Program*> all_programs() const;
  void make_plan();
  // These are in load.cc.
  void load(const LoadProgress& progress);
  void fill(const LoadProgress& progress);
  void lock_weights() const;
  std::byte* place(MemoryKind kind);
  std::byte* alloc_guarded(uint32_t space, uint64_t bytes, const std::string& purpose);
  void link_programs();
  // These are in step.cc.
  Status reserve(uint32_t slot, uint32_t kv_len) const;
  Status publish_caches() const;
  Status launch(const StepBatch& batch);
  Status run(const StepBatch& batch);
  Status launch_moved(const StepBatch& batch);
  Status launch_next(const StepBatch& next);
  Status run_ahead(const StepProgram& program, const StepLoad& load, const StepBatch* batch);
  Status launch_ahead(const StepBatch& batch, const StepAhead& ahead);
  Status complete_ahead(bool wanted);
  bool is_ahead(const StepBatch& batch) const;
  Status drop_ahead();
  void expect_ahead(const StepBatch& batch, const StepResult& result);
  Status copy_logits(const StepProgram& program, std::span<const int32_t> rows);
  Status copy_logits(const StepProgram& program, size_t first, size_t count);
  Status read(const StepBatch& batch, const Status& copied, StepResult& result);
  Status check_chosen(const StepResult& result) const;
  Status step(const StepBatch& batch, const StepAhead& ahead, StepResult& result);
  LaunchTime& launch_time() { return launch_times[static_cast<size_t>(running - programs.data())]; }
  // These are in pipeline.cc. What a sequence begins with is its key and its samplers' records.
  uint64_t start_bytes() const { return kKeyBytes + staged_bytes(samplers); }
  void start(uint32_t slot, uint64_t seed, std::span<const Override> overrides);
  static constexpr uint64_t kKeyBytes = 4 * sizeof(uint32_t);
  // This is in remembering.cc.
  Status remember(uint32_t slot, std::span<const int32_t> tokens);
  // This is in explain.cc.
  class Explanation;
  // These are in look.cc.
  // Rows are those of a tensor of the model's, in the host's memory.
  struct Rows {
    const float* data;
    int64_t stride, columns;
    uint32_t count;
    float at(uint32_t row, int64_t column) const { return data[row * stride + column]; }
  };
  // Returns the first `count` rows of a tensor in f32. The buffer holds them on a device that has memory of its own.
  Rows rows_of(const Program& program, tenon_tid id, uint32_t count, std::vector<float>& buffer) const;
  std::vector<std::string> paths_with_results() const;
  Status run_and_look(const Program& program, const StepBatch& batch);

  PipelineConfig config;
  PipelineOptions options;
  Context context;
  StorageTable storages;
  ModelInstance target;
  std::unique_ptr<ModelInstance> draft_model;
  std::vector<ChainEntry> samplers;
  Instance draft;
  uint32_t capacity = 0, draft_tokens = 0;
  bool draft_trees = false;
  std::vector<tenon_bounds> shapes;
  std::vector<bool> shape_samples;
  size_t round = 0;  // the shape that drafts by itself; 0 if there is none
  std::vector<Decision> decisions;
  StepState state;
  StepMasks masks;
  DraftState draft_state;
  std::optional<uint32_t> staged;  // the storage of what sequences begin with, by slot, on devices with queues
  std::optional<uint32_t> pooled;  // the storage of pooled hidden states: f32[slots][2][width]
  std::vector<StepProgram> programs;
  std::unique_ptr<Program> taking;       // TENON_F_TAKE; nullptr: the device has no such op
  std::unique_ptr<Program> remembering;  // nullptr: nothing is adopted, or no sampler has to be told
  std::vector<SessionFact> session_facts;
  MemoryPlan plan;
  Program::Memory memory;
  std::unique_ptr<Runner> runner;
  std::optional<StepOrigins> origins;
  uint64_t steps = 0;
  bool load_failed = false;
  trace::Track no_track;

  const StepProgram* running = nullptr;  // the program of the step that is read next
  // If a step was launched before the result of the one before it was read, these say what its batch must be.
  bool ahead_pending = false;
  bool ahead_lacks_masks = false;  // only the ops before its masks are launched
  bool restated = false;  // true: the step state is that of other rows since then, so no step can follow by itself
  const StepProgram* ahead_program = nullptr;
  const StepBatch* ahead_batch = nullptr;  // nullptr: its rows are those before it, moved on
  StepLoad ahead_load;
  std::vector<int32_t> ahead_token, ahead_position, ahead_slot, ahead_out_row, ahead_host_row, ahead_mask;
  StepBatch::FillMask ahead_fill_mask;
  std::vector<LaunchTime> launch_times;  // by program
  LaunchTime::Clock::time_point began;   // when the device began with the step that runs, as far as the host knows
  std::vector<std::string> looked_at;    // paths of modules; see Pipeline::look_at
  Look look;
  // Devices with queues have these once somebody wants logits: room for the rows of a step, and the number of the step
  // that they are of.
  float* host_logits = nullptr;
  uint32_t* host_logits_step = nullptr;
  bool logits_copied = false;  // those of the step that is ahead
};

}  // namespace tenon
