#include "../published/scheme.h"
#include "schema.h"

namespace tenon::bitsandbytes {
using Scheme = published::PublishedScheme<Schema, published::HeldBooks>;
}

TENON_PLUGIN(tenon::bitsandbytes::Scheme);
