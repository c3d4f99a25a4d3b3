#include "../published/scheme.h"
#include "writer.h"

namespace tenon::gptq {
using Scheme = published::PublishedScheme<Writer, published::HeldIntegers>;
}

TENON_PLUGIN(tenon::gptq::Scheme);
