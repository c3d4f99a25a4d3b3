// The instances of a pipeline and the host services that they see.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device_memory.h"
#include "tenon/core/config.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/registry.h"

namespace tenon {

// A status with its reason as an error of the component. `doing` completes "quantization.gguf: <doing>: <why>".
class Call {
 public:
  explicit Call(const Instance& instance, std::string doing);
  tenon_reason* why() { return &why_; }
  const char* text() const { return text_; }
  // Throws Error(kPlugin), or Error(kMemory) for TENON_NO_SPACE, unless the status is OK.
  void check(tenon_status status) const;

 private:
  const Instance& instance_;
  std::string doing_;
  char text_[512] = "";
  tenon_reason why_{text_, sizeof(text_)};
};

// A quantization scheme and the modules that it is for.
struct Scheme {
  std::string match;  // glob over module paths; "" = all
  Instance instance;
  const tenon_quantization& table() const { return instance.table<tenon_quantization>(); }
};

struct ChainLink {
  Instance instance;
  std::string name;
  ParamValues params;
  uint32_t param_storage = 0, state_storage = 0;
  uint64_t state_bytes = 0;  // a slot
  const tenon_sampler& table() const { return instance.table<tenon_sampler>(); }
};

// Instances in the order of creation; destroyed in reverse.
struct Components {
  Components(const PipelineConfig& config, Registry& registry, const PipelineOptions& options);

  const tenon_env* env() const { return &env_; }
  const tenon_device& device() const { return *env_.device; }
  bool queues() const { return (device().flags & TENON_DEVICE_WALKS) == 0; }
  void* queue() const { return queue_; }  // that everything runs on; nullptr on a device that walks
  // On the queue, behind what is there; src may be nullptr: zeros. What it reads must stay until that is done.
  Status copy(void* dst, const void* src, uint64_t bytes) const;
  // Before components are called that may call the device by themselves: every function of a device makes it the
  // calling thread's current one, and a copy of nothing does only that.
  void enter() const {
    if (queues()) static_cast<void>(copy(nullptr, nullptr, 0));
  }
  // Done when it returns. Throws Error(kPlugin).
  void copy_now(void* dst, const void* src, uint64_t bytes) const;
  const Scheme& scheme_for(const std::string& matrix, const std::string& site) const;

 private:
  struct HostCalls;
  Instance create(const ComponentConfig& config, Registry& registry);
  std::function<void(uint32_t, const std::string&)> log_;
  tenon_host host_;
  tenon_env env_;
  Instance device_;
  void* queue_ = nullptr;

 public:
  std::unique_ptr<DeviceMemory> memory;
  std::vector<Scheme> schemes;  // overrides in order, the default first; the last that matches holds
  Instance kv_cache, attention, draft;
  std::vector<ChainLink> samplers;  // the last is the selector
};

}  // namespace tenon
