#include "../coded/cpu_scheme.h"
#include "published.h"

TENON_PLUGIN(tenon::coded::CpuScheme<tenon::fp8::PublishedSchema>);
