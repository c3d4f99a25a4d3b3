// The choice of experts by a router's scores. Ranks: the highest score has rank 0, and of equal ones the first is higher.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TENON_HOST_DEVICE __host__ __device__
#else
#define TENON_HOST_DEVICE
#endif

namespace tenon::sdk {

// Returns the expert that has the rank; -1 if fewer scores than that are numbers.
TENON_HOST_DEVICE inline int32_t expert_of_rank(const float* score, int64_t experts, int32_t rank) {
  int32_t found = -1;
  for (int32_t r = 0; r <= rank; ++r) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; ++e) {
      const bool is_number = score[e] == score[e];
      const bool lower = found < 0 || score[e] < score[found] || (score[e] == score[found] && e > found);
      if (is_number && lower && (best < 0 || score[e] > score[best])) best = e;
    }
    if (best < 0) return -1;
    found = best;
  }
  return found;
}

// Returns the weight of the expert that has the rank: its share in the softmax of all scores, or with `renormalised` in
// that of the first `chosen` ranks.
TENON_HOST_DEVICE inline float weight_of_rank(const float* score, int64_t experts, int32_t rank, int32_t chosen,
                                              bool renormalised) {
  const int32_t first = expert_of_rank(score, experts, 0), own = expert_of_rank(score, experts, rank);
  if (own < 0) return 0;
  float sum = 0;
  for (int32_t i = 0; i < (renormalised ? chosen : static_cast<int32_t>(experts)); ++i) {
    const int32_t e = renormalised ? expert_of_rank(score, experts, i) : i;
    if (e >= 0) sum += expf(score[e] - score[first]);
  }
  return expf(score[own] - score[first]) / sum;
}

}  // namespace tenon::sdk

#undef TENON_HOST_DEVICE
