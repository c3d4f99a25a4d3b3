// The server's own code sees these requests and responses, which do not show the library that carries them.
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
