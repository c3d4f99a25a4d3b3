// A client whose request is not answered is told so by OpenAI's error object, with a status of HTTP.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "http.h"

namespace tenon::serve {

struct ApiError : std::runtime_error {
  // The field `param` of the body is at fault; "" = none is.
  ApiError(unsigned http_status, const std::string& message, std::string field = "", std::string error_code = "")
      : std::runtime_error(message), status(http_status), param(std::move(field)), code(std::move(error_code)) {}

  unsigned status;
  std::string param, code;
  unsigned retry_after = 0;  // seconds; 0 = the client is not told to come again
};

// Returns {"error": {"message", "type", "param", "code"}}; the type follows from the status.
std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

}  // namespace tenon::serve
