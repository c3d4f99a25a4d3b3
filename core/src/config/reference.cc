// This writes the reference of the pipeline file, docs/pipeline-toml.md, from the same tables that validate it: the
// sections' own keys (sections.cc) and the schemas of all components that are installed. So a key that the page has not
// is a key that no file may have; a test compares the page with what is written here.
#include <algorithm>
#include <map>

#include "sections.h"
#include "tenon/core/config.h"
#include "tenon/core/module.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace config {
namespace {

constexpr const char* kIntroduction = R"(# The pipeline file

A pipeline is a TOML file: which components make it up, and their parameters. This page is generated from the schemas
that check the file (the sections' own, and those of the components in this build), and a test compares it with them.

```toml
[model]
path = "models/SmolLM2-135M-Instruct-Q4_1.gguf"

[quantization]
use = "auto"

[sampler]
chain = []
select = "greedy"
```

## How values are found

Four layers, of each key the last one holds:

1. the defaults of the schemas, as listed below;
2. the installed `share/tenon/configs/default.toml`, which names a component for every section and so serves any model;
3. the pipeline file, or the model, that the command line names (`tenon generate mine.toml`, `tenon generate model.gguf`);
4. `--set section.key=value`, as often as wanted.

A file therefore states only what differs. Arrays (`chain`, `override`, `plugin`) are replaced whole. Where a later layer
names another component with `use`, what the earlier ones said to the former component is dropped; the section's own keys
stay.

`--set` takes TOML values and, for strings, bare words: `--set kv_cache.use=static --set sampler.seed=7
--set 'sampler.chain=[{use = "temperature", value = 0.5}]'`. All of a run's options together are one layer, so their order
matters only where one key is given twice.

Paths are relative to the working directory, wherever the file lies: the same text means the same in a file and on the
command line.

## What is checked

Everything, before anything is loaded, and all findings are printed at once with their position:

```text
pipeline.toml:14:1: error: quantization.none: unknown key "type"; did you mean "dtype" (text: stored, fp32, fp16, bf16; default "stored")?
--set kv_cache.capacity:1:19: error: kv_cache.capacity: found the string "8k", expected int: 0 to 2147483647 tokens; default 0
```

The column of an option counts within its text. A number without a fraction is taken for a real; nothing else is converted.
A file holds at most 1 MiB.
)";

std::string escaped(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

// Components and sections write theirs as they like; here each is a sentence. Names such as f32 stay as they are.
std::string sentence(std::string text) {
  const size_t word = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), text.size());
  const bool is_word =
      word > 0 && (word == text.size() || std::string("0123456789_").find(text[word]) == std::string::npos);
  if (is_word) text[0] = static_cast<char>(text[0] - 'a' + 'A');
  if (!text.empty() && !text.ends_with('.')) text += '.';
  return text;
}

std::string row(const std::string& key, const std::string& values, const std::string& standard,
                const std::string& doc) {
  return "| `" + key + "` | " + escaped(values) + " | " + (standard.empty() ? "required" : "`" + standard + "`") +
         " | " + escaped(doc) + " |\n";
}

std::string table(const tenon_param_schema& schema, const std::vector<StructuredKey>& structured) {
  std::string text = "| key | values | default | meaning |\n|---|---|---|---|\n";
  for (size_t i = 0; i < schema.count; ++i) {
    const tenon_param_spec spec = spec_at(schema, i);
    std::string values = type_name(spec);
    if (const std::string range = range_text(spec); !range.empty()) values += ": " + range;
    if (spec.unit != nullptr && *spec.unit != '\0') values += std::string(" ") + spec.unit;
    std::string doc = sentence(spec.doc);
    if (spec.flags & TENON_PARAM_PER_REQUEST) doc += " A request may override it.";
    text += row(spec.name, values, default_text(spec), doc);
  }
  for (const StructuredKey& s : structured) {
    text += "| `" + std::string(s.name) + "` | " + s.form + " | | " + escaped(s.doc) + " |\n";
  }
  return text;
}

// Returns the components of a kind by name, each with the devices that it is there for.
std::map<std::string, std::string> devices_by_name(const Registry& registry, const char* kind) {
  std::map<std::string, std::string> all;
  for (const ComponentInfo& info : registry.components(kind)) {
    std::string& devices = all[info.name];
    if (!info.device.empty()) devices += (devices.empty() ? "" : ", ") + info.device;
  }
  return all;
}

std::string components(Registry& registry, const char* kind) {
  std::string text;
  for (const auto& [name, devices] : devices_by_name(registry, kind)) {
    const LoadedComponent& c = registry.load(kind, name);
    text += "\n### " + std::string(kind) + " `" + name + "`\n\n" + sentence(c.doc);
    if (devices == kHostDevice) {
      text += " On the host, under any device.";
    } else if (!devices.empty() && std::string(kind) != "device") {
      text += " Devices: " + devices + ".";
    }
    text += "\n\n" + (c.schema->count == 0 ? std::string("No parameters.\n") : table(*c.schema, {}));
  }
  return text;
}

std::string names(Registry& registry, const char* kind, const char* title) {
  std::string text;
  for (const auto& [name, devices] : devices_by_name(registry, kind)) {
    text += "- `" + name + "`: " + sentence(registry.load(kind, name).doc) + "\n";
  }
  return text.empty() ? "" : std::string("\n") + title + ":\n\n" + text;
}

std::string families() {
  std::string text;
  for (const ModelFamily& f : model_families({})) text += (text.empty() ? "`" : ", `") + f.name + "`";
  return "\nModel families, found by what the model's files call their architecture ([how to add "
         "one](adding-a-model.md)): " +
         text + ".\n";
}

}  // namespace
}  // namespace config

std::string pipeline_reference_markdown(Registry& registry) {
  std::string text = config::kIntroduction;
  for (const config::Section& s : config::sections()) {
    const std::string name = s.name;
    text += "\n## " + (name == "plugin" ? "[[plugin]]" : "[" + name + "]") + "\n\n" + s.doc + "\n\n";
    text += config::table(*s.keys, s.structured);
    if (name == "model") {
      text += config::names(registry, "weights", "Weights readers") +
              config::names(registry, "tokenizer", "Tokenizers") + config::families();
    }
    const std::string kind = name == "sampler" ? "sampler" : s.kind;
    if (!kind.empty()) text += config::components(registry, kind.c_str());
  }
  return text;
}

}  // namespace tenon
