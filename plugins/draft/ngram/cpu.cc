#include <algorithm>
#include <string>

#include "plugin.h"

namespace tenon::ngram {

Ngram::Ngram(const sdk::Params& params, const sdk::Env&)
    : k_(static_cast<uint32_t>(params.integer("k"))),
      min_(static_cast<uint32_t>(params.integer("min_ngram"))),
      max_(static_cast<uint32_t>(params.integer("max_ngram"))) {
  if (min_ > max_) {
    throw sdk::Failed("min_ngram = " + std::to_string(min_) + " is greater than max_ngram = " + std::to_string(max_));
  }
}

uint32_t Ngram::propose(uint32_t, std::span<const int32_t> tokens, std::span<int32_t> out) const {
  const size_t n = tokens.size();
  size_t longest = min_ - 1, found = 0;  // found: the match ends here
  for (size_t place = n; place-- > longest + 1 && longest < max_;) {
    size_t length = 0;
    while (length < max_ && length < place && tokens[place - 1 - length] == tokens[n - 1 - length]) ++length;
    if (length > longest) {
      longest = length;
      found = place;
    }
  }
  if (found == 0) return 0;
  const size_t count = std::min<size_t>(k_, out.size());
  for (size_t i = 0; i < count; ++i) out[i] = found + i < n ? tokens[found + i] : out[found + i - n];
  return static_cast<uint32_t>(count);
}

}  // namespace tenon::ngram

TENON_PLUGIN(tenon::ngram::Ngram);
