// A field is translated only if the pipeline's chain has the sampler for it; one that the chain cannot obey is refused,
// unless its value means that nothing is to be done.
#include "sampler_fields.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace tenon::serve {
namespace {

constexpr double kMostTemperature = 1000;
constexpr size_t kMostBiases = 1024;  // sampler.logit_bias takes so many

// This is a field that is one parameter of one sampler.
struct NumberField {
  const char *field, *processor, *parameter;
  double least, most;
  double neutral;  // changes nothing: needs no sampler
};
constexpr NumberField kNumberFields[] = {
    {"top_p", "top_p", "p", 0, 1, 1},
    {"min_p", "min_p", "p", 0, 1, 0},
    {"repetition_penalty", "repetition_penalty", "penalty", 0.01, 100, 1},
    {"frequency_penalty", "frequency_presence", "frequency", -2, 2, 0},
    {"presence_penalty", "frequency_presence", "presence", -2, 2, 0},
};

std::string in_digits(double value) {
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return {text.data(), end.ptr};
}

[[noreturn]] void lacks(Fields& fields, const char* field, const std::string& processor, const SamplerChain& chain) {
  std::string list;
  for (const std::string& name : chain.processors) list += (list.empty() ? "" : ", ") + name;
  fields.fail(field,
              "this server's pipeline has no sampler \"" + processor + "\"; its chain is [" + list +
                  "] (the operator can add it to sampler.chain)",
              "unsupported_parameter");
}

// Makes the likeliest token the answer. In a chain that draws, the candidates are cut down to it and its equals.
void be_greedy(Fields& fields, const SamplerChain& chain, SamplerOverrides& out) {
  if (chain.select == "greedy") return;
  const bool cut = chain.has("top_k") || chain.has("min_p");
  if (cut && chain.has("temperature")) out.emplace_back("temperature.value", "1");  // a division could make equals
  if (chain.has("top_k")) {
    out.emplace_back("top_k.k", "1");
  } else if (chain.has("min_p")) {
    out.emplace_back("min_p.p", "1");
  } else if (chain.has("temperature")) {
    out.emplace_back("temperature.value", "0");
  } else {
    lacks(fields, "temperature", "top_k", chain);
  }
}

void read_temperature(Fields& fields, const SamplerChain& chain, SamplerOverrides& out, bool& greedy) {
  const auto value = fields.number("temperature", 0, kMostTemperature);
  greedy = value && *value == 0;
  if (!value) return;
  if (greedy) {
    be_greedy(fields, chain, out);
  } else if (chain.select == "greedy") {
    fields.fail("temperature",
                "this server's pipeline always takes the likeliest token (sampler.select = \"greedy\"); only 0 is "
                "supported",
                "unsupported_value");
  } else if (chain.has("temperature")) {
    out.emplace_back("temperature.value", in_digits(*value));
  } else if (*value != 1) {
    lacks(fields, "temperature", "temperature", chain);
  }
}

void read_top_k(Fields& fields, const SamplerChain& chain, SamplerOverrides& out, bool greedy) {
  const auto k = fields.integer("top_k", -1, int64_t{1} << 24);
  if (!k || greedy) return;
  if (chain.has("top_k")) {
    out.emplace_back("top_k.k", std::to_string(std::max<int64_t>(*k, 0)));
  } else if (*k > 0) {
    lacks(fields, "top_k", "top_k", chain);
  }
}

void read_logit_bias(Fields& fields, const SamplerChain& chain, int64_t vocab, SamplerOverrides& out) {
  const boost::json::value* value = fields.find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) fields.fail("logit_bias", "it is not an object of token ids and numbers");
  const boost::json::object& biases = value->get_object();
  if (biases.empty()) return;
  if (!chain.has("logit_bias")) lacks(fields, "logit_bias", "logit_bias", chain);
  if (biases.size() > kMostBiases) {
    fields.fail("logit_bias",
                "it names " + std::to_string(biases.size()) + " tokens, more than " + std::to_string(kMostBiases));
  }
  Fields each(biases, "logit_bias.");
  std::string text;
  for (const auto& member : biases) {
    const std::string_view key = member.key();
    int64_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    // A token has one spelling, or it could be named twice.
    if (end.ec != std::errc() || std::to_string(id) != key || id < 0 || id >= vocab) {
      fields.fail("logit_bias", "\"" + std::string(key.substr(0, 60)) + "\" is not a token of the vocabulary (0 to " +
                                    std::to_string(vocab - 1) + ")");
    }
    const auto bias = each.number(key, -100, 100);
    if (!bias) each.fail(key, "it is not a number");
    text += (text.empty() ? "" : ",") + std::to_string(id) + ":" + in_digits(*bias);
  }
  out.emplace_back("logit_bias.bias", text);
}

}  // namespace

SamplerChain SamplerChain::of(const PipelineConfig& config) {
  SamplerChain chain;
  for (const ComponentConfig& entry : config.sampler_chain) chain.processors.push_back(entry.name);
  chain.select = config.sampler_select.name;
  if (!chain.processors.empty() && (chain.processors.back() == "greedy" || chain.processors.back() == "categorical")) {
    chain.select = chain.processors.back();
    chain.processors.pop_back();
  }
  return chain;
}

bool SamplerChain::has(std::string_view processor) const {
  return std::find(processors.begin(), processors.end(), processor) != processors.end();
}

SamplerOverrides read_sampler_fields(Fields& fields, const SamplerChain& chain, int64_t vocab) {
  SamplerOverrides out;
  bool greedy = false;
  read_temperature(fields, chain, out, greedy);
  read_top_k(fields, chain, out, greedy);
  for (const NumberField& f : kNumberFields) {
    const auto value = fields.number(f.field, f.least, f.most);
    if (!value) continue;
    const bool kept = greedy && std::string_view(f.field) == "min_p" && !chain.has("top_k");  // be_greedy() has set it
    if (kept) continue;
    if (chain.has(f.processor)) {
      out.emplace_back(std::string(f.processor) + "." + f.parameter, in_digits(*value));
    } else if (*value != f.neutral) {
      lacks(fields, f.field, f.processor, chain);
    }
  }
  read_logit_bias(fields, chain, vocab, out);
  return out;
}

}  // namespace tenon::serve
