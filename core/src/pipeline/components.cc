#include "components.h"

#include <fnmatch.h>

#include "tenon/sdk/error.h"

namespace tenon {

Call::Call(const Instance& instance, std::string doing) : instance_(instance), doing_(std::move(doing)) {}

void Call::check(tenon_status status) const {
  if (status == TENON_OK) return;
  const std::string why = text_[0] != '\0' ? text_ : "failed without a reason (status " + std::to_string(status) + ")";
  throw Error(status == TENON_NO_SPACE ? ErrorCode::kMemory : ErrorCode::kPlugin,
              instance_.id() + ": " + doing_ + ": " + why);
}

// The functions behind tenon_host; ctx is the Components.
struct Components::HostCalls {
  static tenon_status alloc(void* ctx, uint32_t space, uint64_t bytes, const char* purpose, void** out,
                            tenon_reason* why) {
    return sdk::guard(why, [&] {
      try {
        *out = static_cast<Components*>(ctx)->memory->alloc(space, bytes, purpose);
      } catch (const Error& e) {
        throw sdk::NoSpace(e.diagnostics().front().message);
      }
    });
  }
  static void release(void* ctx, void* p) { static_cast<Components*>(ctx)->memory->release(p); }
  static void log(void* ctx, uint32_t level, const char* message) {
    const auto& to = static_cast<Components*>(ctx)->log_;
    if (to) to(level, message);
  }
};

Components::Components(const PipelineConfig& config, Registry& registry, const PipelineOptions& options)
    : log_(options.log), host_(sdk::abi_struct<tenon_host>()), env_(sdk::abi_struct<tenon_env>()) {
  host_.ctx = this;
  host_.alloc = &HostCalls::alloc;
  host_.release = &HostCalls::release;
  host_.log = &HostCalls::log;
  env_.host = &host_;
  env_.ordinal = config.device_index;
  device_ = create(config.device, registry);
  env_.device = &device_.table<tenon_device>();
  if (queues()) {
    Call call(device_, "make a queue");
    call.check(device().queue(device().self, &queue_, call.why()));
  }
  memory = std::make_unique<DeviceMemory>(*env_.device, queue_);
  schemes.push_back({"", create(config.quantization, registry)});
  for (const QuantizationOverride& o : config.overrides) schemes.push_back({o.match, create(o.scheme, registry)});
  kv_cache = create(config.kv_cache, registry);
  attention = create(config.attention, registry);
  for (const ComponentConfig& link : config.sampler_chain) {
    samplers.push_back({.instance = create(link, registry), .name = link.name, .params = link.params});
  }
  if (samplers.empty() || samplers.back().table().is_selector == 0) {
    const ComponentConfig& select = config.sampler_select;
    samplers.push_back({.instance = create(select, registry), .name = select.name, .params = select.params});
  }
  for (size_t i = 0; i < samplers.size(); ++i) {
    const bool last = i + 1 == samplers.size();
    if ((samplers[i].table().is_selector != 0) != last) {
      throw Error(ErrorCode::kConfig, config.sampler_where,
                  samplers[i].instance.id() + (last ? " selects no token; the sampler's select must name one that does"
                                                    : " selects the token and must be the last of the chain"));
    }
  }
  if (config.draft) draft = create(*config.draft, registry);
}

Instance Components::create(const ComponentConfig& config, Registry& registry) {
  const LoadedComponent& component =
      registry.load(config.kind, config.name, config.kind == "device" ? "" : device().kind);
  try {
    return Instance(component, *config.params.abi(), env_);
  } catch (const Error& e) {
    throw Error(e.code(), config.where, e.diagnostics().front().message);
  }
}

Status Components::copy(void* dst, const void* src, uint64_t bytes) const {
  Call call(device_, "copy");
  if (device().copy(device().self, queue_, dst, src, bytes, call.why()) == TENON_OK) return {};
  return Status::error(ErrorCode::kPlugin, device_.id() + ": copy: " + call.text());
}

void Components::copy_now(void* dst, const void* src, uint64_t bytes) const {
  Status status = copy(dst, src, bytes);
  if (!status.ok()) throw Error(status.code(), status.message());
  if (!queues()) return;
  Call call(device_, "copy");
  call.check(device().wait(device().self, queue_, call.why()));
}

const Scheme& Components::scheme_for(const std::string& matrix, const std::string& site) const {
  for (size_t i = schemes.size(); i-- > 1;) {
    const char* match = schemes[i].match.c_str();
    if (fnmatch(match, matrix.c_str(), 0) == 0 || fnmatch(match, site.c_str(), 0) == 0) return schemes[i];
  }
  return schemes.front();
}

}  // namespace tenon
