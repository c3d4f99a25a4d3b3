#include "draw.h"
#include "tenon/sdk/cpu/elementary.h"
#include "tenon/sdk/cpu/philox.h"

namespace tenon::categorical {
namespace {
#include "draw_body.h"
}  // namespace

Draw draw_avx512(const DrawInput& in) {
  return draw(in);
}

}  // namespace tenon::categorical
