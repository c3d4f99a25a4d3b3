// /v1/embeddings: the body becomes requests of the engine that end after their
// prompts, and their vectors OpenAI's JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "completion_request.h"
#include "pending_answer.h"

namespace tenon::serve {

struct EmbeddingRequest {
  CompletionRequest requests;  // there is one prompt an input, each with one answer
  bool normalize = true;       // vectors have the length 1
  bool base64 = false;         // vectors are written as the bytes of little-endian f32 in base64
};

// Throws ApiError: 400 that names a field, 404 for a model that is not served.
EmbeddingRequest parse_embeddings(const boost::json::object& body, const Abilities& abilities);

class EmbeddingAnswer : public PendingAnswer {
 public:
  // `longest` means what it means for Answer.
  EmbeddingAnswer(const EmbeddingRequest& request, std::string model, uint32_t longest);

  std::string add(std::vector<Event> events) override;
  bool complete() const override { return left_ == 0; }
  const std::optional<ApiError>& failure() const override { return failure_; }
  std::string whole() const override;

 private:
  boost::json::value vector_value(const std::vector<float>& vector) const;

  const bool normalize_, base64_;
  const std::string model_;
  const uint32_t longest_;
  std::vector<std::vector<float>> vectors_;
  uint64_t prompt_tokens_ = 0;
  size_t left_;
  std::optional<ApiError> failure_;
};

// Returns bytes in base64, with padding (RFC 4648).
std::string base64_of(std::string_view bytes);

}  // namespace tenon::serve
