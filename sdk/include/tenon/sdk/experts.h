// This chooses experts by a router's scores. They have ranks: the highest score has rank 0, and of equal ones the first
// is higher. A NaN is higher than all numbers, so that what the experts make of the row is no number either.
#pragma once

#include <cstdint>

namespace tenon::sdk {

inline bool higher_score(float a, float b) {
  return a > b || (a != a && b == b);
}

// Returns the expert of the rank after that of `found`, or with `found` < 0 the one of rank 0; -1 if there is none.
inline int32_t next_expert(const float* score, int64_t experts, int32_t found) {
  int32_t best = -1;
  for (int32_t e = 0; e < experts; ++e) {
    const bool lower =
        found < 0 || higher_score(score[found], score[e]) || (!higher_score(score[e], score[found]) && e > found);
    if (lower && (best < 0 || higher_score(score[e], score[best]))) best = e;
  }
  return best;
}

}  // namespace tenon::sdk
