// The server's counts have vLLM's names and are written in Prometheus's text format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tenon/core/engine.h"

namespace tenon::serve {

// Thread: any, but step() is called by one.
class Metrics {
 public:
  explicit Metrics(const std::string& model);
  ~Metrics();

  // Counts a request that was admitted, and the seconds that it waited.
  void start(double waited);
  void first_token(double since_arrival);
  void next_token(double since_last);
  struct Ended {
    FinishReason finish = FinishReason::kLength;
    uint64_t prompt_tokens = 0, tokens = 0;
    double seconds = 0;       // since it arrived
    double before_first = 0;  // from the beginning of its first step to its first token
    double after_first = 0;   // from its first token to its last one
  };
  void end(const Ended& request);
  // Counts a prompt whose answers have all ended; the longest of them has so many tokens.
  void end_prompt(uint64_t longest);
  void refuse();  // the status is 429

  void set_load(uint64_t running, uint64_t waiting, double cache_share);
  // Counts what the engine has done in all, after each of its steps.
  void step(const RunStats& totals);

  std::string text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace tenon::serve
