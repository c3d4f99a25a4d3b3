#include "../published/scheme.h"
#include "writer.h"

TENON_PLUGIN(tenon::published::PublishedScheme<tenon::awq::Writer>);
