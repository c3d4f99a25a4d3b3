#include "walker.h"

#include <algorithm>

#include "tenon/sdk/error.h"

namespace tenon {

struct Walker::Walk {
  const Program& program;
  const std::vector<trace::SiteId>* sites;
  const StepLoad& load;
  std::atomic<bool> failed{false};
  bool stop = false;  // `failed` as all threads see it: changes inside a barrier only
  char message[512] = "";
  size_t failed_op = 0;
};

Walker::Walker(uint32_t threads, trace::Recorder* recorder)
    : recorder_(recorder), tracks_(threads, &idle_), barrier_(threads), team_(threads, [this](uint32_t thread) {
        if (recorder_ != nullptr) tracks_[thread] = &recorder_->add_track("worker " + std::to_string(thread));
      }) {}

void Walker::prepare(const Program& program) {
  if (recorder_ == nullptr) return;
  if (tracks_[0] == &idle_) tracks_[0] = &recorder_->add_track("main");
  std::vector<trace::SiteId>& sites = sites_[&program];
  for (const ProgramOp& op : program.ops()) {
    sites.push_back(recorder_->add_site(trace::op_site(op.path, op.component, op.name, op.layer)));
    if (static_cast<size_t>(op.layer + 1) >= layer_sites_.size()) layer_sites_.resize(op.layer + 2);
    trace::SiteId& layer = layer_sites_[op.layer + 1];
    if (op.layer >= 0 && layer == 0) {
      layer = recorder_->add_site(trace::section_site("layer " + std::to_string(op.layer)));
    }
  }
}

Status Walker::watch(OpWatch watch) {
  watch_ = std::move(watch);
  return {};
}

Status Walker::run(const Program& program, const StepLoad& load) {
  Walk w{.program = program, .sites = nullptr, .load = load};
  const auto found = sites_.find(&program);
  if (found != sites_.end()) w.sites = &found->second;
  next_chunk_.store(0, std::memory_order_relaxed);
  if (watch_.begin) watch_.begin(program, load);
  auto job = [this, &w](uint32_t thread) { walk(w, thread); };
  team_.run(job);
  if (!w.failed.load(std::memory_order_acquire)) return {};
  const ProgramOp& op = program.ops()[w.failed_op];
  return Status::error(ErrorCode::kPlugin, op.path + ": " + op.component + " failed in " + op.name + ": " + w.message);
}

void Walker::walk(Walk& w, uint32_t thread) {
  trace::Track& track = *tracks_[thread];
  const bool tracing = w.sites != nullptr && track.recording();
  const std::vector<ProgramOp>& ops = w.program.ops();
  uint64_t begin = tracing ? track.now() : 0;
  uint64_t layer_begin = begin;
  const bool watched = thread == 0 && watch_.op;
  for (size_t i = 0; i < ops.size(); ++i) {
    const ProgramOp& op = ops[i];
    if (watched) watch_.op(w.program, i);
    for (uint32_t phase = 0; phase < op.phases; ++phase) {
      run_phase(w, thread, i, phase);
      barrier_.arrive([&] {
        next_chunk_.store(0, std::memory_order_relaxed);
        w.stop = w.failed.load(std::memory_order_relaxed);
      });
      if (w.stop) return;
    }
    if (!tracing) continue;
    const uint64_t end = track.now();
    const uint64_t values[] = {static_cast<uint64_t>(w.load.of(op.cost.read)),
                               static_cast<uint64_t>(w.load.of(op.cost.written)),
                               static_cast<uint64_t>(w.load.of(op.cost.flops))};
    track.span((*w.sites)[i], begin, end, values);
    begin = end;
    if (i + 1 == ops.size() || ops[i + 1].layer != op.layer) {
      if (op.layer >= 0) track.span(layer_sites_[op.layer + 1], layer_begin, end);
      layer_begin = end;
    }
  }
  if (watched) watch_.op(w.program, ops.size());
}

// Chunks are handed out in runs, first come first served: which thread takes which does not change the result.
void Walker::run_phase(Walk& w, uint32_t thread, size_t i, uint32_t phase) {
  const ProgramOp& op = w.program.ops()[i];
  const uint32_t chunks = op.chunks[phase];
  const uint32_t threads = team_.size();
  const uint32_t run = std::max<uint32_t>(1, chunks / (threads * 4));
  char text[sizeof(w.message)] = "";
  tenon_reason why{text, sizeof(text)};
  auto part = sdk::abi_struct<tenon_part>();
  part.launch = &w.program.launch(i);
  part.phase = phase;
  part.thread = thread;
  part.threads = threads;
  part.why = &why;
  const Program::Memory& memory = w.program.memory();
  part.thread_scratch = memory.thread_scratch + thread * memory.thread_scratch_stride;
  while (true) {
    part.begin = threads == 1 ? 0 : next_chunk_.fetch_add(run, std::memory_order_relaxed);
    if (part.begin >= chunks) return;
    part.end = threads == 1 ? chunks : std::min(chunks, part.begin + run);
    if (op.part(op.self, op.args.data(), &part) != TENON_OK && !w.failed.exchange(true, std::memory_order_acq_rel)) {
      std::copy(std::begin(text), std::end(text), std::begin(w.message));
      w.failed_op = i;
    }
    if (threads == 1) return;
  }
}

}  // namespace tenon
