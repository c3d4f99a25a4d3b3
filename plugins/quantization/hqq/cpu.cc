#include "../published/scheme.h"
#include "schema.h"

namespace tenon::hqq {
using Scheme = published::PublishedScheme<Schema, published::HeldIntegers>;
}

TENON_PLUGIN(tenon::hqq::Scheme);
