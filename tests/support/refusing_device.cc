#include "support/refusing_device.h"

#include <memory>

#include "tenon/sdk/error.h"

namespace tenon::test {

RefusingDevice* RefusingDevice::active_ = nullptr;

// This is self of the component; the table's self is the device's own, whose functions it keeps.
struct RefusingDevice::Instance {
  void* self = nullptr;
  tenon_device table{};
  decltype(tenon_device::alloc) inner_alloc = nullptr;
  decltype(tenon_device::release) inner_release = nullptr;
  static Instance* newest;

  static tenon_status create(const tenon_params* params, const tenon_env* env, void** out, tenon_reason* why) {
    auto it = std::make_unique<Instance>();
    const tenon_component& device = *active_->device_.component;
    const tenon_status status = device.create(params, env, &it->self, why);
    if (status != TENON_OK) return status;
    it->table = sdk::read_abi(static_cast<const tenon_device*>(device.interface(it->self, "device/1")));
    it->inner_alloc = it->table.alloc;
    it->inner_release = it->table.release;
    it->table.alloc = &alloc;
    it->table.release = &release;
    if (active_->memory_ != 0) it->table.memory = active_->memory_;
    *out = newest = it.release();
    return TENON_OK;
  }
  static void destroy(void* self) {
    const std::unique_ptr<Instance> it(static_cast<Instance*>(self));
    active_->device_.component->destroy(it->self);
  }
  static const void* interface(void* self, const char*) { return &static_cast<Instance*>(self)->table; }

  static tenon_status alloc(void* self, uint32_t space, uint64_t bytes, void** out, tenon_reason* why) {
    if (++active_->calls_ == active_->refuse_) {
      sdk::fill_reason(why, "refused by the test");
      return TENON_NO_SPACE;
    }
    const tenon_status status = newest->inner_alloc(self, space, bytes, out, why);
    if (status == TENON_OK) active_->live_[*out] = bytes;
    return status;
  }
  static void release(void* self, uint32_t space, void* p, uint64_t bytes) {
    const auto it = active_->live_.find(p);
    if (it == active_->live_.end() || it->second != bytes) {
      ++active_->strays_;
      return;
    }
    active_->live_.erase(it);
    newest->inner_release(self, space, p, bytes);
  }
};
RefusingDevice::Instance* RefusingDevice::Instance::newest = nullptr;

RefusingDevice::RefusingDevice(Registry& registry, const std::string& name)
    : device_(registry.load("device", name)), component_(*device_.component) {
  active_ = this;
  component_.name = kName;
  component_.create = &Instance::create;
  component_.destroy = &Instance::destroy;
  component_.interface = &Instance::interface;
  registry.add_builtin({.kind = "device",
                        .name = kName,
                        .device = name,
                        .doc = device_.doc,
                        .schema = device_.schema,
                        .component = &component_,
                        .implementation = nullptr});
}

RefusingDevice::~RefusingDevice() {
  active_ = nullptr;
}

void RefusingDevice::refuse(uint64_t n) {
  calls_ = 0;
  refuse_ = n;
}

uint64_t RefusingDevice::live_bytes() const {
  uint64_t sum = 0;
  for (const auto& [p, bytes] : live_) sum += bytes;
  return sum;
}

}  // namespace tenon::test
