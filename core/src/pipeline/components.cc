#include "components.h"

#include <fnmatch.h>

namespace tenon {

Components::Components(const ModelInstanceConfig& config, Context& on) : context(on) {
  schemes.push_back({"", context.create(config.quantization)});
  for (const QuantizationOverride& o : config.overrides) schemes.push_back({o.match, context.create(o.scheme)});
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

}  // namespace tenon
