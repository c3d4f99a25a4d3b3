// The draw over a run of candidates, compiled once for every instruction set: the same bits from each.
#pragma once

#include <stdint.h>

namespace tenon::categorical {

struct Draw {
  float score;  // log(p / q) up to a constant; minus infinity: none is in
  int32_t id;   // -1: none is in
};
struct DrawInput {
  const float* logit;  // [n]
  const int32_t* id;   // [n], or nullptr: first, first + 1, ...
  uint32_t first, n;   // first: a multiple of 4
  uint32_t key[2], position;
};
using DrawFunction = Draw (*)(const DrawInput&);

namespace scalar {
Draw draw(const DrawInput& in);
}
namespace avx2 {
Draw draw(const DrawInput& in);
}
namespace avx512 {
Draw draw(const DrawInput& in);
}

}  // namespace tenon::categorical
