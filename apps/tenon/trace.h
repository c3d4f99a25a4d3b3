// `tenon trace` does these beside checking.
#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace tenon::app {

Run add_trace_stats(CLI::App& trace);
Run add_trace_compare(CLI::App& trace);
Run add_trace_merge(CLI::App& trace);

}  // namespace tenon::app
