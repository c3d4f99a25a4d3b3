// This is the stand-in host under the tests' names: see conformance/op_runner.h.
#pragma once

#include "conformance/op_runner.h"

namespace tenon::test {

using conformance::OpRunner;

}  // namespace tenon::test
