// The server tells this of each request's beginning, tokens and end. This counts them with prometheus-cpp's counters,
// gauges and histograms, and text() writes these for one scrape.
#include "metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>

namespace tenon::serve {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

const Buckets kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                             1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Buckets kBetweenTokens = {0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                0.3,    0.4,   0.5,  0.75,  1,    2.5,   5,   7.5,  10};
const Buckets kWhole = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kTokens = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                         1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
const Buckets kStepTokens = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

// These are vLLM's names.
constexpr std::array<const char*, 4> kReasons = {"stop", "length", "abort", "error"};
size_t reason_of(FinishReason finish) {
  switch (finish) {
    case FinishReason::kEndOfText:
    case FinishReason::kStopString:
      return 0;
    case FinishReason::kLength:
    case FinishReason::kCapacity:
      return 1;
    case FinishReason::kCancelled:
    case FinishReason::kCallback:
      return 2;
    case FinishReason::kError:
      return 3;
  }
  return 3;
}

}  // namespace

struct Metrics::Families {
  explicit Families(const std::string& model) : labels{{"model_name", model}} {
    for (size_t i = 0; i < kReasons.size(); ++i) {
      prometheus::Labels with = labels;
      with["finished_reason"] = kReasons[i];
      ended[i] = &success.Add(with);
    }
  }

  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
  }

  prometheus::Registry registry;
  prometheus::Labels labels;
  Gauge& running = gauge("vllm:num_requests_running", "Requests that have a slot of the cache.");
  Gauge& waiting = gauge("vllm:num_requests_waiting", "Requests that wait for a slot of the cache.");
  Gauge& cache = gauge("vllm:kv_cache_usage_perc", "Share of the cache that holds tokens; 1 is all of it.");
  Counter& preemptions = counter("vllm:num_preemptions_total", "Times that a request lost its slot.");
  Counter& rests = counter("tenon:rests_total", "Times that a step left out a request that generates.");
  Counter& prompt_tokens = counter("vllm:prompt_tokens_total", "Tokens of prompts.");
  Counter& tokens = counter("vllm:generation_tokens_total", "Generated tokens.");
  Counter& looked_up = counter("vllm:prefix_cache_queries_total", "Tokens of prompts that the cache was asked for.");
  Counter& reused = counter("vllm:prefix_cache_hits_total", "Those of them that were in the cache.");
  Counter& drafted = counter("vllm:spec_decode_num_draft_tokens_total", "Tokens that drafts proposed.");
  Counter& accepted = counter("vllm:spec_decode_num_accepted_tokens_total", "Proposed tokens that stayed.");
  Counter& refused = counter("tenon:requests_refused_total", "Requests that were answered with 429.");
  Histogram& first_token = histogram("vllm:time_to_first_token_seconds", "From arrival to first token.", kFirstToken);
  Histogram& between = histogram("vllm:inter_token_latency_seconds", "From token to token.", kBetweenTokens);
  Histogram& per_token = histogram("vllm:request_time_per_output_token_seconds",
                                   "From token to token, the mean of a request.", kBetweenTokens);
  Histogram& whole = histogram("vllm:e2e_request_latency_seconds", "From arrival to end.", kWhole);
  Histogram& queued =
      histogram("vllm:request_queue_time_seconds", "From arrival to the beginning of the first step.", kWhole);
  Histogram& prefill =
      histogram("vllm:request_prefill_time_seconds", "From the first step's beginning to the first token.", kWhole);
  Histogram& decode = histogram("vllm:request_decode_time_seconds", "From the first token to the last one.", kWhole);
  Histogram& prompt_size = histogram("vllm:request_prompt_tokens", "Tokens of a request's prompt.", kTokens);
  Histogram& answer_size = histogram("vllm:request_generation_tokens", "Generated tokens of a request.", kTokens);
  Histogram& longest = histogram("vllm:request_max_num_generation_tokens",
                                 "Generated tokens of the longest of the n answers to a prompt.", kTokens);
  Histogram& step_size =
      histogram("vllm:iteration_tokens_total",
                "Tokens of a step: those of prompts that it computed, and those that it generated.", kStepTokens);
  prometheus::Family<Counter>& success = prometheus::BuildCounter()
                                             .Name("vllm:request_success_total")
                                             .Help("Requests that ended, by reason.")
                                             .Register(registry);
  std::array<Counter*, kReasons.size()> ended{};
  uint64_t counted = 0;  // so many tokens were in the steps' sizes so far
};

Metrics::Metrics(const std::string& model) : families_(std::make_unique<Families>(model)) {}
Metrics::~Metrics() = default;

void Metrics::start(double waited) {
  families_->queued.Observe(waited);
}
void Metrics::first_token(double since_arrival) {
  families_->first_token.Observe(since_arrival);
  families_->tokens.Increment();
}
void Metrics::next_token(double since_last) {
  families_->between.Observe(since_last);
  families_->tokens.Increment();
}

void Metrics::end(const Ended& request) {
  families_->ended[reason_of(request.finish)]->Increment();
  families_->whole.Observe(request.seconds);
  families_->prompt_tokens.Increment(static_cast<double>(request.prompt_tokens));
  families_->prompt_size.Observe(static_cast<double>(request.prompt_tokens));
  families_->answer_size.Observe(static_cast<double>(request.tokens));
  if (request.tokens == 0) return;
  families_->prefill.Observe(request.before_first);
  families_->decode.Observe(request.after_first);
  if (request.tokens > 1) families_->per_token.Observe(request.after_first / static_cast<double>(request.tokens - 1));
}

void Metrics::end_prompt(uint64_t longest) {
  families_->longest.Observe(static_cast<double>(longest));
}

void Metrics::refuse() {
  families_->refused.Increment();
}

void Metrics::set_load(uint64_t running, uint64_t waiting, double cache_share) {
  families_->running.Set(static_cast<double>(running));
  families_->waiting.Set(static_cast<double>(waiting));
  families_->cache.Set(cache_share);
}

void Metrics::step(const RunStats& totals) {
  const auto raise = [](Counter& counter, uint64_t value) {
    counter.Increment(static_cast<double>(value) - counter.Value());
  };
  raise(families_->preemptions, totals.preempted);
  raise(families_->rests, totals.rested);
  raise(families_->looked_up, totals.looked_up);
  raise(families_->reused, totals.reused);
  raise(families_->drafted, totals.drafted);
  raise(families_->accepted, totals.accepted);
  const uint64_t tokens = totals.prompt_tokens + totals.new_tokens;
  if (tokens > families_->counted) families_->step_size.Observe(static_cast<double>(tokens - families_->counted));
  families_->counted = tokens;
}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace tenon::serve
