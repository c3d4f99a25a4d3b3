// These weights follow from a tensor's name and the place of each value in it: this is the twin of made_weights.py,
// which says more about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::differential {

inline uint64_t seed_of(std::string_view name) {
  uint64_t seed = 0xCBF29CE484222325;
  for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return seed;
}

// Returns `count` numbers in [-1, 1), which the name decides.
inline std::vector<float> uniform(std::string_view name, size_t count) {
  uint64_t seed = seed_of(name);
  std::vector<float> values(count);
  for (float& value : values) {
    uint64_t z = seed += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    z ^= z >> 31;
    value = (static_cast<float>(z >> 40) - 0x1p23F) / 0x1p23F;
  }
  return values;
}

inline std::vector<float> made_tensor(std::string_view name, const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t n : shape) count *= static_cast<size_t>(n);
  std::vector<float> values = uniform(name, count);
  const bool norm = name.find("norm") != name.npos, embedding = name.find("embed") != name.npos;
  for (float& v : values) v = norm ? 1 + v / 4 : embedding ? v : v / 2;
  return values;
}

}  // namespace tenon::differential
