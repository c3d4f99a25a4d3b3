#include "end_tokens.h"

#include <algorithm>

namespace tenon::text {

void add_end_tokens(TokenizerInfo& info, const std::vector<int32_t>& ids) {
  std::vector<int32_t>& ends = info.end_of_generation;
  ends.insert(ends.end(), ids.begin(), ids.end());
  if (info.eos) ends.push_back(*info.eos);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

}  // namespace tenon::text
