#include "../published/scheme.h"
#include "writer.h"

namespace tenon::awq {
using Scheme = published::PublishedScheme<Writer, published::HeldIntegers>;
}

TENON_PLUGIN(tenon::awq::Scheme);
