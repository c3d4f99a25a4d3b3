// These are the schemes of weights that tests of products on a GPU run with, and a scheme's CUDA library.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "recorder.h"
#include "tenon/abi/plugin.h"
#include "tenon/abi/quantization.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/plain_copy.h"

namespace tenon::test {

// A setting is a scheme with its parameter, and the types of the matrices that it reads.
struct Setting {
  std::string name;
  const char* text;                            // it is the scheme's parameter, if that is a text
  int64_t group = 0;                           // it is the scheme's parameter, if that is a number
  std::vector<tenon_format> types{TENON_F32};  // a site's matrices have these in the file, in turn
  int64_t second = 0;                          // it is the scheme's second parameter, a number
  bool plain_copy = false;

  bool blocks() const { return types != std::vector<tenon_format>{TENON_F32}; }
};  // the tests of products run with these settings
inline const Setting kSettings[] = {
    {"none", "fp32"},
    {"none", "fp16"},
    {"none", "bf16"},
    {.name = "none", .text = "bf16", .plain_copy = true},
    {"int8wo", ""},
    {.name = "int8wo", .text = "", .plain_copy = true},
    {.name = "int4wo", .text = "", .group = 64, .plain_copy = true},
    {"int4wo", "", 32},
    {"int4wo", "", 64},
    {"int4wo", "", 128},
    {"int4wo", "", 256},
    {"nf4", "", 0},
    {"nf4", "", 1},
    {"fp4", "", 0},
    {"fp4", "", 1},
    {"fp8", ""},
    {"uintx", "", 1, {TENON_F32}, 32},
    {"uintx", "", 2, {TENON_F32}, 64},
    {"uintx", "", 3, {TENON_F32}, 32},
    {"uintx", "", 3, {TENON_F32}, 64},
    {"uintx", "", 4, {TENON_F32}, 128},
    {"uintx", "", 5, {TENON_F32}, 32},
    {"uintx", "", 5, {TENON_F32}, 256},
    {"uintx", "", 6, {TENON_F32}, 64},
    {"uintx", "", 7, {TENON_F32}, 64},
    {"uintx", "", 8, {TENON_F32}, 32},
    {"uintx", "", 3, {TENON_F32}, 96},
    {"uintx", "", 4, {TENON_F32}, 8},
    {"uintx", "", 7, {TENON_F32}, 24},
    {"uintx", "", 4, {TENON_F32}, 1000},
    {"fp6", "e3m2"},
    {"fp6", "e2m3"},
    {"fp6", "e2m2"},
    {"fp6", "e3m1"},
    {"gguf", "f32", 0, {TENON_Q4_0}},
    {"gguf", "f32", 0, {TENON_Q4_1}},
    {"gguf", "f32", 0, {TENON_Q8_0}},
    {"gguf", "f32", 0, {TENON_Q4_K}},
    {"gguf", "f32", 0, {TENON_Q6_K}},
    {"gguf", "f32", 0, {TENON_Q5_0}},
    {"gguf", "f32", 0, {TENON_Q5_1}},
    {"gguf", "f32", 0, {TENON_Q2_K}},
    {"gguf", "f32", 0, {TENON_Q3_K}},
    {"gguf", "f32", 0, {TENON_Q5_K}},
    {"gguf", "f32", 0, {TENON_IQ4_NL}},
    {"gguf", "f32", 0, {TENON_IQ4_XS}},
    {"gguf", "f32", 0, {TENON_TQ2_0}},
    {"gguf", "f32", 0, {TENON_TQ1_0, TENON_TQ2_0}},
    {"gguf", "f32", 0, {TENON_MXFP4}},
    {"gguf", "f32", 0, {TENON_IQ4_XS, TENON_MXFP4, TENON_TQ1_0, TENON_IQ4_NL}},
    {"gguf", "f32", 0, {TENON_F16}},
    {"gguf", "f32", 0, {TENON_BF16}},
    {"gguf", "f32", 0, {TENON_Q8_0, TENON_Q5_0, TENON_Q4_0}},
    {"gguf", "f32", 0, {TENON_Q4_1, TENON_Q8_0, TENON_Q5_1}},
    {"gguf", "f32", 0, {TENON_Q6_K, TENON_Q3_K}},
    {"gguf", "f32", 0, {TENON_Q4_K, TENON_Q6_K, TENON_Q2_K}},
    {"gguf", "f32", 0, {TENON_Q4_K, TENON_F16, TENON_Q8_0}},
};
inline std::string label(const Setting& s) {
  std::string text = s.name;
  if (s.name == "gguf") {
    for (const tenon_format type : s.types) text += std::string("_") + tenon_format_name(type);
  } else if (s.group != 0) {
    text += "_" + std::to_string(s.group) + (s.second != 0 ? "_" + std::to_string(s.second) : "");
  } else if (*s.text != 0) {
    text += std::string("_") + s.text;
  }
  if (s.plain_copy) text += "_plain_copy";
  return text;
}
inline void PrintTo(const Setting& s, std::ostream* out) {
  *out << label(s);
}

inline void check(tenon_status status, const char* why) {
  if (status != TENON_OK) throw std::runtime_error(why);
}

// This is an instance of a scheme's CUDA library, which lies beside this program in the build's tree.
class Scheme {
 public:
  explicit Scheme(const Setting& s) {
    const auto folder =
        std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/tenon/plugins";
    const auto path = folder / "quantization" / (s.name + ".cuda.so");
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    component_ = static_cast<const tenon_plugin*>(dlsym(library, TENON_PLUGIN_SYMBOL))->component[0];
    host_.log = [](void*, uint32_t, const char*) {};
    device_.kind = "cuda";
    device_.name = "a GPU";
    device_.arch = 90;
    device_.units = 132;
    device_.shared_per_unit = 228 << 10;
    if (cuda_missing().empty()) {
      cudaDeviceProp properties{};
      TENON_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
      device_.units = static_cast<uint32_t>(properties.multiProcessorCount);
      device_.shared_per_unit = properties.sharedMemPerMultiprocessor;
    }
    env_.host = &host_;
    env_.device = &device_;
    const tenon_param_schema& schema = *component_->schema;
    std::vector<tenon_param_value> values = {{s.group, 0, s.text}, {s.second, 0, ""}};
    values.resize(std::max<size_t>(schema.count, values.size()));
    for (uint32_t i = 0; i < schema.count; ++i) {
      if (schema.spec[i]->name == std::string(sdk::kPlainCopy)) values[i].integer = s.plain_copy ? 1 : 0;
    }
    auto params = sdk::abi_struct<tenon_params>();
    params.count = schema.count;
    params.value = values.data();
    char text[256] = "";
    tenon_reason why{text, sizeof(text)};
    check(component_->create(&params, &env_, &self_, &why), text);
  }
  ~Scheme() { component_->destroy(self_); }
  Scheme(const Scheme&) = delete;
  Scheme& operator=(const Scheme&) = delete;
  void* self() const { return self_; }
  const tenon_quantization& table() const {
    return *static_cast<const tenon_quantization*>(component_->interface(self_, "quantization/1"));
  }

 private:
  const tenon_component* component_;
  tenon_host host_ = sdk::abi_struct<tenon_host>();
  tenon_device device_ = sdk::abi_struct<tenon_device>();
  tenon_env env_ = sdk::abi_struct<tenon_env>();
  void* self_ = nullptr;
};

}  // namespace tenon::test
