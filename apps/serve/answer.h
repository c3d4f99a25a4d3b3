// The events of a generation become OpenAI's JSON: one object at the end, or chunks as they come.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api_error.h"
#include "completion_request.h"
#include "generation.h"
#include "pending_answer.h"
#include "tenon/core/tokenizer.h"

namespace tenon::serve {

// Every object of an answer says this of itself.
struct AnswerHead {
  std::string id, model, fingerprint;
  int64_t created = 0;  // seconds since 1970
};

// Thread: one at a time. The tokenizer outlives it.
class Answer : public PendingAnswer {
 public:
  // `prompts` has the texts to echo, one for each prompt; it is empty unless the request asks for them. `longest` is
  // the number of tokens that a sequence may reach, which tells a prompt that is too long from other errors.
  Answer(const CompletionRequest& request, AnswerHead head, std::vector<std::string> prompts,
         const Tokenizer& tokenizer, uint32_t longest);

  std::string add(std::vector<Event> events) override;
  bool complete() const override { return left_ == 0; }
  const std::optional<ApiError>& failure() const override { return failure_; }
  std::string whole() const override;

 private:
  struct Choice {
    std::string text, thought;
    FinishReason finish = FinishReason::kLength;
    uint64_t prompt_tokens = 0, reused = 0, tokens = 0;
    uint64_t characters = 0;                  // its text has so many so far
    bool begun = false;                       // true: its first chunk was written
    ThoughtReader thoughts{Thoughts::kNone};  // tells the thought from the text
    std::optional<CallReader> reader;         // takes the text where calls are looked for
    std::optional<boost::json::object> call;  // the next chunk is about it
    boost::json::array calls;                 // these were found, as a conversation has them
    // These are log probabilities, as its interface lists them.
    boost::json::array content;                               // A conversation has these,
    boost::json::array tokens_of_text, values, top, offsets;  // and a text has these.
  };

  void add(Event event, std::string& chunks);
  void add_logprob(Choice& choice, const Event& event) const;
  boost::json::value take_logprobs(Choice& choice) const;
  boost::json::object logprob_object(const Logprob& logprob) const;
  boost::json::object begin(const char* object) const;
  boost::json::object usage() const;
  void write_chunk(uint32_t index, std::string_view text, const boost::json::value& finish, std::string& chunks);
  // Takes the thought out of the event's text, writes it where chunks are wanted, and leaves the rest.
  void take_thought(Event& event, std::string& chunks);
  // Takes the calls out of the event's text, writes them where chunks are wanted, and leaves the rest.
  void take_calls(Event& event, std::string& chunks);
  boost::json::object call_object(uint32_t choice, const ToolCall& call) const;
  const char* finish_of(const Choice& choice) const;
  void write_end(std::string& chunks) const;
  std::string token_name(int32_t id) const;

  const bool chat_, stream_, include_usage_, continuous_usage_, logprobs_, hides_thoughts_;
  const uint32_t n_;
  const AnswerHead head_;
  const std::vector<std::string> prompts_;
  const Tokenizer& tokenizer_;
  const uint32_t longest_;
  std::vector<Choice> choices_;
  size_t left_;
  std::optional<ApiError> failure_;
};

// Returns what is to be said of an answer whose last event this is; nullopt if it succeeded. A prompt that is too long
// is the fault of `field`. For `longest` see Answer.
std::optional<ApiError> failure_of(const Event& event, const char* field, uint32_t longest);

// Returns a line of server-sent events.
std::string sse(const std::string& json);

}  // namespace tenon::serve
