// Recorded events as Chrome JSON that Perfetto shows without a loss (docs/profiling.md has the schema).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenon/core/trace_sink.h"
#include "tenon/profiler/gpu_slice.h"

namespace tenon::profiler {

struct GpuSlices {
  std::vector<GpuSlice> slices = {};  // in any order; those of one place may overlap
  uint64_t lost = 0;                  // of what happened; not among them
};

struct PerfettoOptions {
  std::string path = {};                  // ends in ".gz": gzipped
  bool replace = true;                    // a file that is there at the end
  std::string mode = "cpu";               // which sources record; "graph" and "node" promise kernels
  std::vector<trace::Arg> metadata = {};  // beside mode and dropped_records: model, git, ...
  std::function<std::vector<trace::Arg>()> more_metadata = {};  // asked once, at the end, on the thread that writes
  // The rate that an op's is a share of, in GB/s (1e9 bytes a second), 0 while it is not known; asked on the thread
  // that writes.
  std::function<double()> read_gbps = {};
  // deviceProperties, one list per device. Asked once, at the end, on the thread that writes.
  std::function<std::vector<std::vector<trace::Arg>>()> devices = {};
  std::function<GpuSlices()> kernels = {};  // asked once, when all else is written, on the thread that writes
};

// While it runs it writes `path` + ".part" in the array form, which loads however it is cut; at the end that becomes
// the object form and is renamed to `path`, so `path` is only ever whole. If writing fails (a full disk) the part file
// is removed and the error, with the path, what was written so far and the system's reason, comes out of drained() or
// finish(). A span that carries bytes_read and bytes_written also gets gbps and, where read_gbps is known, peak_pct.
// Non-finite numbers are never written: args become the strings "NaN", "Infinity", "-Infinity"; counters are
// left out and counted in metadata.dropped_records, as are a request's ends without beginning. A request still open at
// the end is closed there, with the arg open_at_end. A drain is a span of the overhead process, tid 1; lost events show
// on its tid 2 from one drain to the next. Throws Error(kIo) if the file cannot be created or `path` exists and is no
// regular file.
std::unique_ptr<trace::Sink> make_perfetto_writer(PerfettoOptions options);

}  // namespace tenon::profiler
