// A server has one model: the calling thread steps the engine, others serve connections.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "api.h"
#include "http_server.h"
#include "tenon/core/engine.h"

namespace tenon::serve {

struct ServerOptions {
  HttpOptions http;
  Api::Options api;
  uint32_t max_waiting = 256;
  double drain_seconds = 30;        // requests have so long to end when the server is asked to stop
  std::function<void()> beat = {};  // it is called after each step, and now and then without one
};

// Thread: one at a time.
class Server {
 public:
  // Listens. Throws Error(kIo). The engine outlives it.
  Server(Engine& engine, ServerOptions options);

  std::string url() const { return http_.url(); }
  // Serves until `stop` is requested: then nobody is admitted any more, and it returns when all requests have ended,
  // which they do at the latest when the time to drain is over. Throws what the engine's steps throw.
  void run(const std::stop_token& stop);

 private:
  ServerOptions options_;
  Metrics metrics_;
  HttpServer http_;
  Driver driver_;
  Api api_;
};

}  // namespace tenon::serve
