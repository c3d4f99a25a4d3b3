// A model is run again and again, and each time another allocation fails.
#include "support/out_of_memory.h"

namespace tenon {
namespace {

TEST(OutOfMemory, AtAnyAllocationIsAnErrorThatLeavesNothingBehind) {
  for (const char* scheme : {"none", "int4wo"}) {
    test::expect_errors_where_memory_ends("cpu", {std::string("quantization.use=") + scheme, "device.threads=2"});
  }
}

}  // namespace
}  // namespace tenon
