// Models are computed on a context: one device with its queue and its memory,
// and the host services that components see.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../fault.h"
#include "device_memory.h"
#include "tenon/core/config.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/registry.h"

namespace tenon {

// Turns a status with its reason into an error of the component. `doing` completes "quantization.gguf: <doing>: <why>".
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
  fault::InComponent in_{instance_.id().c_str(), doing_.c_str()};
  char text_[512] = "";
  tenon_reason why_{text_, sizeof(text_)};
};

// This is a small op that a model names.
struct SmallOp {
  Instance instance;
  const tenon_small_op& table() const { return instance.table<tenon_small_op>(); }
};

// Thread: one at a time. The registry outlives it, and it outlives the instances that it creates.
class Context {
 public:
  // Throws Error(kPlugin) if the device cannot be had.
  Context(const PipelineConfig& config, Registry& registry, const PipelineOptions& options);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Returns an instance of what a configuration names, on this device. Throws Error at the place that names it.
  Instance create(const ComponentConfig& config);
  // Returns the names of the installed components of a kind that run on this device, sorted.
  std::vector<std::string> installed(std::string_view kind) const { return registry_.names(kind, device().kind); }
  // Makes an instance with the parameters that it has when nothing is stated. Throws Error.
  Instance create_default(const std::string& kind, const std::string& name);
  // Returns a small op by its name, made when it is first asked for. Throws Error(kPlugin): not there (with what is
  // installed), or of the same id as another one.
  const SmallOp& op(const std::string& name);

  const tenon_env* env() const { return &env_; }
  const tenon_device& device() const { return *env_.device; }
  bool queues() const { return (device().flags & TENON_DEVICE_WALKS) == 0; }
  // Everything runs on this queue; nullptr on a device that walks.
  void* queue() const { return queue_; }
  DeviceMemory& memory() { return *memory_; }

  // Enqueues a copy after what is there; src may be nullptr: zeros. What it reads must stay until the copy is done.
  Status copy(void* dst, const void* src, uint64_t bytes) const;
  // Enqueues a copy of what is put into `staged` first, which must stay as it is until the copy is done; a device that
  // walks needs no such place. Throws Error(kPlugin).
  void copy_staged(void* dst, const void* src, uint64_t bytes, std::byte* staged) const;
  // The copy is done when this returns. Throws Error(kPlugin).
  void copy_now(void* dst, const void* src, uint64_t bytes) const;
  // Returns when all that was enqueued is done. Throws Error.
  void wait() const;
  // Is called before components that may call the device by themselves: every function of a device makes it the calling
  // thread's current one, and a copy of nothing does only that.
  void enter() const {
    if (queues()) static_cast<void>(copy(nullptr, nullptr, 0));
  }

 private:
  struct HostCalls;
  Registry& registry_;
  std::function<void(uint32_t, const std::string&)> log_;
  tenon_host host_;
  tenon_env env_;
  Instance device_;
  void* queue_ = nullptr;
  std::unique_ptr<DeviceMemory> memory_;
  std::map<std::string, SmallOp> ops_;
};

}  // namespace tenon
