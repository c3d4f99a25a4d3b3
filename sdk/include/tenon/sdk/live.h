// The words of TENON_STEP_LIVE say how much of a step's bounds is live.
#pragma once

#include <cstdint>

namespace tenon::sdk {

enum LiveWord : uint32_t { kLiveRows, kLiveSeqs, kLiveOutRows };

}  // namespace tenon::sdk
