#include "../coded/cpu_scheme.h"
#include "schema.h"

TENON_PLUGIN(tenon::coded::CpuScheme<tenon::fp6::Schema>);
