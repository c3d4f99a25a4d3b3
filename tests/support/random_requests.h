// These are requests of all sorts for a small model, and schedules at which they come and go at random.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tenon/core/engine.h"

namespace tenon::test {

// Returns the same for the same seed. Some requests repeat themselves, so that drafts are found; some end at a stop
// string.
inline std::vector<Request> some_requests(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Request> requests(n);
  for (Request& r : requests) {
    const uint64_t length = 1 + random() % 60, period = 1 + random() % 8;
    std::vector<int32_t> part;
    for (uint64_t i = 0; i < period; ++i) part.push_back(static_cast<int32_t>(3 + random() % 250));
    const bool repeats = random() % 2 == 0;
    for (uint64_t i = 0; i < length; ++i) {
      r.tokens.push_back(repeats ? part[i % period] : static_cast<int32_t>(3 + random() % 250));
    }
    r.max_new_tokens = 1 + static_cast<uint32_t>(random() % 40);
    r.ignore_end = random() % 2 == 0;
    r.seed = random();
    r.priority = static_cast<int32_t>(random() % 3);
    if (random() % 3 == 0) r.sampler = {{"temperature.value", "0.3"}, {"top_k.k", "20"}};
    if (random() % 4 == 0) r.sampler.emplace_back("repetition_penalty.penalty", "1.5");
    if (random() % 3 == 0) r.stop = {std::string(1, static_cast<char>('a' + random() % 26)), "never to be seen"};
    r.logprobs = random() % 5 == 0;
  }
  return requests;
}

// Returns the same, but two in three begin with one of three texts, as far as it goes or less far.
inline std::vector<Request> requests_that_begin_alike(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<int32_t>> beginnings(3);
  for (auto& beginning : beginnings) {
    for (int i = 0; i < 48; ++i) beginning.push_back(static_cast<int32_t>(3 + random() % 250));
  }
  std::vector<Request> requests = some_requests(n, seed);
  for (Request& r : requests) {
    if (random() % 3 == 0) continue;
    const auto& beginning = beginnings[random() % 3];
    const uint64_t length = random() % 2 == 0 ? beginning.size() : random() % beginning.size();
    r.tokens.insert(r.tokens.begin(), beginning.begin(), beginning.begin() + static_cast<std::ptrdiff_t>(length));
  }
  return requests;
}

inline std::string error_of(const Result& result) {
  if (!result.error) return "";
  try {
    std::rethrow_exception(result.error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

// Where it was cancelled, what is there has to be the beginning of what the request gets alone. Log probabilities are
// compared to the bit, if `bits` says so.
inline void expect_as_alone(const Result& r, const Result& alone, bool cancelled, bool bits) {
  EXPECT_EQ(error_of(r), "");
  EXPECT_EQ(r.prompt_tokens, alone.prompt_tokens);
  if (cancelled && r.finish == FinishReason::kCancelled) {
    ASSERT_LE(r.tokens.size(), alone.tokens.size());
    EXPECT_TRUE(std::equal(r.tokens.begin(), r.tokens.end(), alone.tokens.begin()));
    return;
  }
  EXPECT_EQ(r.tokens, alone.tokens);
  EXPECT_EQ(r.text, alone.text);
  EXPECT_EQ(r.finish, alone.finish);
  if (!bits) return;
  ASSERT_EQ(r.logprobs.size(), alone.logprobs.size());
  for (size_t t = 0; t < r.logprobs.size(); ++t) EXPECT_EQ(r.logprobs[t].value, alone.logprobs[t].value);
}

struct Comings {
  uint32_t every;    // steps after which some come, as a mean
  uint32_t most;     // come at once
  size_t to_cancel;  // so many are cancelled between steps, at most
};

// Submits the requests at random steps: now and then some come at once, and then nobody for a while. One in 16 is
// cancelled by its own callback. `look` sees each result, the number of its request, and whether that was to be
// cancelled. Returns how many ended by it.
inline size_t run_at_random(Engine& engine, const std::vector<Request>& requests, const Comings& comings,
                            const std::function<void(const Result&, size_t, bool)>& look) {
  std::mt19937_64 random(11);
  std::map<size_t, Ticket> open;
  std::vector<bool> cancelled(requests.size(), false);
  size_t next = 0, done = 0, ended_by_cancel = 0, to_cancel = comings.to_cancel;
  for (uint64_t steps = 0; done < requests.size(); ++steps) {
    if (steps == 20000) {
      ADD_FAILURE() << "it never ends";
      break;
    }
    for (uint64_t come = random() % comings.every == 0 ? 1 + random() % comings.most : 0;
         come > 0 && next < requests.size(); --come, ++next) {
      Request r = requests[next];
      if (random() % 16 == 0) {  // a callback cancels it when so many tokens are there
        cancelled[next] = true;
        auto left = std::make_shared<uint64_t>(random() % 10);
        r.on_token = [&, left, i = next](const Token&) {
          if ((*left)-- == 0) engine.cancel(open.at(i));
          return true;
        };
      }
      open.emplace(next, engine.submit(std::move(r)));
    }
    if (random() % 16 == 0 && !open.empty() && to_cancel > 0) {
      --to_cancel;
      const size_t i = std::next(open.begin(), static_cast<std::ptrdiff_t>(random() % open.size()))->first;
      cancelled[i] = true;
      engine.cancel(open.at(i));
    }
    engine.step();
    for (auto it = open.begin(); it != open.end();) {
      const std::optional<Result> result = engine.take(it->second);
      if (!result) {
        ++it;
        continue;
      }
      look(*result, it->first, cancelled[it->first]);
      ended_by_cancel += result->finish == FinishReason::kCancelled ? 1 : 0;
      ++done;
      it = open.erase(it);
    }
  }
  EXPECT_FALSE(engine.step());
  return ended_by_cancel;
}

// Returns the number of pages that no sequence holds; 0 where sequences do not share any.
inline uint32_t free_pages(const Engine& engine) {
  uint32_t page_tokens = 0;
  return engine.pipeline().free_pages(page_tokens);
}

}  // namespace tenon::test
