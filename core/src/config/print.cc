// A pipeline back as text: whole, and as the overrides that make it out of another.
#include <algorithm>
#include <optional>

#include "sections.h"
#include "tenon/core/config.h"
#include "tree.h"

namespace tenon {
namespace config {
namespace {

std::string value_text(const ParamValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const double* real = std::get_if<double>(&value)) return toml_real(*real);
  return toml_string(std::get<std::string>(value));
}

struct Key {
  std::string name, value;
  std::string component_default;  // of a component's parameter: a pipeline of another component starts from it
  bool of_component = false;
};

struct Lines {
  std::string section;
  std::vector<Key> keys;

  void own(const char* name, const ParamValue& value) { keys.push_back({name, value_text(value), "", false}); }
  void count(const char* name, uint64_t value) { own(name, ParamValue(static_cast<int64_t>(value))); }
  void raw(const char* name, std::string value) { keys.push_back({name, std::move(value), "", false}); }
  void params(const ComponentConfig& c) {
    const ParamValues defaults(c.params.schema());
    for (size_t i = 0; i < c.params.schema().count; ++i) {
      keys.push_back({c.params.schema().spec[i]->name, value_text(c.params.get(i)), value_text(defaults.get(i)), true});
    }
  }
};

std::string inline_table(const ComponentConfig& c, const std::string& match) {
  std::string text = match.empty() ? "{" : "{match = " + toml_string(match) + ", ";
  text += "use = " + toml_string(c.name);
  for (size_t i = 0; i < c.params.schema().count; ++i) {
    text += std::string(", ") + c.params.schema().spec[i]->name + " = " + value_text(c.params.get(i));
  }
  return text + "}";
}

std::string inline_array(const std::vector<std::string>& elements) {
  std::string text;
  for (const std::string& element : elements) text += (text.empty() ? "" : ", ") + element;
  return "[" + text + "]";
}

const char* name_of(Execution execution) {
  constexpr const char* kNames[] = {"auto", "per_op", "recorded", "graph"};
  return kNames[static_cast<size_t>(execution)];
}

Lines component_section(const char* section, const ComponentConfig& c) {
  Lines lines{section, {}};
  lines.own("use", c.name);
  lines.params(c);
  return lines;
}

std::vector<Lines> sections_of(const PipelineConfig& c) {
  std::vector<std::string> overrides, chain, plugins;
  for (const QuantizationOverride& o : c.overrides) overrides.push_back(inline_table(o.scheme, o.match));
  for (const ComponentConfig& link : c.sampler_chain) chain.push_back(inline_table(link, ""));
  for (const PluginConfig& p : c.plugins) plugins.push_back("{path = " + toml_string(p.path) + "}");

  std::vector<Lines> all;
  all.push_back({"", {}});
  all.back().raw("plugin", inline_array(plugins));
  Lines pipeline{"pipeline", {}};
  pipeline.own("strict", c.strict);
  pipeline.own("execution", std::string(name_of(c.execution)));
  all.push_back(std::move(pipeline));
  Lines model{"model", {}};
  model.own("path", c.model.path);
  model.own("weights", c.model.weights);
  model.own("tokenizer", c.model.tokenizer);
  model.count("context", c.model.context);
  all.push_back(std::move(model));
  Lines weights{"weights", {}};
  weights.own("lock", c.lock_weights);
  all.push_back(std::move(weights));
  all.push_back(component_section("device", c.device));
  all.back().count("index", c.device_index);
  all.push_back(component_section("quantization", c.quantization));
  all.back().raw("override", inline_array(overrides));
  all.push_back(component_section("kv_cache", c.kv_cache));
  all.back().count("capacity", c.capacity);
  all.push_back(component_section("attention", c.attention));
  Lines sampler{"sampler", {}};
  sampler.count("seed", c.seed);
  sampler.raw("chain", inline_array(chain));
  sampler.raw("select", inline_table(c.sampler_select, ""));
  all.push_back(std::move(sampler));
  all.push_back(c.draft ? component_section("draft", *c.draft)
                        : Lines{"draft", {{"use", toml_string(kNoDraft), "", false}}});
  all.push_back(component_section("scheduler", c.scheduler));
  all.back().count("prefill_rows", c.prefill_rows);
  Lines trace{"trace", {}};
  trace.own("path", c.trace.path);
  trace.count("skip_steps", c.trace.skip_steps);
  trace.count("steps", c.trace.steps);
  trace.count("buffer", c.trace.buffer);
  trace.own("slow_step_ms", c.trace.slow_step_ms);
  trace.count("keep_steps", c.trace.keep_steps);
  trace.own("kernels", c.trace.kernels);
  all.push_back(std::move(trace));
  return all;
}

const Key* find_key(const Lines& lines, const std::string& name) {
  const auto found = std::find_if(lines.keys.begin(), lines.keys.end(), [&](const Key& k) { return k.name == name; });
  return found != lines.keys.end() ? &*found : nullptr;
}

}  // namespace
}  // namespace config

std::string to_toml(const PipelineConfig& config) {
  std::string text;
  for (const config::Lines& lines : config::sections_of(config)) {
    if (!lines.section.empty()) text += "\n[" + lines.section + "]\n";
    for (const config::Key& key : lines.keys) text += key.name + " = " + key.value + "\n";
  }
  return text;
}

std::vector<std::string> to_overrides(const PipelineConfig& config, const PipelineConfig& base) {
  std::vector<std::string> options;
  const std::vector<config::Lines> from = config::sections_of(base);
  const std::vector<config::Lines> to = config::sections_of(config);
  for (size_t i = 0; i < to.size(); ++i) {
    const config::Key* use = config::find_key(to[i], "use");
    const config::Key* old_use = config::find_key(from[i], "use");
    const bool other = use != nullptr && old_use != nullptr && use->value != old_use->value;
    for (const config::Key& key : to[i].keys) {
      const config::Key* old = config::find_key(from[i], key.name);
      const bool by_default = key.of_component && other;
      if (by_default ? key.value == key.component_default : old != nullptr && key.value == old->value) continue;
      options.push_back((to[i].section.empty() ? "" : to[i].section + ".") + key.name + "=" + key.value);
    }
  }
  return options;
}

}  // namespace tenon
