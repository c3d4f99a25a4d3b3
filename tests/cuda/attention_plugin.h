// A CUDA component for tests and benchmarks that run where nothing else of the project is: its library is looked for in
// ../lib/tenon/plugins beside the program's folder, or in the folder that TENON_TEST_PLUGINS names.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tenon/abi/plugin.h"
#include "tenon/cuda/error.h"
#include "tenon/sdk/error.h"

namespace tenon::test {

static __global__ void built_kernel() {}  // as the components of this build are

class CudaComponent {
 public:
  // texts: parameters that are not to have their defaults.
  CudaComponent(const std::string& kind, const std::string& name,
                const std::map<std::string, std::string>& texts = {}) {
    const char* named = std::getenv("TENON_TEST_PLUGINS");
    const std::filesystem::path folder =
        named != nullptr ? std::filesystem::path(named)
                         : std::filesystem::read_symlink("/proc/self/exe").parent_path() / "../lib/tenon/plugins";
    const std::string path = (folder / kind / (name + ".cuda.so")).string();
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(dlerror());
    const auto* plugin = static_cast<const tenon_plugin*>(dlsym(library_, TENON_PLUGIN_SYMBOL));
    component_ = plugin->component[0];
    cudaDeviceProp properties{};
    TENON_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    device_.kind = "cuda", device_.name = properties.name;
    device_.units = static_cast<uint32_t>(properties.multiProcessorCount);
    device_.shared_per_unit = properties.sharedMemPerMultiprocessor;
    cudaFuncAttributes attributes{};
    TENON_CUDA_CHECK(cudaFuncGetAttributes(&attributes, &built_kernel));
    device_.arch = static_cast<uint32_t>(std::min(properties.major * 10 + properties.minor, attributes.ptxVersion));
    host_.log = [](void*, uint32_t, const char*) {};
    env_.host = &host_, env_.device = &device_;
    const tenon_param_schema& schema = *component_->schema;
    std::vector<tenon_param_value> values;
    for (uint32_t i = 0; i < schema.count; ++i) {
      const tenon_param_spec& s = *schema.spec[i];
      const auto text = texts.find(s.name);
      values.push_back({s.int_default, s.real_default, text == texts.end() ? s.text_default : text->second.c_str()});
    }
    auto params = sdk::abi_struct<tenon_params>();
    params.count = schema.count, params.value = values.data();
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    if (component_->create(&params, &env_, &self_, &why) != TENON_OK) throw std::runtime_error(text);
    table_ = component_->interface(self_, (kind + "/1").c_str());
  }
  ~CudaComponent() {
    if (self_ != nullptr) component_->destroy(self_);
  }
  CudaComponent(const CudaComponent&) = delete;
  CudaComponent& operator=(const CudaComponent&) = delete;

  void* self() const { return self_; }
  template <class Table>
  const Table& table() const {
    return *static_cast<const Table*>(table_);
  }

 private:
  void* library_ = nullptr;  // never closed: its kernels stay registered
  const tenon_component* component_ = nullptr;
  tenon_host host_ = sdk::abi_struct<tenon_host>();
  tenon_device device_ = sdk::abi_struct<tenon_device>();
  tenon_env env_ = sdk::abi_struct<tenon_env>();
  void* self_ = nullptr;
  const void* table_ = nullptr;
};

}  // namespace tenon::test
