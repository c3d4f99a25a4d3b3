// TENON_F_ROPE turns dimensions of a head in pairs. This says which are a pair; it is for the host and, with relaxed
// constexpr, for CUDA. Of 10 dimensions of which 8 turn the pairs 0 to 3 are
//
//   pairing 0:  (0, 4) (1, 5) (2, 6) (3, 7)      pairing 1:  (0, 1) (2, 3) (4, 5) (6, 7)
#pragma once

#include <cstdint>

namespace tenon::sdk {

struct RopePairs {
  uint32_t rotated;  // so many dimensions turn, the first ones of a head
  int32_t pairing;   // 0: dimension i with i + rotated / 2; 1: 2 i with 2 i + 1

  // There are so many pairs. A row of the rope's table has as many angles.
  constexpr uint32_t half() const { return rotated / 2; }

  // These take a dimension that turns: whether it is the second one of its pair, which one it turns with, and the
  // number of the pair.
  constexpr bool is_second(uint32_t d) const { return pairing == 0 ? d >= half() : d % 2 != 0; }
  constexpr uint32_t partner(uint32_t d) const { return pairing != 0 ? d ^ 1 : is_second(d) ? d - half() : d + half(); }
  constexpr uint32_t pair(uint32_t d) const { return pairing == 0 ? d % half() : d / 2; }

  // These return the dimensions of a pair.
  constexpr uint32_t first(uint32_t pair) const { return pairing == 0 ? pair : 2 * pair; }
  constexpr uint32_t second(uint32_t pair) const { return pairing == 0 ? pair + half() : 2 * pair + 1; }
};

}  // namespace tenon::sdk
