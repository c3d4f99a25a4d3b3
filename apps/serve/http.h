// Requests and responses as the server's own code sees them, without a word of the library that reads and writes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tenon::serve {

struct HttpRequest {
  std::string method, path;   // path: without what follows a "?"
  std::string authorization;  // the header; "" = there is none
  std::string body;
};

struct HttpResponse {
  unsigned status = 200;
  std::string content_type = "application/json", body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

}  // namespace tenon::serve
