// Adds a number to the logits of the tokens that a request names.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "tenon/sdk/cpu/candidates.h"
#include "tenon/sdk/sampler.h"

namespace tenon::logit_bias {

// This holds the biases of one sequence, by rising ids.
struct Record {
  static constexpr uint32_t kMost = 1024;
  uint32_t count;
  int32_t id[kMost];
  float bias[kMost];
};

// Returns the index of the first id that is not below `id`.
constexpr uint32_t lower_bound(const Record& r, int32_t id) {
  uint32_t begin = 0, end = r.count;
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (r.id[middle] < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}
constexpr float bias_of(const Record& r, int32_t id) {
  const uint32_t i = lower_bound(r, id);
  return i < r.count && r.id[i] == id ? r.bias[i] : 0;
}

class LogitBias : public sdk::Sampler<LogitBias> {
 public:
  static constexpr const char* kName = "logit_bias";
  static constexpr const char* kDoc = "Adds to the logits of named tokens: -100 forbids a token, 100 forces it";
  static constexpr auto kParams = sdk::params(sdk::text({.name = "bias",
                                                         .doc = "What is added to which tokens, as \"ID:BIAS,ID:BIAS\"",
                                                         .value = "",
                                                         .flags = TENON_PARAM_PER_REQUEST}));
  static constexpr uint32_t kInForms = TENON_DENSE | TENON_SPARSE;
  using Record = logit_bias::Record;

  LogitBias(const sdk::Params& params, const sdk::Env&) { static_cast<void>(parse(params.text("bias"))); }

  Record encode(const sdk::Params& request) const { return parse(request.text("bias")); }
  void record_apply(tenon_candidates& c, const tenon_sampling& s, sdk::Recorder& r) const;

 private:
  struct Entry {
    int32_t id;
    float bias;
  };

  static Entry parse_entry(std::string_view word) {
    const size_t colon = word.find(':');
    Entry e{};
    const char* end = word.data() + word.size();
    const char* middle = word.data() + std::min(colon, word.size());
    const bool id = std::from_chars(word.data(), middle, e.id).ptr == middle && middle != word.data() && e.id >= 0;
    const bool bias = colon != word.npos && std::from_chars(middle + 1, end, e.bias).ptr == end && middle + 1 != end;
    if (!id || !bias || !(std::abs(e.bias) <= 100)) {
      throw sdk::Failed("bias: \"" + std::string(word) + "\" is no ID:BIAS with a bias from -100 to 100");
    }
    return e;
  }

  static Record parse(const std::string& text) {
    std::vector<Entry> entries;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      entries.push_back(parse_entry(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
    if (entries.size() > Record::kMost) {
      throw sdk::Failed("bias: names " + std::to_string(entries.size()) + " tokens; at most " +
                        std::to_string(Record::kMost) + " may be named");
    }
    Record r{};
    r.count = static_cast<uint32_t>(entries.size());
    for (uint32_t i = 0; i < r.count; ++i) {
      if (i > 0 && entries[i].id == entries[i - 1].id) {
        throw sdk::Failed("bias: names token " + std::to_string(entries[i].id) + " twice");
      }
      r.id[i] = entries[i].id;
      r.bias[i] = entries[i].bias;
    }
    return r;
  }
};

// The op has these operands from sdk::cpu::kOwnOperand on.
enum Operand : uint32_t { kParams = sdk::cpu::kOwnOperand, kBiased };

// Rewrites c's logits.
inline sdk::cpu::CandidateOp bias_op(tenon_candidates& c, tenon_tid params, sdk::Recorder& r) {
  const tenon_candidates in = c;
  c.logits = sdk::cpu::temp_logits(c, r);
  return sdk::cpu::CandidateOp(in, r, {{params, TENON_READ}, {c.logits, TENON_WRITE}});
}

}  // namespace tenon::logit_bias
