// This reports what a run cost, for people and for programs.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "tenon/core/engine.h"

namespace tenon::app {

struct MemoryUse {
  uint64_t planned = 0;    // bytes, the plan's peak
  uint64_t allocated = 0;  // it is the device allocator's high-water mark
  uint64_t resident = 0;   // the process had so much at most, as the system counts
};
MemoryUse memory_use(const Pipeline& pipeline);

// Returns a decision as `tenon plan` lists it.
std::string decision_line(const Decision& decision);

double per_second(double count, double seconds);  // returns 0 for no time
// Returns the bytes that decode steps read in a second, in 1e9.
double decode_gbps(const RunStats& stats);
boost::json::object to_json(const RunStats& stats);
boost::json::object to_json(const MemoryUse& memory);
boost::json::object to_json(const MemoryPlan& plan);

// Returns the command that gives the same output: the model, every value that the configuration has on top of what is
// installed but for the trace, and the folders of plugins.
std::vector<std::string> reproducing_words(const Engine& engine, const std::string& command, const PipelineArgs& args);

}  // namespace tenon::app
