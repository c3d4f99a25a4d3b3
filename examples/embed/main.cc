// embed MODEL_OR_PIPELINE PROMPT [TOKENS]: streams a continuation, and tells how sure the model was of it.
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "tenon/core/engine.h"
#include "tenon/core/error.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: embed MODEL_OR_PIPELINE PROMPT [TOKENS]\n";
    return 2;
  }
  try {
    const auto engine = tenon::Engine::open({.config = argv[1]});
    tenon::Request request;
    request.prompt = argv[2];
    request.max_new_tokens = argc > 3 ? static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)) : 32;
    request.stop = {"\n\n"};
    request.logprobs = true;
    request.on_token = [](const tenon::Token& token) {
      std::cout << token.text << std::flush;
      return true;
    };
    const tenon::Result result = engine->generate(request);

    double sum = 0;
    for (const tenon::Logprob& logprob : result.logprobs) sum += logprob.value;
    const auto tokens = static_cast<double>(result.tokens.size());
    std::cout << "\n" << tokens << " tokens, ended by " << to_string(result.finish);
    if (tokens > 0) std::cout << ", perplexity " << std::exp(-sum / tokens);
    std::cout << "\n";
    return 0;
  } catch (const tenon::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
