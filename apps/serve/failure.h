// Why an answer ended before it was whole, on its way from the thread that found out to a connection.
#pragma once

#include <exception>
#include <string>

namespace tenon::serve {

// These are values. An exception that two threads hold would end on either of them, and its end is counted within the
// C++ library, where the thread sanitizer does not see that the other one has read it by then.
struct Failure {
  unsigned status = 500;  // HTTP knows it.
  std::string message, param, code;
  bool of_prompt = false;  // the engine refused the prompt: the connection knows its field
};

Failure failure_by(const std::exception_ptr& error);

}  // namespace tenon::serve
