// This stands in for ISA-L if its header was not found when Tenon was configured.
#include "deflate.h"

namespace tenon::profiler {

std::unique_ptr<Deflate> make_isal_deflate() {
  return nullptr;
}

}  // namespace tenon::profiler
