#include "../published/scheme.h"
#include "schema.h"

namespace tenon::compressed_tensors {
using Scheme = published::PublishedScheme<Schema, published::HeldIntegers>;
}

TENON_PLUGIN(tenon::compressed_tensors::Scheme);
