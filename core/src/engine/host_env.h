// A component that works on the host (a scheduler, a grammar) sees this of it, whatever the pipeline's device is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tenon/abi/plugin.h"
#include "tenon/core/config.h"
#include "tenon/core/registry.h"

namespace tenon {

// Instances outlive neither it nor the registry.
class HostEnv {
 public:
  using Log = std::function<void(uint32_t level, const std::string& message)>;
  explicit HostEnv(Log log);
  HostEnv(const HostEnv&) = delete;
  HostEnv& operator=(const HostEnv&) = delete;

  // Throws Error(kPlugin) at the place that names the component.
  Instance create(const ComponentConfig& config, Registry& registry) const;

 private:
  Log log_;
  tenon_host host_;
  tenon_device device_;
  tenon_env env_;
};

}  // namespace tenon
