// These are the filters of Jinja: what stands after a vertical bar.
#pragma once

#include <string_view>

#include "callable.h"
#include "run.h"

namespace tenon::jinja {

struct Filter {
  std::string_view name;
  // Throws Failure.
  Value (*apply)(Run& run, const Value& input, const Arguments& arguments);
};

// Returns nullptr for one that is not supported.
const Filter* find_filter(std::string_view name);
// Returns whether Jinja has it and it is not supported here: a template with it is refused.
bool is_unsupported_filter(std::string_view name);

// Filters of lists take an attribute of each item, or the item itself.
// Returns item.path, where the path may have dots and numbers.
Value attribute_path(Run& run, Value item, const Value& path);

// These are map, select and the like, which apply other filters and tests.
Value map_filter(Run& run, const Value& input, const Arguments& arguments);
Value select_filter(Run& run, const Value& input, const Arguments& arguments);
Value reject_filter(Run& run, const Value& input, const Arguments& arguments);
Value selectattr_filter(Run& run, const Value& input, const Arguments& arguments);
Value rejectattr_filter(Run& run, const Value& input, const Arguments& arguments);
Value sort_filter(Run& run, const Value& input, const Arguments& arguments);
Value unique_filter(Run& run, const Value& input, const Arguments& arguments);
Value min_filter(Run& run, const Value& input, const Arguments& arguments);
Value max_filter(Run& run, const Value& input, const Arguments& arguments);
Value sum_filter(Run& run, const Value& input, const Arguments& arguments);
Value dictsort_filter(Run& run, const Value& input, const Arguments& arguments);
Value batch_filter(Run& run, const Value& input, const Arguments& arguments);
Value slice_filter(Run& run, const Value& input, const Arguments& arguments);

}  // namespace tenon::jinja
