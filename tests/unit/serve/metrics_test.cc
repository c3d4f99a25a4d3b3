// This tests what a scrape of the server says after requests and steps.
#include "metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::serve {
namespace {

using testing::HasSubstr;

// Returns a line of the text: a name, the label that all have, and a value.
std::string line(const std::string& name, const std::string& value, const std::string& more = "") {
  return "\n" + name + "{model_name=\"tiny\"" + more + "} " + value + "\n";
}

TEST(ServeMetrics, HaveWhatVllmsDashboardsShow) {
  const std::string text = "\n" + Metrics("tiny").text();
  for (const char* gauge : {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}) {
    EXPECT_THAT(text, HasSubstr(line(std::string("vllm:") + gauge, "0")));
  }
  for (const char* counter : {"prompt_tokens_total", "generation_tokens_total"}) {
    EXPECT_THAT(text, HasSubstr(line(std::string("vllm:") + counter, "0")));
  }
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\nvllm:request_success_total{finished_reason=\"") + reason +
                                "\",model_name=\"tiny\"} 0\n"));
  }
  for (const char* histogram :
       {"e2e_request_latency_seconds", "time_to_first_token_seconds", "inter_token_latency_seconds",
        "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens",
        "iteration_tokens_total"}) {
    EXPECT_THAT(text, HasSubstr(std::string("# TYPE vllm:") + histogram + " histogram\n"));
    EXPECT_THAT(text, HasSubstr(line(std::string("vllm:") + histogram + "_count", "0")));
    EXPECT_THAT(text, HasSubstr(line(std::string("vllm:") + histogram + "_sum", "0")));
    EXPECT_THAT(text, HasSubstr(line(std::string("vllm:") + histogram + "_bucket", "0", ",le=\"+Inf\"")));
  }
}

TEST(ServeMetrics, TellThePhasesOfARequestApart) {
  Metrics metrics("tiny");
  metrics.start(0.25);
  metrics.end({.finish = FinishReason::kLength,
               .prompt_tokens = 3,
               .tokens = 5,
               .seconds = 4,
               .before_first = 0.5,
               .after_first = 2});
  metrics.end({.finish = FinishReason::kCancelled, .prompt_tokens = 3, .seconds = 1});  // it has no token
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr(line("vllm:request_queue_time_seconds_sum", "0.25")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_prefill_time_seconds_sum", "0.5")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_prefill_time_seconds_count", "1")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_prefill_time_seconds_bucket", "0", ",le=\"0.3\"")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_prefill_time_seconds_bucket", "1", ",le=\"0.5\"")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_decode_time_seconds_sum", "2")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_decode_time_seconds_count", "1")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_time_per_output_token_seconds_sum", "0.5")));
  EXPECT_THAT(text, HasSubstr(line("vllm:e2e_request_latency_seconds_count", "2")));
}

TEST(ServeMetrics, CountPromptsByTheirLongestAnswer) {
  Metrics metrics("tiny");
  metrics.end_prompt(7);
  metrics.end_prompt(300);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr(line("vllm:request_max_num_generation_tokens_sum", "307")));
  EXPECT_THAT(text, HasSubstr(line("vllm:request_max_num_generation_tokens_bucket", "1", ",le=\"10\"")));
}

TEST(ServeMetrics, CountTheTokensOfEachStep) {
  Metrics metrics("tiny");
  RunStats totals;
  metrics.step(totals);  // it did nothing
  totals.prompt_tokens = 20;
  totals.new_tokens = 1;
  totals.preempted = 2;
  metrics.step(totals);
  totals.new_tokens = 4;
  metrics.step(totals);
  const std::string text = metrics.text();
  EXPECT_THAT(text, HasSubstr(line("vllm:iteration_tokens_total_sum", "24")));
  EXPECT_THAT(text, HasSubstr(line("vllm:iteration_tokens_total_count", "2")));
  EXPECT_THAT(text, HasSubstr(line("vllm:iteration_tokens_total_bucket", "1", ",le=\"8\"")));
  EXPECT_THAT(text, HasSubstr(line("vllm:num_preemptions_total", "2")));
}

}  // namespace
}  // namespace tenon::serve
