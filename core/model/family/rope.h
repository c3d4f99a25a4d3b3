// Rotary positions turn pairs of dimensions. This has the angular frequency of each pair, and how models with longer
// contexts change it. Su et al. 2021, arXiv:2104.09864.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/core/weights.h"

namespace tenon::family {

// Each is computed as transformers does it for sequences of a fixed length.
enum class RopeScaling {
  kNone,
  kLinear,    // positions divided by the factor. Chen et al. 2023, arXiv:2306.15595
  kDynamic,   // "NTK-aware": theta grows with the length, beyond the stated context
  kYarn,      // slow pairs linear, fast ones unchanged, a ramp between. Peng et al. 2023, arXiv:2309.00071
  kLongrope,  // a divisor for each pair, others for long contexts. Ding et al. 2024, arXiv:2402.13753
  kLlama3,    // like yarn, with bounds and ramp by wavelength. Llama team 2024, arXiv:2407.21783
};

struct Rope {
  double theta = 10000;
  uint32_t rotated = 0;  // dimensions of a head
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double attention_factor = 1;                                 // cosines and sines are multiplied by it
  double context = 0, original_context = 0;                    // positions: as stated, and before it was extended
  double low_frequency_factor = 1, high_frequency_factor = 4;  // llama3: turns within the original context
  double slow_turns = 1, fast_turns = 32;                      // yarn: turns within the original context
  bool whole_pairs = true;                                     // yarn: the ramp begins and ends at whole pairs
  std::vector<double> short_divisors, long_divisors;           // longrope: by pair
  std::vector<double> divisors;              // a GGUF file has them, one for each pair, after scaling; or none
  std::vector<const WeightTensor*> tensors;  // the divisors were read from these
};

// These return angular frequencies by pair, before scaling, and after it for so many positions, without divisors.
std::vector<double> plain_frequencies(const Rope& rope);
std::vector<double> scaled_frequencies(const Rope& rope, uint32_t positions);
// Returns the frequencies as they are applied.
std::vector<double> frequencies(const Rope& rope, uint32_t positions);

// Returns what yarn multiplies cosines and sines by unless the model says otherwise; `scale` multiplies the logarithm.
double yarn_attention_factor(double factor, double scale = 1);

}  // namespace tenon::family
