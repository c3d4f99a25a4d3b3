// embed MODEL_OR_PIPELINE PROMPT [TOKENS]: streams a continuation, and tells how
// sure the model was of it; then two at once.
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>

#include "tenon/core/engine.h"
#include "tenon/core/error.h"

namespace {

void generate_one(tenon::Engine& engine, const std::string& prompt, uint32_t tokens) {
  tenon::Request request;
  request.prompt = prompt;
  request.max_new_tokens = tokens;
  request.stop = {"\n\n"};
  request.logprobs = true;
  request.on_token = [](const tenon::Token& token) {
    std::cout << token.text << std::flush;
    return true;
  };
  const tenon::Result result = engine.generate(request);

  double sum = 0;
  for (const tenon::Logprob& logprob : result.logprobs) sum += logprob.value;
  const auto n = static_cast<double>(result.tokens.size());
  std::cout << "\n" << n << " tokens, ended by " << to_string(result.finish);
  if (n > 0) std::cout << ", perplexity " << std::exp(-sum / n);
  std::cout << "\n";
}

tenon::Request numbered(int number, const std::string& prompt, uint32_t tokens) {
  tenon::Request request;
  request.prompt = prompt;
  request.max_new_tokens = tokens;
  request.ignore_end = true;
  request.on_token = [number](const tenon::Token& token) {
    std::cout << "[" << number << "]" << token.text << std::flush;
    return true;
  };
  return request;
}

// Two requests in one loop, each streamed as its tokens come. submit() and cancel() may be called from any thread, and
// from callbacks; step() is called by one. The second would make twice as many tokens, but is cancelled when the first
// has ended.
void stream_two(tenon::Engine& engine, const std::string& prompt, uint32_t tokens) {
  tenon::Ticket second{};
  tenon::Request first = numbered(1, prompt, tokens);
  first.on_done = [&](const tenon::Result& result) {
    std::cout << "\nrequest 1: " << result.tokens.size() << " tokens, ended by " << to_string(result.finish) << "\n";
    engine.cancel(second);
  };
  engine.submit(first);
  second = engine.submit(numbered(2, prompt, 2 * tokens));
  while (engine.step()) {
  }
  const tenon::Result result = *engine.take(second);
  std::cout << "request 2: " << result.tokens.size() << " tokens, ended by " << to_string(result.finish) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: embed MODEL_OR_PIPELINE PROMPT [TOKENS]\n";
    return 2;
  }
  const uint32_t tokens = argc > 3 ? static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)) : 32;
  try {
    const auto engine =
        tenon::Engine::open({.config = argv[1], .set = {"scheduler.use=continuous", "scheduler.sequences=2"}});
    generate_one(*engine, argv[2], tokens);
    stream_two(*engine, argv[2], tokens);
    return 0;
  } catch (const tenon::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
