// This is written without the SDK's guard: exceptions cross the boundary.
#include <stdexcept>

#include "altered.h"

TENON_ALTERED_PLUGIN(it.component.create = [](const tenon_params*, const tenon_env*, void**,
                                              tenon_reason*) -> tenon_status { throw std::runtime_error("free"); };);
