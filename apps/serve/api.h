// The server answers every path here. It knows nothing of sockets.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "answer.h"
#include "completion_request.h"
#include "driver.h"
#include "http.h"
#include "metrics.h"
#include "pending_answer.h"
#include "tenon/core/engine.h"

namespace tenon::serve {

// This is a response, or a generation whose answer becomes the response.
struct Reply {
  HttpResponse response;
  std::shared_ptr<Generation> generation;
  std::unique_ptr<PendingAnswer> answer;
};

// Thread: any.
class Api {
 public:
  struct Options {
    std::vector<std::string> models;    // the names that the model is served by; at least one
    std::vector<std::string> api_keys;  // none = everybody is let in
    std::string version;
    bool users = false;  // each user (the field `user`) of a key is a client of its own
  };
  Api(Engine& engine, Driver& driver, Metrics& metrics, Options options);

  // Throws ApiError(401) unless the path is open to all, or the header "Authorization" has one of the keys.
  void check_key(const std::string& path, const std::string& authorization) const;
  // Any error is a response. For `wake` see Generation.
  Reply handle(const HttpRequest& request, const std::function<void()>& wake);

 private:
  Reply route(const HttpRequest& request, const std::function<void()>& wake);
  Reply complete(const HttpRequest& http, bool chat, const std::function<void()>& wake);
  Reply embed(const HttpRequest& http, const std::function<void()>& wake);
  // Returns the number of the key that lets in, from 1 on; 0 if none does.
  size_t key_of(const std::string& authorization) const;
  // Returns how the model writes its thoughts in the answer to a conversation.
  Thoughts thoughts_of(const Request& request) const;
  void end_thought(Request& request) const;
  // Says whose requests these are, for schedulers that take turns between clients.
  void name_client(const HttpRequest& http, std::vector<Request>& requests) const;
  HttpResponse models(const std::string& path) const;
  HttpResponse tokenize(const std::string& body) const;
  HttpResponse detokenize(const std::string& body) const;

  Engine& engine_;
  Driver& driver_;
  Metrics& metrics_;
  const Options options_;
  const Abilities abilities_;
  const int64_t started_;
  const std::string id_prefix_;
  std::atomic<uint64_t> serial_ = 0;
};

// This is the page at "/", page.html.
extern const char* const kPage;

}  // namespace tenon::serve
