// How fast memory can be read: what the GB/s of decoding are measured by.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/core/pipeline.h"

namespace tenon::app {

struct Bandwidth {
  double bytes_per_second = 0;       // of the fastest pass
  uint64_t buffer = 0;               // bytes that each pass reads
  uint32_t threads = 0, passes = 0;  // of the host; 0 where a device measured its own memory
  std::string device = {};           // its name, then
};

// Every thread sums up its own part of one buffer, front to back, with the widest loads that the processor has; the
// parts were written by the threads that read them. The buffer holds 1 GiB, 256 MiB where less than 4 GiB are free.
Bandwidth read_bandwidth(uint32_t threads);

// What the loaded pipeline's device says of its memory, or else that of the host, by the pipeline's threads. Throws
// Error.
Bandwidth read_bandwidth(const Pipeline& pipeline);

}  // namespace tenon::app
