// Runs step programs on a device with queues: op by op, as a list, or as captured graphs.
#pragma once

#include <array>
#include <map>
#include <string>

#include "../pipeline/runner.h"
#include "tenon/abi/device.h"
#include "tenon/core/config.h"

namespace tenon {

class QueueRunner : public Runner {
 public:
  // The device, its queue and recorder (may be nullptr) outlive it.
  QueueRunner(const tenon_device& device, void* queue, Execution execution, trace::Recorder* recorder);
  ~QueueRunner() override;
  QueueRunner(const QueueRunner&) = delete;
  QueueRunner& operator=(const QueueRunner&) = delete;

  void prepare(const Program& program) override;
  Status run(const Program& program, const StepLoad& load) override;
  Status run_first(const Program& program, const StepLoad& load, size_t middle) override;
  Status run_rest(const Program& program, const StepLoad& load, size_t middle) override;
  Status run_each(const Program& program, size_t ops, const std::function<void(size_t op)>& done) override;
  Status finish() override;
  Status watch(OpWatch watch) override;
  trace::Track& track() override { return *track_; }

 private:
  struct Prepared {
    uint64_t runs = 0;
    void* graph = nullptr;
    void* second = nullptr;  // a program that is run in two has a graph of the ops from its middle on, too
    bool as_graph = false;   // its last run is one, both pieces of it
  };
  // This has ops [first, end) of a program.
  struct Piece {
    const Program& program;
    size_t first, end;
  };
  Status decide(const Program& program, const StepLoad& load, Prepared& prepared);
  Status enqueue(const Piece& piece, bool as_graph, void*& graph);
  Status blame(Status status);
  void release_graphs();
  void release(Prepared& prepared);
  Status launch(const Piece& piece, bool watched);
  Status capture(const Piece& piece, void*& graph);
  Status launch_op(const Program& program, size_t op);
  std::string suspects() const;

  const tenon_device& device_;
  std::string device_id_;
  void* queue_;
  Execution execution_;
  trace::Recorder* recorder_;
  OpWatch watch_;
  bool watched_ = false;  // the watch was told of the program that was begun last
  trace::Track idle_;
  trace::Track* track_ = &idle_;
  std::map<const Program*, Prepared> prepared_;
  // The programs that were launched last, the newest first: a step, the tokens that it takes, the step before.
  std::array<const Program*, 3> recent_{};
};

}  // namespace tenon
