// This measures how fast memory can be read; the GB/s of decoding are a share of that.
#pragma once

#include <cstdint>
#include <string>

#include "tenon/core/pipeline.h"

namespace tenon::app {

struct Bandwidth {
  double bytes_per_second = 0;       // the fastest pass had it
  uint64_t buffer = 0;               // each pass reads so many bytes
  uint32_t threads = 0, passes = 0;  // these are the host's; 0 if a device measured its own memory
  std::string device = {};           // it is that device's name
};

// Every thread sums up its own part of one buffer, front to back, with the widest loads that the processor has; the
// parts were written by the threads that read them. The buffer holds eight times what the last caches do, from 256 MiB to
// 1 GiB, and a sixteenth of what is free where that is less.
Bandwidth read_bandwidth(uint32_t threads);

// Asks the loaded pipeline's device for the rate of its memory; if it has none to give, the pipeline's
// threads measure the host's. Throws Error.
Bandwidth read_bandwidth(const Pipeline& pipeline);

}  // namespace tenon::app
