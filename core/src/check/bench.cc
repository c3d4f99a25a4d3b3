#include "check/bench.h"

#include <cstdlib>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"

namespace tenon {

Bench::Bench(const Subject& subject) : library_(subject.library, subject.note) {
  loaded_.info.kind = subject.note.kind;
  loaded_.info.name = subject.note.name;
  loaded_.component = &library_.component();
  loaded_.schema = library_.component().schema;
  host_ = sdk::abi_struct<tenon_host>();
  host_.ctx = this;
  host_.alloc = &alloc;
  host_.release = &release;
  host_.log = [](void*, uint32_t, const char*) {};
  device_ = sdk::abi_struct<tenon_device>();
  device_.self = this;
  device_.kind = "cpu";
  device_.name = "check";
  device_.units = 1;
  device_.flags = TENON_DEVICE_WALKS;
  env_ = sdk::abi_struct<tenon_env>();
  env_.host = &host_;
  if (subject.note.device != kHostDevice && std::string_view(subject.note.device) != "cpu") find_device(subject);
  env_.device = &device_;
}

Bench::~Bench() {
  while (!memory_.empty()) release(this, memory_.begin()->first);
}

void Bench::find_device(const Subject& subject) {
  for (const std::filesystem::path& root : subject.plugin_dirs) devices_.add_root(root);
  try {
    const LoadedComponent& device = devices_.load("device", subject.note.device);
    made_device_ = Instance(device, *example_values(*device.schema).abi(), env_);
  } catch (const Error& e) {
    throw NotTested(std::string("there is no device ") + subject.note.device +
                    " here: " + e.diagnostics().front().message);
  }
  device_ = made_device_.table<tenon_device>();
}

tenon_status Bench::alloc(void* ctx, uint32_t space, uint64_t bytes, const char*, void** out, tenon_reason* why) {
  auto& bench = *static_cast<Bench*>(ctx);
  constexpr uint64_t kMost = uint64_t{1} << 30;
  const bool gives = bytes <= kMost && bench.left_ > 0;
  *out = nullptr;
  if (gives && bench.made_device_) {
    if (bench.device_.alloc(bench.device_.self, space, bytes, out, why) != TENON_OK) *out = nullptr;
  } else if (gives) {
    *out = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  }
  if (*out == nullptr) {
    bench.refused_ = true;
    sdk::fill_reason(why, "the check gives no memory");
    return TENON_NO_SPACE;
  }
  --bench.left_;
  bench.memory_[*out] = {bytes, space};
  return TENON_OK;
}

void Bench::release(void* ctx, void* p) {
  auto& bench = *static_cast<Bench*>(ctx);
  const auto found = bench.memory_.find(p);
  if (found == bench.memory_.end()) return;
  if (bench.made_device_) {
    bench.device_.release(bench.device_.self, found->second.space, p, found->second.bytes);
  } else {
    std::free(p);
  }
  bench.memory_.erase(found);
}

ParamValues example_values(const tenon_param_schema& schema) {
  ParamValues values(schema);
  for (size_t i = 0; i < schema.count; ++i) {
    const tenon_param_spec spec = spec_at(schema, i);
    if ((spec.flags & TENON_PARAM_REQUIRED) == 0) continue;
    const std::vector<std::string> choices = choices_of(spec);
    if (spec.type == TENON_PARAM_TEXT) values.set(i, choices.empty() ? std::string("x") : choices.front());
    if (spec.type == TENON_PARAM_INT) values.set(i, choices.empty() ? spec.int_min : int64_t{std::stoll(choices[0])});
    if (spec.type == TENON_PARAM_REAL) values.set(i, spec.real_min);
    if (spec.type == TENON_PARAM_BOOL) values.set(i, false);
  }
  return values;
}

}  // namespace tenon
