#include "components.h"

#include <fnmatch.h>

#include "tenon/core/error.h"

namespace tenon {

Components::Components(const ModelInstanceConfig& config, Context& on) : context(on) {
  const auto add = [&](const std::string& match, const ComponentConfig& scheme) {
    schemes.push_back({match, scheme.name == kAutoScheme ? Instance() : context.create(scheme)});
  };
  add("", config.quantization);
  for (const QuantizationOverride& o : config.overrides) add(o.match, o.scheme);
  kv_cache = context.create(config.kv_cache);
  attention = context.create(config.attention);
}

const Scheme& Components::scheme_for(const std::string& matrix, const std::string& site) const {
  for (size_t i = schemes.size(); i-- > 1;) {
    const char* match = schemes[i].match.c_str();
    if (fnmatch(match, matrix.c_str(), 0) == 0 || fnmatch(match, site.c_str(), 0) == 0) return schemes[i];
  }
  return schemes.front();
}

const std::vector<Scheme>& Components::installed_schemes() {
  if (!installed_.empty()) return installed_;
  for (const std::string& name : context.installed("quantization")) {
    try {
      installed_.push_back({"", context.create_default("quantization", name)});
    } catch (const Error&) {
      // A scheme that does not load is reported when it is asked for by name.
    }
  }
  return installed_;
}

}  // namespace tenon
