// This serves connections: HTTP/1.1 with and without TLS, server-sent events, limits and time-outs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api.h"

namespace tenon::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;             // 0: the system picks one
  std::string tls_cert, tls_key;    // PEM files; "" = no TLS
  uint32_t threads = 1;             // so many serve connections
  uint32_t max_connections = 1024;  // further ones wait to be accepted
  uint64_t max_body_bytes = uint64_t{16} << 20U;
  uint32_t max_header_bytes = 16384;
  double read_seconds = 30;    // a whole request arrives within it, from the connection's start or the answer before it
  double write_seconds = 30;   // the client takes what was written within it
  double request_seconds = 0;  // a request is answered within it; 0 = it may take any time
};

// Thread: one at a time, but for post().
class HttpServer {
 public:
  // Binds and listens. Throws Error(kIo) with the system's reason, for the address and for the TLS files.
  explicit HttpServer(const HttpOptions& options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Returns an address such as "http://127.0.0.1:8000".
  std::string url() const;
  // Accepts from now on. Both outlive the server.
  void start(Api& api, Driver& driver);
  // Runs a function on a thread of the server's. [any thread]
  void post(std::function<void()> function);
  // Accepts no more, and closes connections that are not being answered. [any thread]
  void drain();
  // Waits until the last connection has its answer, as long as `seconds` at most, and ends.
  void stop(double seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon::serve
