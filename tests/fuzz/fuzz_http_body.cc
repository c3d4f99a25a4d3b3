// The input is a body of the server's, after one byte that says for whom: "c" a conversation, anything else a text.
// What is taken is within the limits; what is not is an error of the client's, and its object is JSON, whatever stood
// in the body.
#include <boost/json.hpp>
#include <cstdlib>

#include "api_error.h"
#include "completion_request.h"

namespace {

tenon::serve::Abilities abilities() {
  tenon::serve::Abilities a;
  a.models = {"m"};
  a.chain.processors = {"logit_bias", "repetition_penalty", "frequency_presence", "temperature", "top_k", "top_p",
                        "min_p"};
  a.chain.select = "categorical";
  a.vocab = 1000;
  a.calls.format = tenon::serve::CallFormat::kHermes;
  return a;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tenon::serve::Abilities known = abilities();
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const auto request = tenon::serve::parse_completion(tenon::serve::parse_object(body), data[0] == 'c', known);
    if (request.choices() == 0 || request.choices() > known.most_choices) std::abort();
    for (const auto& one : request.prompts) {
      for (const int32_t id : one.tokens) {
        if (id < 0 || id >= known.vocab) std::abort();
      }
    }
  } catch (const tenon::serve::ApiError& e) {
    if (e.status < 400 || e.status > 499) std::abort();
    boost::json::error_code problem;  // text that is not UTF-8 has one, too
    boost::json::parse(tenon::serve::error_json(e), problem);
    if (problem) std::abort();
  }
  return 0;
}
