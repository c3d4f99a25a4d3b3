// What a pipeline holds, in the order of creation.
#pragma once

#include <optional>
#include <vector>

#include "components.h"
#include "declared.h"
#include "negotiation.h"
#include "runner.h"
#include "step_recording.h"
#include "step_sites.h"
#include "step_state.h"
#include "tenon/core/pipeline.h"
#include "weight_loader.h"

namespace tenon {

struct Pipeline::Impl {
  Impl(const PipelineConfig& c, Registry& registry, const Weights& w, const PipelineOptions& o)
      : config(c), weights(w), options(o), parts(c, registry, o) {}
  ~Impl();  // with the runner first: nothing is under way when the components go

  // build.cc
  void check_device() const;
  void declare();
  void choose_shapes();
  void add_state();
  void record();
  void make_plan();
  // load.cc
  void load(const LoadProgress& progress);
  void fill(const LoadProgress& progress);
  void map_weights();
  void lock_weights() const;
  std::byte* place(MemoryKind kind);
  void link_programs();
  // step.cc
  const StepProgram* program_for(const StepBatch& batch) const;
  Status launch(const StepBatch& batch);
  Status launch_ahead(const StepBatch& batch);
  bool is_ahead(const StepBatch& batch) const;
  Status drop_ahead();
  Status read(const StepBatch& batch, StepResult& result);
  Status step(const StepBatch& batch, bool ahead, StepResult& result);
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
  StepState state;
  std::vector<uint32_t> kv_stores;
  std::vector<StepProgram> programs;
  MemoryPlan plan;
  Program::Memory memory;
  std::unique_ptr<Runner> runner;
  std::optional<StepSites> sites;
  uint64_t steps = 0;
  bool load_failed = false;
  trace::Track no_track;

  const StepProgram* running = nullptr;  // the program of the last launch
  // The step that was launched before the result of the one before it was read: what its batch must be.
  bool ahead_pending = false;
  std::vector<int32_t> ahead_token, ahead_position, ahead_slot;
  float* host_logits = nullptr;  // on devices with queues, once somebody wants logits
};

}  // namespace tenon
