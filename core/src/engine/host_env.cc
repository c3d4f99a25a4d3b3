#include "host_env.h"

#include <cstdlib>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {
namespace {

constexpr size_t kHostAlignment = 64;

// Such a component's memory beyond its own is the host's, whatever the pipeline's device is.
tenon_status host_alloc(void*, uint32_t, uint64_t bytes, const char*, void** out, tenon_reason* why) {
  *out = std::aligned_alloc(kHostAlignment, (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment);
  if (*out != nullptr) return TENON_OK;
  sdk::fill_reason(why, "out of host memory");
  return TENON_NO_SPACE;
}
void host_release(void*, void* p) {
  std::free(p);
}

}  // namespace

HostEnv::HostEnv(Log log)
    : log_(std::move(log)),
      host_(sdk::abi_struct<tenon_host>()),
      device_(sdk::abi_struct<tenon_device>()),
      env_(sdk::abi_struct<tenon_env>()) {
  host_.ctx = this;
  host_.alloc = &host_alloc;
  host_.release = &host_release;
  host_.log = [](void* ctx, uint32_t level, const char* message) {
    const Log& to = static_cast<HostEnv*>(ctx)->log_;
    if (to) to(level, message);
  };
  device_.kind = device_.name = kHostDevice.data();
  env_.host = &host_;
  env_.device = &device_;
}

Instance HostEnv::create(const ComponentConfig& config, Registry& registry) const {
  const LoadedComponent& component = registry.load(config.kind, config.name);
  try {
    return Instance(component, *config.params.abi(), env_);
  } catch (const Error& e) {
    throw Error(e.code(), config.where, e.diagnostics().front().message);
  }
}

}  // namespace tenon
