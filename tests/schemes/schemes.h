// The tests of this folder share this: a registry with the plugins of the build and the scheme `seen`, and model files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support/pipelines.h"
#include "tenon/core/quantize.h"

namespace tenon::test {

inline std::unique_ptr<Registry> schemes() {
  return make_registry({TENON_SCHEME_TEST_PLUGINS, plugins()});
}

inline QuantizeTarget target(const std::string& name, Registry& registry,
                             const std::vector<QuantizeSetting>& settings = {}) {
  const std::vector<std::string> names = {name};
  return quantize_targets(names, settings, registry).front();
}

inline std::string golden(const std::string& name) {
  return root() / "tests/golden/data" / name;
}

inline constexpr char kText[] = "The other bird sat on the wall and saw the other bird. One day the wall was gone.";

inline QuantizeOptions calibrated(const std::string& scheme, Registry& registry,
                                  const std::vector<QuantizeSetting>& settings = {}) {
  QuantizeOptions options{.target = target(scheme, registry, settings)};
  options.calibration = QuantizeCalibration{.text = kText,
                                            .context = 256,
                                            .windows = 0,
                                            .set = {"quantization.dtype=fp32", "kv_cache.format=fp32"},
                                            .registry = &registry};
  return options;
}

}  // namespace tenon::test
