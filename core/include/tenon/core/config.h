// A configuration says what a pipeline is made of. It is read from layers of TOML: the installed default.toml, then the
// user's file, then single overrides ("kv_cache.use=static"). If several layers have a key, the last one holds; arrays
// are replaced whole; if a later layer names another component, what earlier ones said to the former is dropped.
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

// Returns the schema of a component without parameters.
const tenon_param_schema& no_params();

struct ComponentConfig {
  std::string kind, name;
  SourcePosition where;             // the value that names it stands here
  ParamValues params{no_params()};  // it has a value for every parameter of its schema
};

struct PluginConfig {
  std::string path;
  SourcePosition where;
};

struct ModelConfig {
  std::string path;  // a file, a folder or "synthetic:<name>"
  SourcePosition where;
  std::string weights = "auto", tokenizer = "auto";  // names of readers; "auto": the path tells
  uint32_t context = 0;                              // tokens; 0 = the model's own
  uint32_t layers = 0;                               // so many of the model's layers run, the first; 0 = all
  std::vector<std::string> ignore_unknown;           // keys of its metadata that nothing reads and that may be there
};

// This stands in place of a scheme's name: each matrix gets the installed scheme that holds it as it is stored.
inline constexpr const char* kAutoScheme = "auto";
// The grammar of this name is the one that is installed: the first by name if there are several.
inline constexpr const char* kAutoGrammar = "auto";

struct QuantizationOverride {
  std::string match;  // a glob over module paths
  ComponentConfig scheme;
};

struct TraceConfig {
  std::string path;  // "" = no trace
  SourcePosition where;
  uint64_t skip_steps = 0, steps = 0;  // 0 steps = all
  uint32_t buffer = 0;                 // each thread has room for so many events
  double slow_step_ms = 0;             // > 0: only what is kept when a step takes that long is written
  uint32_t keep_steps = 0;             // so many steps are kept in memory; 0 = every step is written
  std::string kernels = "node";        // a GPU's kernels are recorded so: "node", "graph" or "none"
};

enum class Execution { kAuto, kPerOp, kRecorded, kGraph };

// This names one model and the components that it is stored and computed with.
struct ModelInstanceConfig {
  ModelConfig model;
  ComponentConfig quantization;
  std::vector<QuantizationOverride> overrides;  // they are in the file's order; the last one that matches holds
  ComponentConfig kv_cache;
  ComponentConfig attention;
};

// A draft model is a second model on the same device; it proposes tokens for the first one to verify.
struct DraftModelConfig : ModelInstanceConfig {
  SourcePosition where;
  uint32_t tokens = 0;  // it proposes so many in a round
};

// This is a whole configuration: every value is there, typed and within its range.
struct PipelineConfig : ModelInstanceConfig {
  bool strict = true;
  Execution execution = Execution::kAuto;
  bool embeddings = false;  // requests may ask for their prompt's embedding
  std::vector<PluginConfig> plugins;
  bool lock_weights = false;  // they are locked in the host's memory
  ComponentConfig device;
  uint32_t device_index = 0;
  uint32_t capacity = 0;  // a sequence has room for so many tokens; 0 = the model's context, at most 8192
  uint64_t seed = 0;
  std::vector<ComponentConfig> sampler_chain;
  ComponentConfig sampler_select;               // it chooses the token, unless the chain ends in a selector
  SourcePosition sampler_where;                 // the chain stands here
  std::optional<ComponentConfig> draft;         // it proposes from the host; or
  std::optional<DraftModelConfig> draft_model;  // it proposes on the device
  std::optional<ComponentConfig> grammar;       // requests may state grammars; kAutoGrammar has no parameters
  ComponentConfig scheduler;
  uint32_t prefill_rows = 0;  // a step has so many rows at most
  uint32_t rest_steps = 0;    // who rests stays so for so many steps; 0 = nobody rests
  TraceConfig trace;
};

// Parameter schemas come from here.
class SchemaSource {
 public:
  virtual ~SchemaSource() = default;
  // Returns a schema, which lives as long as the source's registry of components. device "" means any device. Throws
  // Error for a component that is not there or does not load, and lists what is installed and what comes close.
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

// This is one layer of text; positions in it are reported by its name.
struct ConfigText {
  std::string name, text;
};

// A document is all layers merged; nothing but their syntax is checked. Copies share their data.
class ConfigDocument {
 public:
  // Returns the [[plugin]] entries that are well formed; resolve() says what is wrong with the others.
  std::vector<PluginConfig> plugins() const;

  struct Data;
  const Data& data() const { return *data_; }
  explicit ConfigDocument(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

 private:
  std::shared_ptr<const Data> data_;
};

// Says whether an argument names a pipeline file (*.toml) and not a model.
bool is_pipeline_file(const std::string& argument);
// Returns the default.toml that is installed with (or built beside) this library. Throws Error(kIo) if there is none.
std::filesystem::path default_pipeline_file();
// Reads a file of 1 MiB at most. Throws Error: kIo if it cannot be read, kConfig if it is larger.
ConfigText read_config(const std::filesystem::path& path);
// Merges layers: a later one wins, then the model's path if it is given, then `set` in its order. Throws Error(kConfig)
// with the syntax errors of all layers and overrides.
ConfigDocument parse_config(const std::vector<ConfigText>& layers, const std::vector<std::string>& set,
                            const std::string& model = {});
// Reads what the programs take: a pipeline file, a model, or "" for the defaults. default.toml lies below it, and
// between the two the file `defaults` that a program may add ("" = none).
ConfigDocument load_config(const std::string& config_or_model, const std::vector<std::string>& set,
                           const std::filesystem::path& defaults = {});

enum class ModelPath { kRequired, kOptional };
// Checks everything against the schemas. Throws Error(kConfig) with all findings of all sections, in order of position.
PipelineConfig resolve(const ConfigDocument& document, SchemaSource& schemas, ModelPath path = ModelPath::kRequired);

// Returns the text of a file that states everything, defaults too:
// resolve(parse_config({it}, {})) gives the same pipeline.
std::string to_toml(const PipelineConfig& config);
// Returns the overrides that make `config` out of `base`, in a fixed order: equal pipelines give equal lists.
std::vector<std::string> to_overrides(const PipelineConfig& config, const PipelineConfig& base);

// Returns docs/pipeline-toml.md: all sections, and the parameters of every component that the registry has.
std::string pipeline_reference_markdown(Registry& registry);

}  // namespace tenon
