// These are the shipped schemes in all their settings, and sites that know from a scheme's definition what it holds.
#pragma once

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/quantization_host.h"
#include "support/coded_rows.h"
#include "support/component.h"
#include "support/op_runner.h"

namespace tenon::test {

using conformance::LinearDescription;
using conformance::SiteCase;
using conformance::StepCase;

// This is a scheme with its settings and instruction set.
struct Scheme {
  std::string name, label;
  std::string dtype{};  // the scheme none has one; "" elsewhere
  int64_t group = 0;    // int4wo has one
  bool int8 = false;    // activations are in int8; gguf has this
  uint64_t isa = 0;     // TENON_ISA_*, on the CPU
  std::string device = "cpu";
  std::optional<CodedForm> coded{};  // schemes of codes have it, and their settings
  std::vector<Setting> settings{};

  std::unique_ptr<conformance::Component> open() const;
};
void PrintTo(const Scheme& s, std::ostream* out);

// Returns nf4, fp4, fp8, fp6 and uintx in their settings, for plain code.
std::vector<Scheme> coded_schemes();

class QuantizedSite : public conformance::QuantizedSite {
 public:
  QuantizedSite(const Scheme& scheme, const SiteCase& site, uint32_t rows_a_load = 3, const StepCase& around = {});
};

}  // namespace tenon::test
