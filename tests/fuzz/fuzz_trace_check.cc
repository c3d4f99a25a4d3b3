// The trace check runs over arbitrary bytes, plain and gzipped: it must end with a report.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tenon/profiler/trace_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto report = tenon::profiler::check_trace_bytes(bytes, {.max_bytes = uint64_t{1} << 24U});
  for (const auto& finding : report.findings) {
    if (tenon::profiler::to_string(finding, "input").empty()) std::abort();
  }
  return 0;
}
