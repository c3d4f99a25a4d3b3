// This says how long the ops of a decode step take, and prints it for `tenon bench --ops`.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "tenon/profiler/op_times.h"

namespace tenon::app {

struct OpReport {
  std::string problem = {};  // if it is not empty, it says why there are no times, and the rest means nothing
  std::string clock = {};    // this clock took the times
  std::vector<profiler::OpGroup> groups = {};
  double between_us = 0, step_us = 0;  // see profiler::OpTimes
  uint32_t steps = 0;                  // the times are means of so many
  double context = 0;                  // a row attends to so many tokens, in the mean
  double tok_per_s = 0;                // this is for decode, while recording
  double unrecorded_tok_per_s = 0;

  double share(double us) const { return step_us > 0 ? us / step_us : 0; }
  profiler::OpGroup total() const;  // it has all ops of a step, without the time between steps
};

// Returns lines for people; the last one is ended, too.
std::string op_table(const OpReport& report);
boost::json::object to_json(const OpReport& report);

// Quotes a field as RFC 4180 says.
std::string csv_field(const std::string& text);
// These are the columns of the point's own line and of a line of an op; each is empty in the other.
inline constexpr const char* kOpCsvHeader =
    "step_us,recorded_tok_per_s,ops_error,module,component,op,calls,us,bytes,gbps,share";
std::string op_csv_summary(const OpReport& report);
std::vector<std::string> op_csv_lines(const OpReport& report);

}  // namespace tenon::app
