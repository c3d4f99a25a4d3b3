// The check finds what an importer would lose from a Chrome JSON trace without saying so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::profiler {

enum class Severity : uint8_t {
  kNotice,  // something is ignored or unusual; what the trace says still arrives
  kLoss,    // something would not arrive, or arrive wrong
};

struct Finding {
  Severity severity;
  std::string rule;   // a short fixed name: "overlap", "decimals", ...
  uint64_t offset;    // bytes from the start of the (unpacked) text
  uint64_t line;      // lines count from 1
  std::string event;  // it is the event's name; empty if the finding is about no event
  std::string found;
  std::string right;  // this would be right
};

struct CheckLimits {
  size_t max_per_rule = 20;                 // so many findings of a rule are kept; all are counted
  uint64_t max_events = 50'000'000;         // each takes at most some 40 bytes of memory
  uint64_t max_bytes = uint64_t{1} << 36U;  // the unpacked text has so many at most
  uint32_t max_depth = 64;                  // JSON's values nest so deep at most
};

struct CheckReport {
  std::vector<Finding> findings;
  uint64_t losses = 0;  // those beyond max_per_rule count too
  uint64_t notices = 0;
  uint64_t events = 0;  // events of metadata count too
  uint64_t slices = 0;
  uint64_t counters = 0;
  uint64_t request_events = 0;
  uint64_t flow_events = 0;
  bool object_form = false;

  bool ok() const noexcept { return losses == 0; }
};

// Reads the file, gzipped or not, as a stream. Malformed text ends the check with a finding of rule "syntax"; a text
// that is beyond the limits with one of rule "limit". Throws Error(kIo) if the file cannot be read.
CheckReport check_trace(const std::string& path, const CheckLimits& limits = {});

// Does the same for bytes in memory, gzipped or not.
CheckReport check_trace_bytes(std::string_view bytes, const CheckLimits& limits = {});

// Returns "FILE:line: loss[overlap]: \"name\": found; right (byte offset)".
std::string to_string(const Finding& finding, const std::string& file);

}  // namespace tenon::profiler
