// This holds the merged document against the schemas of the sections and of the components
// that it names, and makes a PipelineConfig.
//
// Invariants: every key is either taken or reported, with what would be right. All findings are collected and thrown as
// one Error. A value that is missing has its default, which the schema states, and one without a default is reported.
#include <algorithm>
#include <optional>

#include "document.h"
#include "findings.h"
#include "sections.h"
#include "tenon/core/config.h"
#include "tenon/core/registry.h"

namespace tenon {
namespace config {
namespace {

template <class T>
T get(const ParamValues& values, const char* name) {
  return std::get<T>(values.get(find_param(values.schema(), name)));
}
uint32_t get_count(const ParamValues& values, const char* name) {
  return static_cast<uint32_t>(get<int64_t>(values, name));
}

constexpr uint32_t kKeepSteps = 8;  // a trace of slow steps keeps so many unless it says how many

// A table's keys are checked against a form, and against the parameters of a component that the table names.
struct Form {
  std::string label;  // messages begin with it: "quantization.override"
  const tenon_param_schema& own;
  const std::vector<StructuredKey>& structured;
};

const std::vector<StructuredKey> kNothingStructured;

class Resolver {
 public:
  Resolver(const ConfigDocument::Data& data, SchemaSource& schemas) : data_(data), schemas_(schemas) {}

  PipelineConfig run(ModelPath path);

 private:
  void check_sections();
  void plugins();
  void ignored_keys(const Node& model, std::vector<std::string>& to);
  void model(ModelPath path, ModelConfig& m);
  void quantization_overrides(const Node& list, std::vector<QuantizationOverride>& to);
  void instance(ModelInstanceConfig& to, ModelPath path);
  void draft_pipeline(const Node& node, ModelPath path);
  void sampler();
  void sampler_chain(const Node& list);
  void trace();

  // Returns the section's table; an empty one if it is not there or is no table, which check_sections() reports.
  const Node& section_node(const char* name) const;
  bool is_malformed(const char* name) const;
  // Returns the own keys of a table without a component; all others are reported.
  ParamValues plain(const Form& form, const Node& node);
  // Resolves a table that names a component; own receives the keys beside the component's.
  ComponentConfig component(const Form& form, const char* kind, const Node& node, ParamValues& own);
  ComponentConfig section_component(const char* name, ParamValues& own);
  // Resolves an entry of the sampler's chain: a table or a name.
  std::optional<ComponentConfig> sampler_entry(const std::string& label, const Node& node);

  void set_own(const Form& form, const Table& keys, ParamValues& own);
  const tenon_param_schema* schema(const Form& form, const ComponentConfig& c);
  void check_missing(const std::string& label, const Node& node, const ParamValues& values, const char* kind);
  void check_name(const char* kind, const char* key, const std::string& name);

