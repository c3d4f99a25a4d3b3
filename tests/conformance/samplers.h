// This is the stand-in host of samplers under the tests' names.
#pragma once

#include "conformance/sampler_host.h"
#include "support/component.h"
#include "support/op_runner.h"

namespace tenon::test {

using conformance::awkward_logits;
using conformance::Candidate;
using conformance::Candidates;
using conformance::Logits;
using conformance::rows_of;
using conformance::SamplerHost;
using conformance::Settings;
using conformance::StepRow;

// Puts one row through one sampler, DENSE or SPARSE.
inline Candidates through(const std::string& sampler, const Settings& settings, const Logits& logits,
                          uint32_t form = TENON_DENSE) {
  const Component component("sampler", sampler);
  SamplerHost host(static_cast<uint32_t>(logits.size()), rows_of({logits}));
  const tenon_candidates out =
      host.apply(host.add(component, {settings}), form == TENON_DENSE ? host.dense() : host.sparse(1));
  host.run();
  return host.candidates(out)[0];
}

}  // namespace tenon::test
