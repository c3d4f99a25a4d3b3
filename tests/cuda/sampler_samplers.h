// These are samplers of either device, without the core library: their libraries are opened and called as a host would.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tenon/abi/plugin.h"
#include "tenon/sdk/recorder.h"

namespace tenon::test {

enum class On { kCpu, kCuda };

using Settings = std::vector<std::pair<std::string, double>>;

// This is a sampler's library, opened, with an instance of default parameters.
class Sampler {
 public:
  Sampler(const std::string& name, On on) {
    const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const char* root = std::getenv("TENON_TEST_PLUGINS");
    const std::filesystem::path plugins = root != nullptr ? root : bin.parent_path() / "lib/tenon/plugins";
    const std::string file = plugins / "sampler" / (name + (on == On::kCuda ? ".cuda.so" : ".cpu.so"));
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw sdk::Failed(dlerror());
    const auto* plugin = static_cast<const tenon_plugin*>(dlsym(library_, TENON_PLUGIN_SYMBOL));
    component_ = plugin->component[0];
    const std::vector<tenon_param_value> values = with({});
    auto params = sdk::abi_struct<tenon_params>();
    params.count = static_cast<uint32_t>(values.size());
    params.value = values.data();
    env_.host = &host_;
    env_.device = &device_;
    if (component_->create(&params, &env_, &self_, nullptr) != TENON_OK) throw sdk::Failed(name + " was not created");
    table_ = static_cast<const tenon_sampler*>(component_->interface(self_, "sampler/1"));
  }
  ~Sampler() { component_->destroy(self_); }  // libraries stay open: kernels are registered for the process' life
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  const tenon_sampler& table() const { return *table_; }
  void* self() const { return self_; }
  std::vector<uint8_t> record(const Settings& settings) const {
    const std::vector<tenon_param_value> values = with(settings);
    auto params = sdk::abi_struct<tenon_params>();
    params.count = static_cast<uint32_t>(values.size());
    params.value = values.data();
    std::vector<uint8_t> bytes(table_->param_bytes);
    if (table_->encode(self_, &params, bytes.data(), nullptr) != TENON_OK) throw sdk::Failed("encode failed");
    return bytes;
  }

 private:
  std::vector<tenon_param_value> with(const Settings& settings) const {
    std::vector<tenon_param_value> values(component_->schema->count);
    for (size_t i = 0; i < values.size(); ++i) {
      const tenon_param_spec& s = *component_->schema->spec[i];
      values[i] = {s.int_default, s.real_default, s.text_default};
      for (const auto& [name, value] : settings) {
        if (name == s.name) {
          values[i].integer = static_cast<int64_t>(value);
          values[i].real = value;
        }
      }
    }
    return values;
  }

  tenon_host host_ = sdk::abi_struct<tenon_host>();
  tenon_device device_ = sdk::abi_struct<tenon_device>();  // its isa is 0
  tenon_env env_ = sdk::abi_struct<tenon_env>();
  void *library_ = nullptr, *self_ = nullptr;
  const tenon_component* component_ = nullptr;
  const tenon_sampler* table_ = nullptr;
};

struct ChainEntry {
  std::string name;
  std::vector<Settings> settings = {{}};  // they go by slot, and the last one's are for all further slots
};

// This has a sampler's records by slot, and its state, in a runner's memory: an OpRunner's or a CudaRecorder's.
struct KeptEntry {
  template <class Runner>
  KeptEntry(const ChainEntry& entry, On on, uint32_t vocab, uint32_t slots, Runner& r) : sampler(entry.name, on) {
    std::vector<uint8_t> records;
    for (size_t slot = 0; slot < slots; ++slot) {
      const std::vector<uint8_t> one = sampler.record(entry.settings[std::min(slot, entry.settings.size() - 1)]);
      records.insert(records.end(), one.begin(), one.end());
    }
    params = r.input(TENON_U8, {slots, sampler.table().param_bytes}, records);
    const auto bytes = static_cast<int64_t>(sampler.table().state_bytes(sampler.self(), vocab));
    if (bytes == 0) return;
    const tenon_tensor t = sdk::tensor(TENON_U8, {slots, bytes});
    state = r.recorder()->keep(r.recorder()->ctx, &t, ("state " + std::to_string(params)).c_str());
  }
  // Rewrites c, or chooses TENON_STEP_NEXT.
  void record(tenon_candidates& c, const tenon_recorder* r) const {
    const tenon_sampler& t = sampler.table();
    const tenon_sampling s = sampling(t.is_selector != 0 ? r->step(r->ctx, TENON_STEP_NEXT) : 0);
    const tenon_status status = t.is_selector != 0 ? t.record_select(sampler.self(), &s, &c, r, nullptr)
                                                   : t.record_apply(sampler.self(), &s, &c, r, nullptr);
    if (status != TENON_OK) throw sdk::Failed("a sampler was not recorded");
  }

  tenon_sampling sampling(tenon_tid next) const {
    auto s = sdk::abi_struct<tenon_sampling>();
    s.params = params;
    s.state = state;
    s.next = next;
    return s;
  }

  Sampler sampler;
  tenon_tid params = 0, state = 0;
};

}  // namespace tenon::test
