// This is a CUDA component of the plugins beside the program, for tests and benchmarks.
#pragma once

#include <string>
#include <vector>

#include "recorder.h"

namespace tenon::test {

class CudaComponent : public conformance::Component {
 public:
  // `settings` are parameters that are not to have their defaults.
  CudaComponent(const std::string& kind, const std::string& name,
                const std::vector<conformance::Setting>& settings = {})
      : Component(cuda_plugins().load(kind, name, "cuda"), cuda_device(), settings) {}
};

}  // namespace tenon::test
