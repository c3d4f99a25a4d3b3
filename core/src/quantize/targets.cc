// This finds the targets of a conversion by the names that a command gives them: formats of GGUF (kFormats) and
// quantization components that write files. Every setting has to be taken by a component that is used; a setting that
// none takes is an error, with what there is.
#include <algorithm>
#include <set>

#include "scheme_encoder.h"
#include "tenon/core/error.h"
#include "tenon/core/quantize.h"

namespace tenon {
namespace {

constexpr QuantizeFormat kFormats[] = {
    {"F32", TENON_F32, 0, true},     {"F16", TENON_F16, 1, true},         {"BF16", TENON_BF16, 32, true},
    {"Q8_0", TENON_Q8_0, 7, false},  {"Q6_K", TENON_Q6_K, 18, false},     {"Q5_0", TENON_Q5_0, 8, false},
    {"Q5_1", TENON_Q5_1, 9, false},  {"Q4_0", TENON_Q4_0, 2, false},      {"Q4_1", TENON_Q4_1, 3, false},
    {"Q5_K", TENON_Q5_K, 16, false}, {"Q4_K", TENON_Q4_K, 14, false},     {"Q3_K", TENON_Q3_K, 11, false},
    {"Q2_K", TENON_Q2_K, 10, false}, {"IQ4_NL", TENON_IQ4_NL, 25, false}, {"IQ4_XS", TENON_IQ4_XS, 30, false}};

std::string in_capitals(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return result;
}

const QuantizeFormat* format_of(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                         [&](const QuantizeFormat& f) { return f.name == in_capitals(name); });
  return found == std::end(kFormats) ? nullptr : found;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

[[noreturn]] void unknown_name(const std::string& name, const std::vector<std::string>& components) {
  std::vector<std::string> formats, known = components;
  for (const QuantizeFormat& f : kFormats) formats.emplace_back(f.name);
  known.insert(known.end(), formats.begin(), formats.end());
  const std::string nearest = nearest_name(name, known);
  throw Error(ErrorCode::kUsage, "\"" + name + "\" is no scheme; there are " + list(formats) +
                                     ", and of quantization components those that write files: " + list(components) +
                                     (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

// Returns the parameter's name where a setting is for this component, or for any; else "".
std::string key_for(const QuantizeSetting& setting, const std::string& component) {
  const size_t dot = setting.first.rfind('.');
  if (dot == std::string::npos) return setting.first;
  return setting.first.substr(0, dot) == component ? setting.first.substr(dot + 1) : "";
}

// This has components by name with their settings, and remembers which settings were taken.
class Schemes {
 public:
  Schemes(std::span<const QuantizeSetting> settings, Registry& registry)
      : settings_(settings), registry_(registry), taken_(settings.size()) {}

  std::shared_ptr<const SchemeEncoder> get(const std::string& name) {
    std::shared_ptr<const SchemeEncoder>& made = made_[name];
    if (made) return made;
    const std::vector<std::string> installed = registry_.names("quantization", "cpu");
    if (std::find(installed.begin(), installed.end(), name) == installed.end()) unknown_name(name, installed);
    ParamValues defaults(schema_of(name));
    ComponentConfig config{"quantization", name, {"--scheme " + name, 0, 0}, std::move(defaults)};
    for (size_t i = 0; i < settings_.size(); ++i) set(config, i);
    return made = std::make_shared<const SchemeEncoder>(std::move(config), registry_);
  }

  void check_taken() const {
    std::string known;
    for (const auto& [name, scheme] : made_) {
      known += (known.empty() ? "; " : ", ") + name + " has " +
               (schema_of(name).count == 0 ? "no parameters" : list(param_names(schema_of(name))));
    }
    if (known.empty()) known = "; only quantization components have parameters";
    for (size_t i = 0; i < taken_.size(); ++i) {
      if (taken_[i]) continue;
      throw Error(ErrorCode::kUsage, "--set " + settings_[i].first + ": no scheme that is asked for has it" + known);
    }
  }

 private:
  const tenon_param_schema& schema_of(const std::string& name) const {
    return *registry_.load("quantization", name, "cpu").schema;
  }

  void set(ComponentConfig& config, size_t i) {
    const tenon_param_schema& schema = config.params.schema();
    const size_t index = find_param(schema, key_for(settings_[i], config.name));
    if (index == schema.count) return;
    taken_[i] = true;
    const tenon_param_spec spec = spec_at(schema, index);
    const std::string problem = config.params.set(index, value_from_text(spec, settings_[i].second));
    if (problem.empty()) return;
    throw Error(ErrorCode::kUsage, config.name + "." + spec.name + ": " + problem + "; expected " + describe(spec));
  }

  std::span<const QuantizeSetting> settings_;
  Registry& registry_;
  std::vector<bool> taken_;  // true: a component has taken that setting
  std::map<std::string, std::shared_ptr<const SchemeEncoder>> made_;
};

}  // namespace

std::string QuantizeTarget::name() const {
  if (scheme) return scheme->name();
  const auto* const found =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const auto& f) { return f.format == format; });
  return std::string(found->name);
}

std::span<const QuantizeFormat> quantize_formats() {
  return kFormats;
}

std::vector<QuantizeTarget> quantize_targets(std::span<const std::string> names,
                                             std::span<const QuantizeSetting> settings, Registry& registry) {
  std::vector<QuantizeTarget> targets;
  Schemes schemes(settings, registry);
  for (const std::string& name : names) {
    if (const QuantizeFormat* format = format_of(name)) {
      targets.push_back({.format = format->format});
    } else {
      targets.push_back({.format = TENON_FORMAT_NONE, .scheme = schemes.get(name)});
    }
  }
  schemes.check_taken();
  return targets;
}

}  // namespace tenon
