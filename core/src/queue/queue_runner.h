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
  Status run_in_two(const Program& program, const StepLoad& load, size_t at,
                    const std::function<Status()>& between) override;
  Status run_each(const Program& program, size_t ops, const std::function<void(size_t op)>& done) override;
  Status finish() override;
  Status watch(OpWatch watch) override;
  trace::Track& track() override { return *track_; }

 private:
  struct Prepared {
    uint64_t runs = 0;
    void* graph = nullptr;
    void* second = nullptr;  // a program that is run in two has a graph of the ops from its middle on, too
  };
  // This has ops [first, end) of a program.
  struct Piece {
    const Program& program;
    size_t first, end;
  };
  Status run(const Program& program, const StepLoad& load, size_t middle, const std::function<Status()>& between);
  Status enqueue(const Program& program, const StepLoad& load, size_t middle, const std::function<Status()>& between);
  Status enqueue(const Piece& piece, bool as_graph, void*& graph);
  void release_graphs();
  void release(Prepared& prepared);
  Status launch(const Piece& piece, const OpWatch& watch);
  Status capture(const Piece& piece, void*& graph);
  Status launch_op(const Program& program, size_t op);
  std::string suspects() const;

  const tenon_device& device_;
  std::string device_id_;
  void* queue_;
  Execution execution_;
  trace::Recorder* recorder_;
  OpWatch watch_;
  trace::Track idle_;
  trace::Track* track_ = &idle_;
  std::map<const Program*, Prepared> prepared_;
  // The programs that were launched last, the newest first: a step, the tokens that it takes, the step before.
  std::array<const Program*, 3> recent_{};
};

}  // namespace tenon
