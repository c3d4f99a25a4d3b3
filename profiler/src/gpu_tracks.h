// The plan says where slices of a GPU stand in a trace.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tenon/profiler/gpu_slice.h"

namespace tenon::profiler {

struct GpuTrackPlan {
  struct Process {
    int pid;
    std::string name;
    int sort_index;
  };
  struct Track {
    size_t process;
    int64_t tid;
    std::string name;
    int64_t sort_index;
  };
  std::vector<Process> processes;
  std::vector<Track> tracks;
  struct Placed {
    const GpuSlice* slice;
    size_t track;
  };
  std::vector<Placed> placed;  // sorted by begin
  uint64_t left_out = 0;       // so many ended before they began, or overlap with too many others
};

// Slices of one track must nest: those that overlap are laid on further tracks of their stream. What lies before
// begin_ns is left out. thread_name names a thread of the host by its id.
GpuTrackPlan place_slices(std::span<const GpuSlice> slices, int64_t begin_ns,
                          const std::function<std::string(uint32_t tid)>& thread_name);

}  // namespace tenon::profiler
