// A connection sees an answer so while it is being made.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api_error.h"
#include "generation.h"

namespace tenon::serve {

// Thread: one at a time.
class PendingAnswer {
 public:
  virtual ~PendingAnswer() = default;
  // Takes the events in. For a stream it returns their chunks, as `data: {...}` lines with an empty line after each.
  virtual std::string add(std::vector<Event> events) = 0;
  virtual bool complete() const = 0;
  // Returns the first answer that failed; what is to be said instead of, or after, all others.
  virtual const std::optional<ApiError>& failure() const = 0;
  // Returns the whole object. It is called once the answer is complete, and not for a stream.
  virtual std::string whole() const = 0;
};

}  // namespace tenon::serve
