// OpenAI's sampling fields become parameters of the samplers of a pipeline's chain.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fields.h"
#include "tenon/core/config.h"

namespace tenon::serve {

// This holds the samplers of a pipeline, by name.
struct SamplerChain {
  std::vector<std::string> processors;
  std::string select;

  static SamplerChain of(const PipelineConfig& config);
  bool has(std::string_view processor) const;
};

// Request::sampler takes them like this: {"temperature.value", "0.2"}.
using SamplerOverrides = std::vector<std::pair<std::string, std::string>>;

// Reads temperature, top_p, top_k, min_p, the penalties and logit_bias. A field that is absent leaves what the
// configuration says. Throws ApiError that names the field where the chain lacks the sampler that it needs, unless the
// value is one that changes nothing. Ids of logit_bias are below `vocab`.
SamplerOverrides read_sampler_fields(Fields& fields, const SamplerChain& chain, int64_t vocab);

}  // namespace tenon::serve
