// This is the engine's side of the kind `scheduler`: it asks the component, and holds its answer against the rules of
// tenon/abi/scheduler.h.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "host_env.h"
#include "tenon/core/config.h"
#include "tenon/core/registry.h"

namespace tenon {

// Thread: one at a time.
class Scheduler {
 public:
  using Log = HostEnv::Log;
  // Throws Error(kPlugin) if the component cannot be created or runs no sequence. The registry outlives it.
  Scheduler(const ComponentConfig& config, Registry& registry, Log log);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  uint32_t sequences() const { return sequences_; }  // at most so many run at once
  const std::string& id() const { return instance_.id(); }

  // This part of a tenon_workload is not about single sequences.
  struct Room {
    uint32_t rows = 0, free_slots = 0, page_tokens = 0, free_pages = 0;
    std::span<const uint32_t> program_rows = {};
  };
  struct Answer {
    std::span<const tenon_share> shares;
    std::span<const uint32_t> preempted;
  };
  // The answer is valid until the next call. Throws Error(kPlugin), with the component's reason or the rule that its
  // answer breaks. It allocates nothing once there were as many sequences.
  Answer next(std::span<const tenon_sequence> sequences, const Room& room);
  // Returns the index of the victim, `sequence` itself, or TENON_NO_SEQUENCE. Throws Error(kPlugin).
  uint32_t no_space(std::span<const tenon_sequence> sequences, const Room& room, uint32_t sequence);

 private:
  tenon_workload workload(std::span<const tenon_sequence> sequences, const Room& room);
  void check(std::span<const tenon_sequence> sequences, const Room& room, const tenon_schedule& answer);
  [[noreturn]] void wrong(const std::string& what) const;

  HostEnv env_;
  Instance instance_;
  uint32_t sequences_ = 0;
  std::vector<const tenon_sequence*> pointers_;
  std::vector<tenon_share> shares_;
  std::vector<uint32_t> preempted_;
  std::vector<bool> named_;  // in the answer that is checked
};

}  // namespace tenon
