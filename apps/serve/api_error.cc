#include "api_error.h"

#include <boost/json.hpp>

namespace tenon::serve {
namespace {

const char* type_of(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

boost::json::value text_or_null(const std::string& text) {
  return text.empty() ? boost::json::value() : boost::json::value(text);
}

}  // namespace

std::string error_json(const ApiError& error) {
  return boost::json::serialize(
      boost::json::object{{"error", boost::json::object{{"message", error.what()},
                                                        {"type", type_of(error.status)},
                                                        {"param", text_or_null(error.param)},
                                                        {"code", text_or_null(error.code)}}}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = error_json(error);
  if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace tenon::serve
