// These are pipelines with the policies of caches that ship, and with those of this folder.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/pipelines.h"

namespace tenon::test {

inline std::unique_ptr<Engine> open_on(const std::string& device, const Settings& settings, uint32_t sequences = 0,
                                       bool scores = false, const std::string& model = kTiny) {
  EngineOptions options;
  options.config = root() / "tests/golden/data" / model;
  options.set = {"quantization.use=none", "quantization.dtype=fp32", "sampler.chain=[]", "sampler.select=greedy",
                 "device.use=" + device};
  if (device == "cpu") options.set.emplace_back("device.threads=2");
  options.set.insert(options.set.end(), settings.begin(), settings.end());
  options.plugin_dirs = {TENON_KV_TEST_PLUGINS, plugins()};
  options.model_dirs = {root() / "tests/golden/made"};
  options.sequences = sequences;
  options.score_rows = scores ? 32 : 0;
  return Engine::open(options);
}

inline std::unique_ptr<Engine> open_kv(const Settings& settings, uint32_t sequences = 0, bool scores = false) {
  return open_on("cpu", settings, sequences, scores);
}

inline Request text(size_t prompt, uint32_t tokens, int32_t seed = 1) {
  Request r;
  for (size_t i = 0; i < prompt; ++i) r.tokens.push_back(static_cast<int32_t>((i * 37 + 5 * seed) % 200 + 3));
  r.max_new_tokens = tokens;
  r.ignore_end = true;
  return r;
}

inline Settings sink_window(Settings more = {}) {
  Settings all = {"kv_cache.use=sink_window", "kv_cache.sinks=4", "kv_cache.window=28", "kv_cache.capacity=32",
                  "kv_cache.format=fp32"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// These caches have dropped most of the tokens of text(40, 150) at its end.
inline Settings h2o() {
  return {"kv_cache.use=h2o", "kv_cache.capacity=256", "kv_cache.format=fp32", "kv_cache.heavy=16",
          "kv_cache.recent=8"};
}
inline Settings snapkv() {
  return {"kv_cache.use=snapkv", "kv_cache.capacity=256", "kv_cache.format=fp32", "kv_cache.prompt=20",
          "kv_cache.room=12",    "kv_cache.observe=8",    "kv_cache.pool=5"};
}

inline std::vector<int32_t> tokens_of(const Settings& settings, const Request& r) {
  return open_kv(settings)->generate(r).tokens;
}

// Expects the same tokens, and the log probabilities of f32 near those of float64.
inline void expect_alike(const Settings& settings, const Settings& reference, Request r, const std::string& what,
                         double within = 1e-4) {
  r.logprobs = true;
  const Result a = open_kv(settings)->generate(r), b = open_kv(reference)->generate(r);
  EXPECT_EQ(a.tokens, b.tokens) << what;
  ASSERT_EQ(a.logprobs.size(), b.logprobs.size()) << what;
  for (size_t i = 0; i < a.logprobs.size(); ++i) {
    ASSERT_NEAR(a.logprobs[i].value, b.logprobs[i].value, within) << what << ", token " << i;
  }
}

// The mean KL divergence of the second engine's next tokens from the first's over a text, in nats.
inline double divergence(Engine& a, Engine& b, const std::vector<int32_t>& ids) {
  const auto probabilities = [&](Engine& e) {
    std::vector<std::vector<double>> all;
    e.score(ids, 0,
            [&](uint32_t, std::span<const float> row) {
              const double top = *std::max_element(row.begin(), row.end());
              double sum = 0;
              for (const float x : row) sum += std::exp(x - top);
              all.emplace_back();
              for (const float x : row) all.back().push_back(std::exp(x - top) / sum);
            },
            {});
    return all;
  };
  const auto p = probabilities(a), q = probabilities(b);
  double sum = 0;
  for (size_t r = 0; r < p.size(); ++r) {
    for (size_t i = 0; i < p[r].size(); ++i) sum += p[r][i] > 0 ? p[r][i] * std::log(p[r][i] / q[r][i]) : 0;
  }
  return sum / static_cast<double>(p.size());
}

// A text's divergence from f32 is below this with a scaled cache: the error of 8-bit floats is some four times that of
// int8, and the divergence grows with its square.
inline double most_nats(const std::string& cache) {
  return cache == "int4" ? 1 : cache == "fp8" ? 3e-2 : 1e-3;
}

// Returns the pipeline with a draft that knows the text and hides it among wrong branches.
inline Settings with_tree(Settings settings, const Request& r, const std::vector<int32_t>& tokens) {
  std::string all;
  for (const int32_t t : r.tokens) all += std::to_string(t) + " ";
  for (const int32_t t : tokens) all += std::to_string(t) + " ";
  settings.push_back("draft.use=two_branches");
  settings.push_back("draft.text=\"" + all + "\"");
  return settings;
}

// A pool has room for two of six sequences, which begin alike: pages are shared, lost, found again and copied while
// steps are launched ahead, and tables change between replays of a graph. `settings` are for the pipeline with pages,
// `apart` for one without.
inline void expect_shared_pages_give_the_texts_of_static(const std::string& device, const std::string& model,
                                                         const Settings& settings,
                                                         const Settings& apart = {"kv_cache.use=static",
                                                                                  "kv_cache.format=fp32"}) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    Request r = text(40, 60 + 5 * static_cast<uint32_t>(i));
    const Request own = text(12, 1, 7 + i);
    r.tokens.insert(r.tokens.end(), own.tokens.begin(), own.tokens.end());
    r.priority = i % 3;
    requests.push_back(std::move(r));
  }
  const auto alone = open_on("cpu", with(apart, {"kv_cache.capacity=256"}), 0, false, model);
  const auto engine = open_on(device,
                              with({"kv_cache.use=paged", "kv_cache.format=fp32", "kv_cache.capacity=256",
                                    "kv_cache.pool=272", "scheduler.use=continuous", "scheduler.sequences=4"},
                                   settings),
                              0, false, model);
  uint32_t page_tokens = 0;
  const uint32_t pages = engine->pipeline().free_pages(page_tokens);
  for (int round = 0; round < 2; ++round) {
    const std::vector<Result> results = engine->generate(requests);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].tokens, alone->generate(requests[i]).tokens) << settings.front() << ", request " << i;
    }
  }
  EXPECT_GT(engine->totals().reused, 0U);
  EXPECT_EQ(engine->pipeline().free_pages(page_tokens), pages);
}

}  // namespace tenon::test
