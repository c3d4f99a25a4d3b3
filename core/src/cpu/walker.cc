// Runs a program on the threads of a team. Phases are numbered through the program; each has a count of chunks that are
// left to hand out and of chunks that are done. A thread takes a run of chunks, and whoever completes a phase's last
// chunk opens the next phase.
//
// Which thread takes which chunk does not change the result: chunks write what no other chunk of their phase reads or
// writes.
#include "walker.h"

#include <algorithm>
#include <utility>

#include "../fault.h"
#include "../program/checks.h"
#include "tenon/sdk/error.h"

namespace tenon {

struct Walker::Walk {
  const Program& program;
  const std::vector<trace::OriginId>* origins;
  const StepLoad& load;
  size_t ops;          // so many of the program's ops are walked
  uint64_t begin = 0;  // ticks
  std::atomic<bool> failed{false};
  char message[512] = "";
  size_t failed_op = 0;
};

// A cursor stands at a phase of an op; phases are numbered through the program.
struct Walker::Cursor {
  static constexpr uint32_t kEnd = UINT32_MAX;

  uint32_t number = 0, phase = 0;
  size_t op = 0;

  bool last_of_op(const std::vector<ProgramOp>& ops) const { return phase + 1 >= ops[op].phases; }
  void advance(const std::vector<ProgramOp>& ops) {
    last_of_op(ops) ? (++op, phase = 0) : ++phase;
    ++number;
  }
};

Walker::Walker(uint32_t threads, trace::Recorder* recorder)
    : recorder_(recorder), tracks_(threads, &idle_), team_(threads, [this](uint32_t thread) {
        if (recorder_ != nullptr) tracks_[thread] = &recorder_->add_track("worker " + std::to_string(thread));
      }) {}

void Walker::prepare(const Program& program) {
  if (recorder_ == nullptr) return;
  if (tracks_[0] == &idle_) tracks_[0] = &recorder_->add_track("main");
  std::vector<trace::OriginId>& origins = origins_[&program];
  for (const ProgramOp& op : program.ops()) {
    origins.push_back(recorder_->add_origin(trace::op_origin(op.path, op.component, op.name, op.layer)));
    if (static_cast<size_t>(op.layer) + 1 >= layer_origins_.size()) layer_origins_.resize(op.layer + 2);
    trace::OriginId& layer = layer_origins_[op.layer + 1];
    if (op.layer >= 0 && layer == 0) {
      layer = recorder_->add_origin(trace::section_origin("layer " + std::to_string(op.layer)));
    }
  }
}

Status Walker::watch(OpWatch watch) {
  watch_ = std::move(watch);
  return {};
}

Status Walker::run(const Program& program, const StepLoad& load) {
  Walk w{.program = program, .origins = nullptr, .load = load, .ops = program.ops().size()};
  const auto found = origins_.find(&program);
  if (found != origins_.end() && tracks_[0]->recording()) {
    w.origins = &found->second;
    ends_.resize(std::max(ends_.size(), program.ops().size()));
    w.begin = tracks_[0]->now();
  }
  if (watch_.begin) watch_.begin(program, load);
  return walk(w);
}

Status Walker::run_each(const Program& program, size_t ops, const std::function<void(size_t op)>& done) {
  const StepLoad nothing;
  Walk w{.program = program, .origins = nullptr, .load = nothing, .ops = ops};
  OpWatch others = std::exchange(watch_, {.op = [&done](const Program&, size_t op) {
                                   if (op > 0) done(op - 1);
                                 }});
  Status status = walk(w);
  watch_ = std::move(others);
  return status;
}

Status Walker::walk(Walk& w) {
  if (watch_.op) watch_.op(w.program, 0);
  open(w, {});
  auto job = [this, &w](uint32_t thread) { walk(w, thread); };
  team_.run(job);
  if (!w.failed.load(std::memory_order_acquire)) return {};
  const ProgramOp& op = w.program.ops()[w.failed_op];
  return Status::error(ErrorCode::kPlugin, op.path + ": " + op.component + " failed in " + op.name + ": " + w.message);
}

// Chunks are handed out in runs, first come first served: which thread takes which does not change the result.
void Walker::walk(Walk& w, uint32_t thread) {
  const std::vector<ProgramOp>& ops = w.program.ops();
  trace::Track& track = *tracks_[thread];
  const bool tracing = w.origins != nullptr && track.recording();
  const uint32_t threads = team_.size();
  uint64_t begin = w.begin, layer_begin = begin;
  const auto trace = [&](size_t i) {
    const ProgramOp& op = ops[i];
    const uint64_t values[] = {static_cast<uint64_t>(w.load.of(op, op.cost.read)),
                               static_cast<uint64_t>(w.load.of(op, op.cost.written)),
                               static_cast<uint64_t>(w.load.of(op, op.cost.flops))};
    track.span((*w.origins)[i], begin, ends_[i], values);
    begin = ends_[i];
    if (i + 1 < ops.size() && ops[i + 1].layer == ops[i].layer) return;
    if (ops[i].layer >= 0) track.span(layer_origins_[ops[i].layer + 1], layer_begin, begin);
    layer_begin = begin;
  };

  Cursor at;
  for (uint32_t turn = 0;;) {
    uint64_t front = front_.load(std::memory_order_acquire);
    const auto open_phase = static_cast<uint32_t>(front >> 32), next = static_cast<uint32_t>(front);
    for (; at.number < open_phase && at.op < w.ops; at.advance(ops)) {
      if (tracing && at.last_of_op(ops) && (open_phase != Cursor::kEnd || !w.failed)) trace(at.op);
    }
    if (open_phase == Cursor::kEnd) return;
    const uint32_t chunks = ops[at.op].chunks[at.phase];
    if (next >= chunks) {
      team_.pause(turn++);
      continue;
    }
    turn = 0;
    const uint32_t run = threads == 1 ? chunks : std::min(chunks - next, std::max(1U, chunks / (threads * 4)));
    if (!front_.compare_exchange_weak(front, front + run, std::memory_order_acq_rel)) continue;
    run_part(w, thread, at, next, next + run);
    if (done_.fetch_add(run, std::memory_order_acq_rel) + run == chunks) complete(w, thread, at);
  }
}

void Walker::complete(Walk& w, uint32_t thread, Cursor at) {
  const std::vector<ProgramOp>& ops = w.program.ops();
  if (at.last_of_op(ops)) {
    if (w.origins != nullptr) ends_[at.op] = tracks_[thread]->now();
    if (watch_.op) watch_.op(w.program, at.op + 1);
    if constexpr (TENON_CHECKED) fill_dead(w.program, at.op);
  }
  at.advance(ops);
  open(w, at);
}

void Walker::open(Walk& w, Cursor at) {
  const std::vector<ProgramOp>& ops = w.program.ops();
  const bool failed = w.failed.load(std::memory_order_relaxed);
  while (!failed && at.op < w.ops && ops[at.op].chunks[at.phase] == 0) {
    if (w.origins != nullptr) ends_[at.op] = at.op == 0 ? w.begin : ends_[at.op - 1];
    if (watch_.op && at.last_of_op(ops)) watch_.op(w.program, at.op + 1);
    at.advance(ops);
  }
  done_.store(0, std::memory_order_relaxed);
  const uint32_t number = failed || at.op == w.ops ? Cursor::kEnd : at.number;
  front_.store(uint64_t{number} << 32, std::memory_order_release);
}

void Walker::run_part(Walk& w, uint32_t thread, const Cursor& at, uint32_t begin, uint32_t end) {
  const ProgramOp& op = w.program.ops()[at.op];
  char text[sizeof(w.message)] = "";
  tenon_reason why{text, sizeof(text)};
  auto part = sdk::abi_struct<tenon_part>();
  part.launch = &w.program.launch(at.op);
  part.phase = at.phase;
  part.why = &why;
  const Program::Memory& memory = w.program.memory();
  part.thread_scratch = memory.thread_scratch + thread * memory.thread_scratch_stride;
  part.begin = begin;
  part.end = end;
  const fault::InComponent in(op.component.c_str(), op.name.c_str(), op.path.c_str());
  if (op.part(op.self, op.args.data(), &part) == TENON_OK || w.failed.exchange(true, std::memory_order_acq_rel)) return;
  std::copy(std::begin(text), std::end(text), std::begin(w.message));
  w.failed_op = at.op;
}

}  // namespace tenon
