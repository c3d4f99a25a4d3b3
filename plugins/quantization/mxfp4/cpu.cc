#include "../published/scheme.h"
#include "schema.h"

TENON_PLUGIN(tenon::published::PublishedScheme<tenon::mxfp4::Schema>);
