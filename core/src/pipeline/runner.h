// Runs the step programs of a pipeline on its device.
#pragma once

#include <functional>

#include "tenon/core/error.h"
#include "tenon/core/program.h"
#include "tenon/core/trace.h"

namespace tenon {

// Thread: one at a time.
class Runner {
 public:
  virtual ~Runner() = default;
  // [setup] Names the ops of a program, whose addresses are bound, in the trace, before its first run.
  virtual void prepare(const Program& program) = 0;
  // Nothing is allocated once the program has run twice. The step is done, or, on a device with queues, under way.
  virtual Status run(const Program& program, const StepLoad& load) = 0;
  // These two do the same: on a device with queues the ops before `middle` are under way after the first call, and what
  // is enqueued between the calls comes between them and the others; a device that walks runs all in the second call. No
  // other program runs in between, and a program always has the same `middle`.
  virtual Status run_first(const Program& program, const StepLoad& load, size_t middle) = 0;
  virtual Status run_rest(const Program& program, const StepLoad& load, size_t middle) = 0;
  // Waits until everything that is under way is done. If it fails, the steps' results are void.
  virtual Status finish() = 0;
  // Runs the first `ops` of a program, each of them done before done(op) is told of it, by whatever thread; nobody else
  // is told. It serves a look at what ops leave, and is slow.
  virtual Status run_each(const Program& program, size_t ops, const std::function<void(size_t op)>& done) = 0;
  // See Pipeline::watch.
  virtual Status watch(OpWatch watch) = 0;
  // Returns the track of the thread that calls run().
  virtual trace::Track& track() = 0;
};

}  // namespace tenon
