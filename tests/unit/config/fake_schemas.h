// A few components have schemas of every kind of parameter, in place of installed plugins.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tenon/core/config.h"
#include "tenon/sdk/params.h"

namespace tenon {

class FakeSchemas : public SchemaSource {
 public:
  FakeSchemas() {
    static constexpr auto kCpu =
        sdk::params(sdk::integer({.name = "threads", .doc = "Threads.", .min = 0, .max = 1024}),
                    sdk::text({.name = "isa", .doc = "Instructions.", .value = "auto", .choices = "auto|avx2"}));
    static constexpr auto kGroups = sdk::params(sdk::integer(
        {.name = "group_size", .doc = "Group.", .value = 64, .min = 1, .max = 256, .choices = "32|64|128|256"}));
    static constexpr auto kClash =
        sdk::params(sdk::integer({.name = "capacity", .doc = "Taken by the section.", .min = 0, .max = 9}));
    static constexpr auto kFormat =
        sdk::params(sdk::text({.name = "format", .doc = "Format.", .value = "fp16", .choices = "fp16|bf16|fp32"}));
    static constexpr auto kTemperature =
        sdk::params(sdk::real({.name = "value", .doc = "Divides.", .value = 0.8, .min = 0, .max = 100}));
    static constexpr auto kTopK = sdk::params(
        sdk::integer({.name = "k", .doc = "Tokens.", .value = 200, .min = 0, .max = 1024, .unit = "tokens"}),
        sdk::boolean({.name = "ties", .doc = "Keep ties.", .value = true}));
    static constexpr auto kModel = sdk::params(
        sdk::text({.name = "path", .doc = "Draft model.", .flags = TENON_PARAM_REQUIRED}),
        sdk::integer({.name = "k", .doc = "Proposals.", .value = 5, .min = 1, .max = 16, .unit = "tokens"}));
    add("device", "cpu", kCpu);
    add("device", "gpu", std::array<tenon_param_spec, 0>{});
    add("quantization", "gguf", std::array<tenon_param_spec, 0>{});
    add("quantization", "int4wo", kGroups);
    add("quantization", "int8wo", std::array<tenon_param_spec, 0>{});
    add("kv_cache", "static", kFormat);
    add("kv_cache", "clash", kClash);
    add("attention", "flash", std::array<tenon_param_spec, 0>{});
    add("sampler", "temperature", kTemperature);
    add("sampler", "top_k", kTopK);
    add("sampler", "categorical", std::array<tenon_param_spec, 0>{});
    add("sampler", "greedy", std::array<tenon_param_spec, 0>{});
    add("draft", "model", kModel);
    add("scheduler", "single", std::array<tenon_param_spec, 0>{});
    add("weights", "gguf", std::array<tenon_param_spec, 0>{});
    add("tokenizer", "bpe", std::array<tenon_param_spec, 0>{});
  }

  const tenon_param_schema& schema(std::string_view kind, std::string_view name, std::string_view device) override {
    asked_devices.emplace_back(device);
    const auto found = components_.find(std::string(kind) + "." + std::string(name));
    if (found != components_.end()) return found->second.schema;
    const std::string near = nearest_name(std::string(name), names(kind));
    throw Error(ErrorCode::kPlugin, "no " + std::string(kind) + " named \"" + std::string(name) + "\"" +
                                        (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
  }
  std::vector<std::string> names(std::string_view kind) override {
    std::vector<std::string> all;
    for (const auto& [id, component] : components_) {
      if (id.starts_with(std::string(kind) + ".")) all.push_back(id.substr(kind.size() + 1));
    }
    return all;
  }

  std::vector<std::string> asked_devices;

 private:
  struct Component {
    std::vector<tenon_param_spec> specs;
    std::vector<const tenon_param_spec*> pointers;
    tenon_param_schema schema{};
  };

  template <size_t N>
  void add(const std::string& kind, const std::string& name, const std::array<tenon_param_spec, N>& specs) {
    Component& c = components_[kind + "." + name];
    c.specs.assign(specs.begin(), specs.end());
    for (const tenon_param_spec& spec : c.specs) c.pointers.push_back(&spec);
    c.schema = sdk::abi_struct<tenon_param_schema>();
    c.schema.count = N;
    c.schema.spec = c.pointers.data();
  }

  std::map<std::string, Component> components_;
};

inline constexpr const char* kTestDefaults = R"([device]
use = "cpu"
[quantization]
use = "gguf"
[kv_cache]
use = "static"
[attention]
use = "flash"
[sampler]
chain = [{use = "temperature", value = 0.8}, {use = "top_k"}]
select = "categorical"
[scheduler]
use = "single"
)";

}  // namespace tenon
