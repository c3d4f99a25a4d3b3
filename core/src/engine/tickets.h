// This passes between the threads that submit, cancel and take, and the one that steps. Nothing here waits for a step.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "sequence.h"
#include "tenon/core/engine.h"

namespace tenon {

// Thread: any, unless a function says otherwise.
class Tickets {
 public:
  // The sequence joins at the next step; its id is set, in the order of the calls.
  Ticket add(std::unique_ptr<Sequence> sequence);
  void cancel(Ticket ticket);
  bool done(Ticket ticket) const;
  // See Engine::take.
  std::optional<Result> take(Ticket ticket);

  // The thread that steps calls it. Appends what came since the last call.
  void collect(std::vector<std::unique_ptr<Sequence>>& joining, std::vector<Ticket>& cancelled);
  bool anything_new() const;
  // The thread that steps calls it: the ticket has its result; nullopt: somebody has had it already.
  void finish(Ticket ticket, std::optional<Result> result);

 private:
  mutable std::mutex mutex_;
  uint64_t last_ = 0;
  std::vector<std::unique_ptr<Sequence>> joining_;
  std::vector<Ticket> cancelled_;
  std::unordered_map<uint64_t, std::optional<Result>> open_;  // until they are taken
};

}  // namespace tenon
