// Arbitrary bytes, plain and gzipped, are read as a trace: it has parts that fit together, or there is an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tenon/core/error.h"
#include "tenon/profiler/trace_file.h"

using tenon::profiler::TraceFile;
using tenon::profiler::TraceSlice;

static void require(bool holds) {
  if (!holds) std::abort();
}

static void check(const TraceFile& file) {
  for (uint32_t t = 0; t < file.tracks.size(); ++t) {
    const auto& lanes = file.tracks[t].lanes;
    for (size_t d = 0; d + 1 < lanes.size(); ++d) {
      for (uint32_t i = lanes[d]; i < lanes[d + 1]; ++i) {
        const TraceSlice& s = file.slices[i];
        require(s.track == t && s.depth == d && s.duration_ns >= 0);
        require(s.begin_ns >= file.begin_ns && s.end_ns() <= file.end_ns);
        require(i == lanes[d] || file.slices[i - 1].end_ns() <= s.begin_ns);
        require(d == 0 || file.parent(i) != tenon::profiler::kNoIndex);
        file.children(i);
        file.args.all(s.args);
      }
    }
  }
  for (const auto& flow : file.flows) require(flow.from < file.slices.size() && flow.to < file.slices.size());
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    check(tenon::profiler::read_trace_bytes(bytes, "input", {.max_bytes = uint64_t{1} << 24U}));
  } catch (const tenon::Error&) {
  }
  return 0;
}
