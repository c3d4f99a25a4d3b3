#include "support/component.h"

#include <dlfcn.h>

#include <stdexcept>
#include <vector>

#include "tenon/sdk/error.h"

namespace tenon::test {
namespace {

// Libraries stay open: their code may be needed until the program ends.
const tenon_plugin& open_plugin(const std::string& kind, const std::string& name) {
  const std::string path = std::string(TENON_TEST_PLUGINS) + "/" + kind + "/" + name + ".cpu.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library == nullptr ? nullptr : dlsym(library, TENON_PLUGIN_SYMBOL);
  if (symbol == nullptr) throw std::runtime_error(dlerror());
  return *static_cast<const tenon_plugin*>(symbol);
}

std::vector<tenon_param_value> values_of(const tenon_component& c, std::initializer_list<Setting> settings) {
  std::vector<tenon_param_value> values(c.schema->count);
  for (uint32_t i = 0; i < c.schema->count; ++i) {
    const tenon_param_spec& s = *c.schema->spec[i];
    values[i] = {s.int_default, s.real_default, s.text_default};
  }
  for (const auto& [name, value] : settings) {
    uint32_t i = 0;
    while (i < c.schema->count && c.schema->spec[i]->name != name) ++i;
    if (i == c.schema->count) throw std::runtime_error("no parameter " + std::string(name));
    if (const auto* whole = std::get_if<int64_t>(&value)) values[i].integer = *whole;
    if (const auto* real = std::get_if<double>(&value)) values[i].real = *real;
    if (const auto* text = std::get_if<std::string>(&value)) values[i].text = text->c_str();
  }
  return values;
}

}  // namespace

uint64_t machine_isa() {
  uint64_t isa = 0;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2) isa |= TENON_ISA_AVX2;
  if (avx2 && avx512) isa |= TENON_ISA_AVX512;
  if (avx2 && avx512 && __builtin_cpu_supports("avx512vnni")) isa |= TENON_ISA_AVX512_VNNI;
  if (avx2 && avx512 && __builtin_cpu_supports("avx512bf16")) isa |= TENON_ISA_AVX512_BF16;
  return isa;
}

Component::Component(const std::string& kind, const std::string& name, std::initializer_list<Setting> settings,
                     uint64_t isa)
    : host_(sdk::abi_struct<tenon_host>()),
      device_(sdk::abi_struct<tenon_device>()),
      env_(sdk::abi_struct<tenon_env>()) {
  component_ = open_plugin(kind, name).component[0];
  host_.log = [](void*, uint32_t, const char*) {};
  device_.kind = "cpu", device_.name = "test", device_.units = 1, device_.flags = TENON_DEVICE_WALKS;
  device_.isa = isa;
  env_.host = &host_, env_.device = &device_;
  const std::vector<tenon_param_value> values = values_of(*component_, settings);
  auto params = sdk::abi_struct<tenon_params>();
  params.count = static_cast<uint32_t>(values.size()), params.value = values.data();
  char text[256] = "";
  tenon_reason why{text, sizeof(text)};
  if (component_->create(&params, &env_, &self_, &why) != TENON_OK) throw std::runtime_error(text);
  table_ = component_->interface(self_, (kind + "/1").c_str());
}

Component::~Component() {
  component_->destroy(self_);
}

}  // namespace tenon::test
