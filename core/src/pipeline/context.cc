// A context opens its device, hands components what they may call of the host, and makes them. Copies wait for the device's
// queue, or are staged where no step may wait for them.
#include "context.h"

#include <cstring>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {

Call::Call(const Instance& instance, std::string doing) : instance_(instance), doing_(std::move(doing)) {}

void Call::check(tenon_status status) const {
  if (status == TENON_OK) return;
  const std::string why = text_[0] != '\0' ? text_ : "failed without a reason (status " + std::to_string(status) + ")";
  throw Error(status == TENON_NO_SPACE ? ErrorCode::kMemory : ErrorCode::kPlugin,
              instance_.id() + ": " + doing_ + ": " + why);
}

// tenon_host points to these functions; ctx is the Context.
struct Context::HostCalls {
  static tenon_status alloc(void* ctx, uint32_t space, uint64_t bytes, const char* purpose, void** out,
                            tenon_reason* why) {
    return sdk::guard(why, [&] {
      try {
        *out = static_cast<Context*>(ctx)->memory_->alloc(space, bytes, purpose);
      } catch (const Error& e) {
        throw sdk::NoSpace(e.diagnostics().front().message);
      }
    });
  }
  static void release(void* ctx, void* p) { static_cast<Context*>(ctx)->memory_->release(p); }
  static void log(void* ctx, uint32_t level, const char* message) {
    const auto& to = static_cast<Context*>(ctx)->log_;
    if (to) to(level, message);
  }
};

Context::Context(const PipelineConfig& config, Registry& registry, const PipelineOptions& options)
    : registry_(registry), log_(options.log), host_(sdk::abi_struct<tenon_host>()), env_(sdk::abi_struct<tenon_env>()) {
  host_.ctx = this;
  host_.alloc = &HostCalls::alloc;
  host_.release = &HostCalls::release;
  host_.log = &HostCalls::log;
  env_.host = &host_;
  env_.ordinal = config.device_index;
  device_ = create(config.device);
  env_.device = &device_.table<tenon_device>();
  if (queues()) {
    Call call(device_, "make a queue");
    call.check(device().queue(device().self, &queue_, call.why()));
  }
  memory_ = std::make_unique<DeviceMemory>(*env_.device, queue_);
}

Instance Context::create(const ComponentConfig& config) {
  const LoadedComponent& component =
      registry_.load(config.kind, config.name, config.kind == "device" ? "" : device().kind);
  try {
    return Instance(component, *config.params.abi(), env_);
  } catch (const Error& e) {
    throw Error(e.code(), config.where, e.diagnostics().front().message);
  }
}

Instance Context::create_default(const std::string& kind, const std::string& name) {
  const LoadedComponent& component = registry_.load(kind, name, device().kind);
  const ParamValues params(*component.schema);
  return Instance(component, *params.abi(), env_);
}

const SmallOp& Context::op(const std::string& name) {
  if (const auto found = ops_.find(name); found != ops_.end()) return found->second;
  SmallOp made{create_default("op", name)};
  for (const auto& [other, op] : ops_) {
    if (op.table().id != made.table().id) continue;
    throw Error(ErrorCode::kPlugin, "op." + name + " and op." + other + " have the same id");
  }
  return ops_.emplace(name, std::move(made)).first->second;
}

Status Context::copy(void* dst, const void* src, uint64_t bytes) const {
  Call call(device_, "copy");
  if (device().copy(device().self, queue_, dst, src, bytes, call.why()) == TENON_OK) return {};
  return Status::error(ErrorCode::kPlugin, device_.id() + ": copy: " + call.text());
}

void Context::copy_staged(void* dst, const void* src, uint64_t bytes, std::byte* staged) const {
  if (queues() && src != nullptr) src = std::memcpy(staged, src, bytes);
  const Status status = copy(dst, src, bytes);
  if (!status.ok()) throw Error(status.code(), status.message());
}

void Context::copy_now(void* dst, const void* src, uint64_t bytes) const {
  Status status = copy(dst, src, bytes);
  if (!status.ok()) throw Error(status.code(), status.message());
  wait();
}

void Context::wait() const {
  if (!queues()) return;
  Call call(device_, "wait");
  call.check(device().wait(device().self, queue_, call.why()));
}

}  // namespace tenon
