// What a pipeline is made of, read from TOML: the installed default.toml, below the user's file, below single overrides
// ("kv_cache.use=static"). Of a key, the last of them holds; arrays are replaced whole; where a later one names another
// component, what the earlier ones said to the former component is dropped.
//
//   ConfigDocument document = load_config("pipeline.toml", {"sampler.seed=7"});
//   for (const PluginConfig& p : document.plugins()) registry.add_library(p.path, p.where);
//   PipelineConfig config = resolve(document, RegistrySchemas(registry));
//
// Paths in a configuration are relative to the working directory, wherever the file lies: the same text means the same
// in a file and on the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/core/error.h"
#include "tenon/core/params.h"

namespace tenon {

class Registry;

// The schema of a component without parameters.
const tenon_param_schema& no_params();

struct ComponentConfig {
  std::string kind, name;
  SourcePosition where;             // of the value that names it
  ParamValues params{no_params()};  // every parameter of its schema
};

struct PluginConfig {
  std::string path;
  SourcePosition where;
};

struct ModelConfig {
  std::string path;  // file, folder or "synthetic:<name>"
  SourcePosition where;
  std::string weights = "auto", tokenizer = "auto";  // names, or found from the path
  uint32_t context = 0;                              // tokens; 0 = the model's own
  uint32_t layers = 0;                               // the first so many of the model's; 0 = all
  std::vector<std::string> ignore_unknown;           // keys of its metadata that nothing reads and that may be there
};

// Stands in place of a scheme's name: each matrix gets the installed scheme that holds it as it is stored.
inline constexpr const char* kAutoScheme = "auto";

struct QuantizationOverride {
  std::string match;  // glob over module paths
  ComponentConfig scheme;
};

struct TraceConfig {
  std::string path;  // "" = no trace
  SourcePosition where;
  uint64_t skip_steps = 0, steps = 0;  // 0 steps = all
  uint32_t buffer = 0;                 // events a thread
  double slow_step_ms = 0;             // > 0: only what is kept when a step takes that long is written
  uint32_t keep_steps = 0;             // kept in memory; 0 = every step is written
  std::string kernels = "node";        // of a GPU: "node", "graph" or "none"
};

enum class Execution { kAuto, kPerOp, kRecorded, kGraph };

// One model and the components that it is stored and computed with.
struct ModelInstanceConfig {
  ModelConfig model;
  ComponentConfig quantization;
  std::vector<QuantizationOverride> overrides;  // in the order of the file; the last that matches holds
  ComponentConfig kv_cache;
  ComponentConfig attention;
};

// A second model on the same device that proposes tokens for the first one to verify.
struct DraftModelConfig : ModelInstanceConfig {
  SourcePosition where;
  uint32_t tokens = 0;  // proposed in a round
};

// Everything stated, typed, within its range.
struct PipelineConfig : ModelInstanceConfig {
  bool strict = true;
  Execution execution = Execution::kAuto;
  std::vector<PluginConfig> plugins;
  bool lock_weights = false;  // in the host's memory
  ComponentConfig device;
  uint32_t device_index = 0;
  uint32_t capacity = 0;  // tokens of a sequence; 0 = the model's context, at most 8192
  uint64_t seed = 0;
  std::vector<ComponentConfig> sampler_chain;
  ComponentConfig sampler_select;               // unless the chain ends in a selector
  SourcePosition sampler_where;                 // of the chain
  std::optional<ComponentConfig> draft;         // proposes from the host; or
  std::optional<DraftModelConfig> draft_model;  // proposes on the device
  ComponentConfig scheduler;
  uint32_t prefill_rows = 0;  // of a step at most
  TraceConfig trace;
};

// Where parameter schemas come from.
class SchemaSource {
 public:
  virtual ~SchemaSource() = default;
  // The schema outlives the source's registry of components. device "" = of any. Throws Error for a component that is
  // not there or does not load, listing what is installed and what comes close.
  virtual const tenon_param_schema& schema(std::string_view kind, std::string_view name, std::string_view device) = 0;
  virtual std::vector<std::string> names(std::string_view kind) = 0;
};

class RegistrySchemas : public SchemaSource {
 public:
  explicit RegistrySchemas(Registry& registry) : registry_(registry) {}
  const tenon_param_schema& schema(std::string_view kind, std::string_view name, std::string_view device) override;
  std::vector<std::string> names(std::string_view kind) override;

 private:
  Registry& registry_;
};

// One layer of text; name is what positions are reported by.
struct ConfigText {
  std::string name, text;
};

// The layers merged; nothing but syntax is checked. Copies share.
class ConfigDocument {
 public:
  // The [[plugin]] entries that are well formed; what is wrong with the others is resolve()'s to say.
  std::vector<PluginConfig> plugins() const;

  struct Data;
  const Data& data() const { return *data_; }
  explicit ConfigDocument(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

 private:
  std::shared_ptr<const Data> data_;
};

// Says whether an argument names a pipeline file (*.toml) and not a model.
bool is_pipeline_file(const std::string& argument);
// The default.toml that is installed with (or built beside) this library. Throws Error(kIo) if there is none.
std::filesystem::path default_pipeline_file();
// The file has 1 MiB at most. Throws Error: kIo if it cannot be read, kConfig if it is larger.
ConfigText read_config(const std::filesystem::path& path);
// Later layers win, then `set` in its order, with the model's path between them if given. Throws Error(kConfig) with
// the syntax errors of all layers and overrides.
ConfigDocument parse_config(const std::vector<ConfigText>& layers, const std::vector<std::string>& set,
                            const std::string& model = {});
// Reads what the programs take: a pipeline file, a model, or "" for the defaults. default.toml lies below it, and between
// the two the file `defaults` that a program may add ("" = none).
ConfigDocument load_config(const std::string& config_or_model, const std::vector<std::string>& set,
                           const std::filesystem::path& defaults = {});

enum class ModelPath { kRequired, kOptional };
// Checks everything against the schemas. Throws Error(kConfig) with all findings of all sections, in order of position.
PipelineConfig resolve(const ConfigDocument& document, SchemaSource& schemas, ModelPath path = ModelPath::kRequired);

// A file that says all of it, defaults too: resolve(parse_config({it}, {})) gives the same pipeline.
std::string to_toml(const PipelineConfig& config);
// The overrides that make `config` out of `base`, in a fixed order: equal pipelines give equal lists.
std::vector<std::string> to_overrides(const PipelineConfig& config, const PipelineConfig& base);

// docs/pipeline-toml.md: all sections, and the parameters of every component that the registry has.
std::string pipeline_reference_markdown(Registry& registry);

}  // namespace tenon
