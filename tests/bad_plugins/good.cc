#include "good_sampler.h"

using tenon::bad::Good;
TENON_PLUGIN(Good);
