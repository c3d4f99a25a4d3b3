#include "../published/scheme.h"
#include "schema.h"

namespace tenon::torchao {
using Scheme = published::PublishedScheme<Schema, published::HeldIntegers>;
}

TENON_PLUGIN(tenon::torchao::Scheme);