  const ConfigDocument::Data& data_;
  const Table* root_ = &data_.root;  // the pipeline's table, or its draft model's
  std::string label_;                // before the names of sections in messages: "draft.pipeline."
  SchemaSource& schemas_;
  Findings findings_;
  PipelineConfig out_;
  std::string device_;  // "" if it is not known
  Node absent_;
};

void Resolver::check_sections() {
  std::vector<std::string> names, keys;
  for (const Section& s : sections()) {
    names.emplace_back(s.name);
    for (const std::string& key : param_names(*s.keys)) keys.push_back(std::string(s.name) + "." + key);
  }
  for (const auto& [name, node] : data_.root) {
    const Section* known = find_section(name);
    if (known == nullptr && (node.table() != nullptr || node.array() != nullptr)) {
      const std::string near = suggestion(name, names);
      findings_.add(node.key_where,
                    "unknown section " + quote(name) + (near.empty() ? "; there are " + listed(names) : near));
    } else if (known == nullptr) {
      std::string message = "the key " + quote(name) + " is in no section";
      for (const std::string& key : keys) {
        if (key.ends_with("." + name)) message += "; did you mean " + key + "?";
      }
      findings_.add(node.key_where, std::move(message));
    } else if (name == "plugin" ? node.array() == nullptr : node.table() == nullptr) {
      std::string message = "found " + describe_found(node) + ", expected the section ";
      message += name == "plugin" ? "[[plugin]], once for each library" : "[" + name + "]";
      if (node.text() != nullptr && *known->kind != '\0')
        message += "; write " + name + ".use = " + quote(*node.text());
      findings_.add(node.key_where, std::move(message));
    }
  }
}

const Node& Resolver::section_node(const char* name) const {
  const auto found = root_->find(name);
  return found != root_->end() && found->second.table() != nullptr ? found->second : absent_;
}

bool Resolver::is_malformed(const char* name) const {
  const auto found = root_->find(name);
  return found != root_->end() && found->second.table() == nullptr;
}

void Resolver::set_own(const Form& form, const Table& keys, ParamValues& own) {
  for (const auto& [key, node] : keys) {
    const size_t i = find_param(form.own, key);
    if (i < form.own.count) set_param(own, i, node, form.label, findings_);
  }
}

ParamValues Resolver::plain(const Form& form, const Node& node) {
  ParamValues own(form.own);
  set_own(form, *node.table(), own);
  for (const auto& [key, value] : *node.table()) {
    const bool structured = std::any_of(form.structured.begin(), form.structured.end(),
                                        [&k = key](const StructuredKey& s) { return k == s.name; });
    if (!structured && find_param(form.own, key) == form.own.count) {
      report_unknown_key(key, value, form.label, {{&form.own}, form.structured}, findings_);
    }
  }
  check_missing(form.label, node, own, "");
  return own;
}

const tenon_param_schema* Resolver::schema(const Form& form, const ComponentConfig& c) {
  try {
    const tenon_param_schema& s = schemas_.schema(c.kind, c.name, c.kind == "device" ? "" : device_);
    for (const std::string& name : param_names(form.own)) {
      if (find_param(s, name) < s.count) {
        findings_.add(c.where, c.kind + "." + c.name + ": its parameter " + quote(name) + " has the name of a key of " +
                                   form.label + " itself");
      }
    }
    return &s;
  } catch (const Error& e) {
    findings_.add(e, c.where);
    return nullptr;
  }
}

ComponentConfig Resolver::component(const Form& form, const char* kind, const Node& node, ParamValues& own) {
  const Table& keys = *node.table();
  ComponentConfig c;
  c.kind = kind;
  set_own(form, keys, own);
  check_missing(form.label, node, own, kind);
  c.name = get<std::string>(own, "use");
  const auto named = keys.find("use");
  c.where = named != keys.end() ? named->second.where : node.where;
  // These names stand for no component by themselves.
  const bool none = (c.kind == "draft" && c.name == kNoDraft) || (c.kind == "quantization" && c.name == kAutoScheme) ||
                    (c.kind == "grammar" && (c.name == kNoGrammar || c.name == kAutoGrammar));
  const tenon_param_schema* params = none ? &no_params() : c.name.empty() ? nullptr : schema(form, c);
  if (params == nullptr) return c;
  c.params = ParamValues(*params);
  const std::string label = none ? form.label : c.kind + "." + c.name;
  for (const auto& [key, value] : keys) {
    const bool structured = std::any_of(form.structured.begin(), form.structured.end(),
                                        [&k = key](const StructuredKey& s) { return k == s.name; });
    if (structured || find_param(form.own, key) < form.own.count) continue;
    if (const size_t i = find_param(*params, key); i < params->count) {
      set_param(c.params, i, value, label, findings_);
    } else {
      report_unknown_key(key, value, label, {{params, &form.own}, form.structured}, findings_);
    }
  }
  for (const std::string& missing : c.params.missing()) {
    const size_t i = find_param(*params, missing);
    if (!keys.contains(missing)) {
      findings_.add(c.where, label + ": " + quote(missing) + " is missing (" + describe(spec_at(*params, i)) + ")");
    }
  }
  return c;
}

void Resolver::check_missing(const std::string& label, const Node& node, const ParamValues& values, const char* kind) {
  for (const std::string& missing : values.missing()) {
    if (node.table()->count(missing) != 0) continue;  // it is there, but wrong, and was reported
    std::string message = label + ": " + quote(missing) + " is missing";
    if (missing == "use") {
      const std::vector<std::string> names = schemas_.names(kind);
      message += names.empty() ? "; none is installed" : "; installed: " + listed(names);
    } else {
      message += " (" + describe(spec_at(values.schema(), find_param(values.schema(), missing))) + ")";
    }
    findings_.add(node.where, std::move(message));
  }
}

ComponentConfig Resolver::section_component(const char* name, ParamValues& own) {
  const Section& s = section(name);
  if (is_malformed(name)) return {};
  return component({label_ + s.name, *s.keys, s.structured}, s.kind, section_node(name), own);
}

void Resolver::plugins() {
  const auto found = data_.root.find("plugin");
  const Array* list = found != data_.root.end() ? found->second.array() : nullptr;
  if (list == nullptr) return;
  for (const Node& entry : *list) {
    if (entry.table() == nullptr) {
      findings_.add(entry.where, "plugin: found " + describe_found(entry) + ", expected a table with \"path\"");
      continue;
    }
    const ParamValues own = plain({"plugin", *section("plugin").keys, kNothingStructured}, entry);
    const auto path = entry.table()->find("path");
    if (path != entry.table()->end()) out_.plugins.push_back({get<std::string>(own, "path"), path->second.where});
  }
}

void Resolver::check_name(const char* kind, const char* key, const std::string& name) {
  if (name == "auto") return;
  std::vector<std::string> names = schemas_.names(kind);
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  names.insert(names.begin(), "auto");
  const auto found = section_node("model").table()->find(key);
  findings_.add(found->second.where, label_ + "model." + key + ": found " + quote(name) + ", expected " +
                                         listed(names) + suggestion(name, names));
}

void Resolver::ignored_keys(const Node& model, std::vector<std::string>& to) {
  const auto list = model.table()->find("ignore_unknown");
  if (list == model.table()->end()) return;
  if (list->second.array() == nullptr) {
    findings_.add(list->second.where, label_ + "model.ignore_unknown: found " + describe_found(list->second) +
                                          ", expected an array of keys, such as [\"auto_map\"]");
    return;
  }
  for (const Node& key : *list->second.array()) {
    if (key.text() != nullptr && !key.text()->empty()) {
      to.push_back(*key.text());
    } else {
      findings_.add(key.where,
                    label_ + "model.ignore_unknown: found " + describe_found(key) + ", expected a key's name");
    }
  }
}

void Resolver::model(ModelPath path, ModelConfig& m) {
  const Node& node = section_node("model");
  const Section& s = section("model");
  const ParamValues own = plain({label_ + s.name, *s.keys, s.structured}, node);
  m.path = get<std::string>(own, "path");
  m.weights = get<std::string>(own, "weights");
  m.tokenizer = get<std::string>(own, "tokenizer");
  m.context = get_count(own, "context");
  m.layers = get_count(own, "layers");
  ignored_keys(node, m.ignore_unknown);
  const auto found = node.table()->find("path");
  const bool given = found != node.table()->end();
  m.where = given ? found->second.where : node.where;
  if (path == ModelPath::kRequired && m.path.empty() && (!given || found->second.text() != nullptr)) {
    findings_.add(m.where, "model.path is missing: name a Hugging Face folder, a .gguf file or \"synthetic:<shape>\"");
  }
  check_name("weights", "weights", m.weights);
  check_name("tokenizer", "tokenizer", m.tokenizer);
}

void Resolver::quantization_overrides(const Node& list, std::vector<QuantizationOverride>& to) {
  if (list.array() == nullptr) {
    findings_.add(list.key_where, "quantization.override: found " + describe_found(list) +
                                      ", expected [[quantization.override]], once for each pattern");
    return;
  }
  for (const Node& entry : *list.array()) {
    if (entry.table() == nullptr) {
      findings_.add(entry.where, "quantization.override: found " + describe_found(entry) +
                                     ", expected a table with \"match\" and \"use\"");
      continue;
    }
    ParamValues own(override_keys());
    QuantizationOverride o;
    o.scheme = component({"quantization.override", override_keys(), kNothingStructured}, "quantization", entry, own);
    o.match = get<std::string>(own, "match");
    const auto match = entry.table()->find("match");
    if (o.match.empty() && match != entry.table()->end() && match->second.text() != nullptr) {
      findings_.add(match->second.where,
                    "quantization.override.match: found \"\", expected a glob over module paths, such as \"lm_head\"");
    }
    to.push_back(std::move(o));
  }
}

// Resolves the sections of a model and of what it is stored and computed with.
void Resolver::instance(ModelInstanceConfig& to, ModelPath path) {
  model(path, to.model);
  ParamValues scheme(*section("quantization").keys), cache(*section("kv_cache").keys),
      attention(*section("attention").keys);
  to.quantization = section_component("quantization", scheme);
  const Table& keys = *section_node("quantization").table();
  if (const auto list = keys.find("override"); list != keys.end()) quantization_overrides(list->second, to.overrides);
  to.kv_cache = section_component("kv_cache", cache);
  to.attention = section_component("attention", attention);
  if (root_ == &data_.root) out_.capacity = get_count(cache, "capacity");
}

void Resolver::draft_pipeline(const Node& node, ModelPath path) {
  if (node.table() == nullptr) {
    return findings_.add(node.key_where,
                         "draft.pipeline: found " + describe_found(node) + ", expected the section [draft.pipeline]");
  }
  if (out_.draft) {
    findings_.add(node.key_where, "draft.use names " + quote(out_.draft->name) +
                                      ", and [draft.pipeline] a draft model; a pipeline has one of them");
  }
  DraftModelConfig draft;
  draft.where = node.where;
  std::vector<StructuredKey> nested;
  for (const char* name : kDraftSections) nested.push_back({name, "a table", ""});
  draft.tokens = get_count(plain({"draft.pipeline", draft_pipeline_keys(), nested}, node), "tokens");
  Table above, merged;
  for (const StructuredKey& key : nested) {
    if (const auto own = data_.root.find(key.name); own != data_.root.end()) merged.insert(*own);
    const auto stated = node.table()->find(key.name);
    if (stated == node.table()->end()) continue;
    if (stated->second.table() == nullptr) {
      findings_.add(stated->second.key_where, std::string("draft.pipeline.") + key.name + ": found " +
                                                  describe_found(stated->second) + ", expected a table");
    } else {
      above.insert(*stated);
    }
  }
  if (const auto cache = above.find("kv_cache"); cache != above.end()) {
    const auto capacity = cache->second.table()->find("capacity");
    if (capacity != cache->second.table()->end()) {
      findings_.add(capacity->second.key_where,
                    "draft.pipeline.kv_cache.capacity: the draft's cache has the capacity of the pipeline's; state "
                    "kv_cache.capacity");
    }
  }
  merge_sections(merged, std::move(above));
  root_ = &merged;
  label_ = "draft.pipeline.";
  instance(draft, path);
  root_ = &data_.root;
  label_.clear();
  out_.draft_model = std::move(draft);
}

std::optional<ComponentConfig> Resolver::sampler_entry(const std::string& label, const Node& node) {
  ParamValues own(component_keys());
  const Form form{label, component_keys(), kNothingStructured};
  if (node.table() != nullptr) return component(form, "sampler", node, own);
  if (node.text() != nullptr) {
    const Node named{node.key_where, node.where, Table{{"use", node}}};
    return component(form, "sampler", named, own);
  }
  findings_.add(node.where, label + ": found " + describe_found(node) +
                                ", expected a component: its name, or a table with \"use\"");
  return std::nullopt;
}

void Resolver::sampler_chain(const Node& list) {
  out_.sampler_where = list.where;
  if (list.array() == nullptr) {
    findings_.add(list.where, "sampler.chain: found " + describe_found(list) + ", expected an array of components");
    return;
  }
  for (const Node& entry : *list.array()) {
    if (auto c = sampler_entry("sampler.chain", entry)) out_.sampler_chain.push_back(std::move(*c));
  }
}

void Resolver::sampler() {
  if (is_malformed("sampler")) return;
  const Node& node = section_node("sampler");
  const Section& s = section("sampler");
  const ParamValues own = plain({s.name, *s.keys, s.structured}, node);
  out_.seed = static_cast<uint64_t>(get<int64_t>(own, "seed"));
  out_.sampler_where = node.where;
  const Table& keys = *node.table();
  if (const auto chain = keys.find("chain"); chain != keys.end()) sampler_chain(chain->second);
  if (const auto select = keys.find("select"); select == keys.end()) {
    const std::vector<std::string> names = schemas_.names("sampler");
    findings_.add(node.where, "sampler: \"select\" is missing; installed: " + listed(names));
  } else if (auto c = sampler_entry("sampler.select", select->second)) {
    out_.sampler_select = std::move(*c);
  }
}

void Resolver::trace() {
  const Node& node = section_node("trace");
  const Section& s = section("trace");
  const ParamValues own = plain({s.name, *s.keys, s.structured}, node);
  TraceConfig& t = out_.trace;
  t.path = get<std::string>(own, "path");
  const auto path = node.table()->find("path");
  t.where = path != node.table()->end() ? path->second.where : node.where;
  t.skip_steps = static_cast<uint64_t>(get<int64_t>(own, "skip_steps"));
  t.steps = static_cast<uint64_t>(get<int64_t>(own, "steps"));
  t.buffer = get_count(own, "buffer");
  t.slow_step_ms = get<double>(own, "slow_step_ms");
  t.keep_steps = get_count(own, "keep_steps");
  if (t.slow_step_ms > 0 && t.keep_steps == 0) t.keep_steps = kKeepSteps;
  t.kernels = get<std::string>(own, "kernels");
}

Execution execution_of(const std::string& name) {
  if (name == "per_op") return Execution::kPerOp;
  if (name == "recorded") return Execution::kRecorded;
  return name == "graph" ? Execution::kGraph : Execution::kAuto;
}

PipelineConfig Resolver::run(ModelPath path) {
  const SourcePosition nowhere{data_.file};
  absent_ = {nowhere, nowhere, Table{}};
  check_sections();
  plugins();
  const Section& p = section("pipeline");
  const ParamValues pipeline = plain({p.name, *p.keys, p.structured}, section_node("pipeline"));
  out_.strict = get<bool>(pipeline, "strict");
  out_.execution = execution_of(get<std::string>(pipeline, "execution"));
  out_.embeddings = get<bool>(pipeline, "embeddings");
  const Section& w = section("weights");
  out_.lock_weights = get<bool>(plain({w.name, *w.keys, w.structured}, section_node("weights")), "lock");

  ParamValues device(*section("device").keys), draft(*section("draft").keys), scheduler(*section("scheduler").keys);
  ParamValues grammar(*section("grammar").keys);
  out_.device = section_component("device", device);
  out_.device_index = get_count(device, "index");
  // If the device itself is in doubt, components for any device are looked at.
  const std::vector<std::string> devices = schemas_.names("device");
  if (std::find(devices.begin(), devices.end(), out_.device.name) != devices.end()) device_ = out_.device.name;
  instance(out_, path);
  sampler();
  if (ComponentConfig c = section_component("draft", draft); c.name != kNoDraft) out_.draft = std::move(c);
  const Table& draft_keys = *section_node("draft").table();
  if (const auto node = draft_keys.find("pipeline"); node != draft_keys.end()) draft_pipeline(node->second, path);
  if (ComponentConfig c = section_component("grammar", grammar); c.name != kNoGrammar) out_.grammar = std::move(c);
  out_.scheduler = section_component("scheduler", scheduler);
  out_.prefill_rows = get_count(scheduler, "prefill_rows");
  out_.rest_steps = get_count(scheduler, "rest_steps");
  trace();
  findings_.throw_if_any(data_.sources);
  return std::move(out_);
}

}  // namespace
}  // namespace config

const tenon_param_schema& no_params() {
  static const tenon_param_schema none{{sizeof(tenon_param_schema), 1, 0}, 0, 0, nullptr};
  return none;
}

const tenon_param_schema& RegistrySchemas::schema(std::string_view kind, std::string_view name,
                                                  std::string_view device) {
  return *registry_.load(kind, name, device).schema;
}

std::vector<std::string> RegistrySchemas::names(std::string_view kind) {
  return registry_.names(kind);
}

PipelineConfig resolve(const ConfigDocument& document, SchemaSource& schemas, ModelPath path) {
  return config::Resolver(document.data(), schemas).run(path);
}

}  // namespace tenon
