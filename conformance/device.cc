#include "conformance/device.h"

#include "cpu/cpu_device.h"
#include "pipeline/device_memory.h"
#include "tenon/core/error.h"
#include "tenon/core/plugin_check.h"
#include "tenon/sdk/error.h"

namespace tenon::conformance {
namespace {

Instance device_of(Registry& registry, const std::string& name, const tenon_env& env) {
  const LoadedComponent& component = registry.load("device", name);
  return Instance(component, *example_values(*component.schema).abi(), env);
}

// These are the functions of tenon_host; ctx is the device's memory.
tenon_status host_alloc(void* ctx, uint32_t space, uint64_t bytes, const char* purpose, void** out, tenon_reason* why) {
  return sdk::guard(why, [&] {
    try {
      *out = static_cast<DeviceMemory*>(ctx)->alloc(space, bytes, purpose);
    } catch (const Error& e) {
      throw sdk::NoSpace(e.diagnostics().front().message);
    }
  });
}

}  // namespace

Device::Device(Registry& registry, const std::string& name, uint64_t isa)
    : host_(sdk::abi_struct<tenon_host>()), env_(sdk::abi_struct<tenon_env>()) {
  host_.alloc = &host_alloc;
  host_.release = [](void* ctx, void* p) { static_cast<DeviceMemory*>(ctx)->release(p); };
  host_.log = [](void*, uint32_t, const char*) {};
  env_.host = &host_;
  instance_ = device_of(registry, name, env_);
  table_ = instance_.table<tenon_device>();
  table_.isa &= isa;
  env_.device = &table_;
  if (!walks()) {
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    if (table_.queue(table_.self, &queue_, &why) != TENON_OK) throw Error(ErrorCode::kPlugin, text);
  }
  memory_ = std::make_unique<DeviceMemory>(table_, queue_);
  host_.ctx = memory_.get();
}

Device::~Device() = default;

const Device& Device::cpu() {
  static Registry registry;
  static const Device device = [] {
    register_cpu_device(registry);
    return Device(registry, "cpu");
  }();
  return device;
}

void Device::copy(void* dst, const void* src, uint64_t bytes) const {
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (table_.copy(table_.self, queue_, dst, src, bytes, &why) != TENON_OK) throw Error(ErrorCode::kPlugin, text);
  wait();
}

void Device::wait() const {
  if (walks()) return;
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (table_.wait(table_.self, queue_, &why) != TENON_OK) throw Error(ErrorCode::kPlugin, text);
}

void* Device::alloc(uint64_t bytes) const {
  return memory_->alloc(TENON_SPACE_DEVICE, bytes, "a check");
}

void Device::release(void* p) const {
  memory_->release(p);
}

Component::Component(const LoadedComponent& component, const Device& device, const std::vector<Setting>& settings)
    : device_(device) {
  ParamValues params = example_values(*component.schema);
  for (const auto& [key, value] : settings) {
    const size_t i = find_param(*component.schema, key);
    if (i == component.schema->count) throw Error(ErrorCode::kConfig, "no parameter " + key);
    if (const std::string problem = params.set(i, value); !problem.empty()) {
      throw Error(ErrorCode::kConfig, key + ": " + problem);
    }
  }
  instance_ = Instance(component, *params.abi(), device.env());
}

}  // namespace tenon::conformance
