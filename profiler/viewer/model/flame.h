// A flame graph joins slices that lie in slices of the same names. It is left-heavy: the longest come first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tenon/profiler/trace_file.h"

namespace tenon::view {

struct Flame {
  struct Node {
    std::string name;  // it has no numbers of layers and steps
    int64_t ns = 0;
    uint64_t count = 0;
    uint32_t longest = 0;              // it is the index of the longest slice
    std::vector<uint32_t> children{};  // the longest comes first
  };
  std::vector<Node> nodes;  // 0 is the root, whose time is its children's
};

// Makes the flame graph of the tracks that `tracks` names.
Flame flame_of(const profiler::TraceFile& file, const std::vector<uint32_t>& tracks);

}  // namespace tenon::view
