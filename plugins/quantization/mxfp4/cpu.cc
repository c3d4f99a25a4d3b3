#include "../published/scheme.h"
#include "schema.h"

namespace tenon::mxfp4 {
using Scheme = published::PublishedScheme<Schema, published::HeldBooks>;
}

TENON_PLUGIN(tenon::mxfp4::Scheme);
