// This plugin is right: the others of this folder are it with something wrong.
#include "good_sampler.h"

using tenon::bad::Good;
TENON_PLUGIN(Good);
