// The view of requests shows these: which ones, in which order, and what is said of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/analysis.h"
#include "model/table.h"
#include "tenon/profiler/request_stats.h"

namespace tenon::view {

using profiler::RequestLife;
using profiler::RequestPart;
using profiler::Requests;
using profiler::RequestStay;

// The largest comes first but for kArrival and kEnd. Requests without such a time come last.
enum class RequestOrder : uint8_t { kArrival, kWait, kFirstToken, kPerToken, kTokens, kEnd };
inline constexpr std::array<const char*, 6> kRequestOrders{"arrival",   "wait",   "first token",
                                                           "per token", "tokens", "end"};

enum class RequestFilter : uint8_t { kAll, kPreempted, kCutShort, kOpen };
// kCutShort requests were cancelled, failed, or ran out of room; kOpen ones had not ended when the trace did.
inline constexpr std::array<const char*, 4> kRequestFilters{"all", "pre-empted", "cut short", "open"};

// Returns indices of requests that waited for min_wait_ns or longer.
std::vector<uint32_t> request_rows(const Requests& requests, RequestOrder order, RequestFilter filter,
                                   int64_t min_wait_ns = 0);

// Returns a text such as "12 requests, 2 slots; 10 length, 1 cancelled, 1 open; 1 pre-empted".
std::string request_summary(const Requests& requests);

// Has rows for queue, first token, per token and total, and columns for how many have it, p50, p90, p99 and max in ms.
Table percentile_table(const Requests& requests);

// Has a line for each time and count of the request.
Table request_facts(const Requests& requests, uint32_t request);

// Has a row for each request that had a slot while this one waited; a click leads to its slice.
Table holder_table(const Requests& requests, uint32_t request);

// Returns the steps that carried the part, as far as the trace has them: [first, second) of the analysis.
std::pair<uint32_t, uint32_t> steps_of(const Analysis& analysis, const RequestPart& part);

}  // namespace tenon::view
