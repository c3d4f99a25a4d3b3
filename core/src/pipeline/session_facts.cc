// A fact is a name and a text. There are Tenon's version and, for the model and then the draft model, a fingerprint of
// the weights, what the model notes of itself, the schemes of its matrices and the cache. The fingerprint hashes the
// metadata, names and shapes, and 4 times 64 bytes of each tensor, so no file is read as a whole.
#include "session_facts.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <type_traits>

#include "tenon/sdk/params.h"

namespace tenon {
namespace {

using sdk::detail::fnv;

// A tensor's bytes are looked at in so many places, evenly apart, so many at each.
constexpr uint64_t kPlaces = 4, kPlaceBytes = 64;

uint64_t with_value(uint64_t hash, const MetadataValue& value) {
  return std::visit(
      [&](const auto& v) {
        using Value = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          hash = fnv(hash, std::string_view(v));
        } else if constexpr (std::is_arithmetic_v<Value>) {
          hash = fnv(hash, std::string_view(std::to_string(v)));
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          for (const std::string& s : v) hash = fnv(hash, std::string_view(s));
        } else {
          for (const auto number : v) hash = fnv(hash, std::string_view(std::to_string(number)));
        }
        return hash;
      },
      value);
}

uint64_t with_tensor(uint64_t hash, const Weights& weights, const WeightTensor& tensor) {
  hash = fnv(fnv(hash, std::string_view(tensor.name)), uint64_t{tensor.format});
  for (const int64_t n : tensor.shape) hash = fnv(hash, static_cast<uint64_t>(n));
  std::array<std::byte, kPlaceBytes> piece{};
  const std::span<std::byte> bytes = std::span(piece).first(std::min(tensor.bytes, kPlaceBytes));
  const uint64_t last = tensor.bytes - bytes.size();
  for (uint64_t i = 0; i < kPlaces; ++i) {
    weights.read(tensor, last / (kPlaces - 1) * i, bytes);
    hash = fnv(hash, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return hash;
}

// Tells models apart: all that the file says of the model, the names and shapes of its tensors, and a little of each
// tensor. Whatever the tokenizer is, the tokens themselves are compared.
std::string fingerprint(const Weights& weights) {
  uint64_t hash = sdk::detail::kFnvStart;
  for (const std::string& key : weights.metadata_keys()) {
    if (key.starts_with("tokenizer.")) continue;
    hash = with_value(fnv(hash, std::string_view(key)), *weights.metadata(key));
  }
  for (const WeightTensor& tensor : weights.tensors()) hash = with_tensor(hash, weights, tensor);
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

// Returns "kv_cache.mine 1.2"; a component need not state a version.
std::string versioned(const Instance& instance) {
  const std::string& version = instance.component().version;
  return version.empty() ? instance.id() : instance.id() + " " + version;
}

// Returns "quantization.int4wo 0.1.0 (group_size = 64)" and the like.
std::string scheme_text(const ComponentConfig& config, const Scheme& scheme) {
  const std::string text = scheme.instance ? versioned(scheme.instance) : "quantization." + config.name;
  std::string values;
  for (size_t i = 0; i < config.params.schema().count; ++i) {
    values += (values.empty() ? "" : ", ") + std::string(spec_at(config.params.schema(), i).name) + " = " +
              value_text(config.params.get(i));
  }
  return values.empty() ? text : text + " (" + values + ")";
}

void add_facts(const ModelInstance& instance, std::vector<SessionFact>& facts) {
  const auto add = [&](const std::string& name, std::string value) {
    std::replace(value.begin(), value.end(), '\n', ' ');
    facts.push_back({instance.name() + name, std::move(value)});
  };
  const ModelInfo& info = instance.info();
  add("model",
      info.architecture + ", " + std::to_string(info.layers) + " layers, weights " + fingerprint(instance.weights()));
  // A model notes what of it follows from the length of texts, such as the angles of its rope.
  for (const auto& [about, note] : instance.declared->notes()) add(about, note);
  const ModelInstanceConfig& config = instance.config();
  std::string schemes = scheme_text(config.quantization, instance.components.schemes.front());
  for (size_t i = 0; i < config.overrides.size(); ++i) {
    const QuantizationOverride& o = config.overrides[i];
    schemes += "; " + o.match + ": " + scheme_text(o.scheme, instance.components.schemes[i + 1]);
  }
  add("quantization", schemes);
  add("kv_cache", versioned(instance.components.kv_cache));
}

}  // namespace

std::vector<SessionFact> session_facts(const ModelInstance& target, const ModelInstance* draft_model) {
  std::vector<SessionFact> facts = {{"tenon", TENON_VERSION}};
  add_facts(target, facts);
  if (draft_model != nullptr) add_facts(*draft_model, facts);
  return facts;
}

}  // namespace tenon
