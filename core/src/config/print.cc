// A pipeline becomes text again: whole, or as the overrides that make it out of another. Both come from one list of
// sections and keys (sections_of()), which must have every key that resolve() reads: else what is printed would not
// resolve to the same pipeline. An override is left out where resolving would find the value anyway.
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

constexpr std::string_view kDraftPrefix = "draft.pipeline.";

struct Key {
  std::string name, value;
  std::string
      component_default;  // a component's parameter has it: a pipeline that names another component starts from it
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

Lines component_section(const std::string& section, const ComponentConfig& c) {
  Lines lines{section, {}};
  lines.own("use", c.name);
  lines.params(c);
  return lines;
}

// Prints the sections of a model and its components; prefix is "" or "draft.pipeline.".
void add_instance(const ModelInstanceConfig& c, const std::string& prefix, std::vector<Lines>& all) {
  Lines model{prefix + "model", {}};
  model.own("path", c.model.path);
  model.own("weights", c.model.weights);
  model.own("tokenizer", c.model.tokenizer);
  model.count("context", c.model.context);
  model.count("layers", c.model.layers);
  std::vector<std::string> ignored;
  for (const std::string& key : c.model.ignore_unknown) ignored.push_back(toml_string(key));
  model.raw("ignore_unknown", inline_array(ignored));
  all.push_back(std::move(model));
  std::vector<std::string> overrides;
  for (const QuantizationOverride& o : c.overrides) overrides.push_back(inline_table(o.scheme, o.match));
  all.push_back(component_section(prefix + "quantization", c.quantization));
  all.back().raw("override", inline_array(overrides));
  all.push_back(component_section(prefix + "kv_cache", c.kv_cache));
  all.push_back(component_section(prefix + "attention", c.attention));
}

std::vector<Lines> sections_of(const PipelineConfig& c) {
  std::vector<std::string> chain, plugins;
  for (const ComponentConfig& entry : c.sampler_chain) chain.push_back(inline_table(entry, ""));
  for (const PluginConfig& p : c.plugins) plugins.push_back("{path = " + toml_string(p.path) + "}");

  std::vector<Lines> all;
  all.push_back({"", {}});
  all.back().raw("plugin", inline_array(plugins));
  Lines pipeline{"pipeline", {}};
  pipeline.own("strict", c.strict);
  pipeline.own("execution", std::string(name_of(c.execution)));
  pipeline.own("embeddings", c.embeddings);
  all.push_back(std::move(pipeline));
  add_instance(c, "", all);
  const auto cache = std::find_if(all.begin(), all.end(), [](const Lines& l) { return l.section == "kv_cache"; });
  cache->count("capacity", c.capacity);
  Lines weights{"weights", {}};
  weights.own("lock", c.lock_weights);
  all.push_back(std::move(weights));
  all.push_back(component_section("device", c.device));
  all.back().count("index", c.device_index);
  Lines sampler{"sampler", {}};
  sampler.count("seed", c.seed);
  sampler.raw("chain", inline_array(chain));
  sampler.raw("select", inline_table(c.sampler_select, ""));
  all.push_back(std::move(sampler));
  all.push_back(c.draft ? component_section("draft", *c.draft)
                        : Lines{"draft", {{"use", toml_string(kNoDraft), "", false}}});
  all.push_back(c.grammar ? component_section("grammar", *c.grammar)
                          : Lines{"grammar", {{"use", toml_string(kNoGrammar), "", false}}});
  all.push_back(component_section("scheduler", c.scheduler));
  all.back().count("prefill_rows", c.prefill_rows);
  all.back().count("rest_steps", c.rest_steps);
  if (c.draft_model) {
    Lines draft{"draft.pipeline", {}};
    draft.count("tokens", c.draft_model->tokens);
    all.push_back(std::move(draft));
    add_instance(*c.draft_model, std::string(kDraftPrefix), all);
  }
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
  const config::Lines none;
  const auto section = [&none](const std::vector<config::Lines>& all, const std::string& name) -> const config::Lines& {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const config::Lines& lines) { return lines.section == name; });
    return found == all.end() ? none : *found;
  };
  for (const config::Lines& lines : to) {
    const config::Lines* before = &section(from, lines.section);
    // A key that a draft model does not state is as in the pipeline's own sections.
    if (before == &none && lines.section.starts_with(config::kDraftPrefix)) {
      before = &section(to, lines.section.substr(config::kDraftPrefix.size()));
    }
    const config::Key* use = config::find_key(lines, "use");
    const config::Key* old_use = config::find_key(*before, "use");
    const bool other = use != nullptr && old_use != nullptr && use->value != old_use->value;
    for (const config::Key& key : lines.keys) {
      const config::Key* old = config::find_key(*before, key.name);
      const bool by_default = key.of_component && other;
      if (by_default ? key.value == key.component_default : old != nullptr && key.value == old->value) continue;
      options.push_back((lines.section.empty() ? "" : lines.section + ".") + key.name + "=" + key.value);
    }
  }
  return options;
}

}  // namespace tenon
