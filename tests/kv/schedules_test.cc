// Several requests come, go, are cancelled, read in pieces and pre-empted at random, under every policy and format of a
// cache: each gets the text that it gets alone, without drafts and with chains and trees of them. It is compiled for
// the CPU, and for a GPU in tests/cuda: TENON_TEST_DEVICE says for which.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "policies.h"
#include "support/random_requests.h"
#include "unit/engine/on_a_device.h"

namespace tenon::test {
namespace {

struct Case {
  const char* name;
  Settings cache;
  Settings alone = {};     // besides, where a request runs by itself
  Settings together = {};  // besides, where many run
  // What the policy's README says of a text, which is always what it is alone:
  bool cut = true;      // Its prompt is read in pieces, else in one step.
  bool anew = true;     // Some are pre-empted and computed anew.
  bool drafted = true;  // With a chain of drafts it is the one without, else the one that it is alone with drafts.
  bool trees = true;    // With drafts that branch it is the one without, else these are refused.
  bool reuses = false;  // Beginnings are found again.
  std::string model = kTiny;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const bool kOnACpu = kDevice == "cpu";
// In steps of so many rows a row's bits do not depend on the rows beside it.
const uint32_t kMostRows = kOnACpu ? 16 : 8;
constexpr uint32_t kDrafts = 3;
const uint32_t kSequences = kMostRows / (1 + kDrafts);
constexpr size_t kRequests = 60;

// Returns the format that settings say last; "" if they say none.
std::string format_of(const Settings& settings) {
  constexpr std::string_view kKey = "kv_cache.format=";
  std::string format;
  for (const std::string& s : settings) {
    if (s.starts_with(kKey)) format = s.substr(kKey.size());
  }
  return format;
}

Settings rows_of_steps(uint32_t rows) {
  return {"scheduler.prefill_rows=" + std::to_string(rows)};
}

class Schedules : public OnADevice, public testing::WithParamInterface<Case> {
 protected:
  static std::unique_ptr<Engine> open_alone(const Settings& more = {}) {
    // On the CPU a row is the same in steps of any size.
    const bool whole = kOnACpu || !GetParam().cut;
    return open_case(with(GetParam().alone, with(rows_of_steps(whole ? 512 : kMostRows), more)));
  }

  static std::unique_ptr<Engine> open_together(uint32_t sequences, const Settings& more = {}) {
    Settings settings = {"scheduler.use=continuous", "scheduler.patience=0",
                         "scheduler.sequences=" + std::to_string(sequences)};
    const uint32_t rows = GetParam().cut ? kMostRows : 512;
    settings.push_back("scheduler.budget_rows=" + std::to_string(rows));
    return open_case(with(with(settings, rows_of_steps(rows)), with(GetParam().together, more)));
  }

  static std::vector<Request> requests() {
    std::vector<Request> requests = requests_that_begin_alike(kRequests, 7);
    int32_t priority = 0;
    for (Request& r : requests) {
      r.sampler.clear();
      r.logprobs = kOnACpu;
      r.priority = GetParam().anew ? (priority += 7) % 31 : 0;
    }
    return requests;
  }

  static std::vector<Result> results_of(Engine& engine, const std::vector<Request>& requests) {
    std::vector<Result> results;
    for (const Request& r : requests) results.push_back(engine.generate(r));
    return results;
  }

  // Several tests compare with the same.
  static const std::vector<Result>& alone() {
    static std::map<std::string, std::vector<Result>> known;
    std::vector<Result>& results = known[GetParam().name];
    if (results.empty()) results = results_of(*open_alone(), requests());
    return results;
  }

  static RunStats expect_as_alone(Engine& engine, const std::vector<Request>& requests,
                                  const std::vector<Result>& alone) {
    const uint32_t pages = free_pages(engine);
    const size_t cancelled = run_at_random(engine, requests, {.every = 12, .most = 4, .to_cancel = 5},
                                           [&](const Result& r, size_t i, bool to_cancel) {
                                             SCOPED_TRACE("request " + std::to_string(i));
                                             test::expect_as_alone(r, alone[i], to_cancel, kOnACpu);
                                           });
    EXPECT_GT(cancelled, 0U);
    EXPECT_EQ(free_pages(engine), pages) << "pages were lost";
    const RunStats stats = engine.totals();
    EXPECT_EQ(stats.preempted > 0, GetParam().anew) << stats.preempted << " were pre-empted";
    EXPECT_EQ(stats.recomputed > 0, GetParam().anew);
    EXPECT_EQ(stats.reused > 0, GetParam().reuses);
    return stats;
  }

 private:
  static std::unique_ptr<Engine> open_case(const Settings& more) {
    const Settings capacity = {"kv_cache.capacity=160"};
    return open_on(kDevice, with(capacity, with(GetParam().cache, more)), 0, false, GetParam().model);
  }
};

TEST_P(Schedules, EachRequestGetsTheTextThatItGetsAlone) {
  expect_as_alone(*open_together(kSequences), requests(), alone());
}

TEST_P(Schedules, WithDraftsThatRepeatTheTextToo) {
  const Settings draft = {"draft.use=ngram", "draft.k=" + std::to_string(kDrafts)};
  const RunStats stats = expect_as_alone(*open_together(kSequences, draft), requests(),
                                         GetParam().drafted ? alone() : results_of(*open_alone(draft), requests()));
  EXPECT_GT(stats.accepted, 0U);
  EXPECT_GT(stats.drafted, stats.accepted);
}

// The draft knows the text of one of them, and is wrong about the others.
TEST_P(Schedules, WithTreesOfDraftsToo) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    requests.push_back(text(static_cast<size_t>(20 + 9 * i), 50, i));
    requests.back().logprobs = kOnACpu;
  }
  const std::vector<Result> plain = results_of(*open_alone(), requests);
  Settings tree = with_tree({}, requests[0], plain[0].tokens);
  if (!GetParam().trees) {
    EXPECT_THROW(open_alone(tree), Error);
    return;
  }
  // On a GPU the rows of a tree are attended to in f32, which rows without one are only over a cache in fp32; and a
  // sequence has seven of them. So there the draft knows the text that a tree gives.
  std::vector<Result> alone = plain;
  if (!kOnACpu && format_of(GetParam().cache) != "fp32") {
    tree = with_tree({}, requests[0], open_alone(tree)->generate(requests[0]).tokens);
    alone = results_of(*open_alone(tree), requests);
  }
  const auto engine = open_together(kOnACpu ? 2 : 1, tree);
  const std::vector<Result> together = engine->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    test::expect_as_alone(together[i], alone[i], false, kOnACpu);
  }
  EXPECT_GT(engine->totals().accepted, 20U) << "the branches were hardly ever right: the test tests little";
}

Case whole(const char* name, const std::string& use, const Settings& more = {}) {
  return {.name = name, .cache = with({"kv_cache.use=" + use}, more)};
}

// A pool has the pages of the longest text and two more.
Case pages(const char* name, const Settings& more) {
  return {.name = name,
          .cache = with({"kv_cache.use=paged"}, more),
          .alone = {"kv_cache.reuse=false"},
          .together = {"kv_cache.pool=192"},
          .reuses = true};
}

const Settings kFp32Scales = {"kv_cache.format=fp32_scales"};

Case channels(const char* name, const Settings& more) {
  Case c = whole(name, "int4", with({"kv_cache.keys=channel"}, more));
  c.trees = false;
  return c;
}

// Here texts go far beyond what is kept.
Case sinks(const char* name, const Settings& more) {
  return {.name = name, .cache = sink_window(with({"kv_cache.capacity=160"}, more))};
}
Case evicts(const char* name, const Settings& cache, const Settings& more = {}) {
  return {.name = name, .cache = with(cache, more), .cut = false, .anew = false, .drafted = false, .trees = false};
}
// Nothing is dropped.
Case keeps(const char* name, const Settings& cache, const Settings& more) {
  return {.name = name, .cache = with(cache, more), .trees = false};
}

Case chooses(const char* name, const Settings& more) {
  return {.name = name,
          .cache = with({"kv_cache.use=quest", "kv_cache.whole_layers=0", "kv_cache.budget=48"}, more),
          .cut = false,
          .anew = false};
}

// The longest prompt is not longer than what is kept or read.
Case reads_in_pieces(const char* name, Case c) {
  c.name = name;
  c.cut = true;
  return c;
}

Case of(const std::string& model, Case c) {
  c.model = model;
  return c;
}

INSTANTIATE_TEST_SUITE_P(
    Under, Schedules,
    testing::Values(
        whole("static_fp32", "static", {"kv_cache.format=fp32"}),
        whole("static_fp16", "static", {"kv_cache.format=fp16"}),
        whole("static_bf16", "static", {"kv_cache.format=bf16"}),
        of("tiny-gemma3", whole("static_with_windows", "static")),  //
        whole("int8", "int8"), whole("int8_fp32_scales", "int8", kFp32Scales),
        whole("int8_tail", "int8", {"kv_cache.tail=24"}),  //
        whole("fp8", "fp8"), whole("fp8_fp32_scales", "fp8", kFp32Scales),
        whole("fp8_tail", "fp8", {"kv_cache.tail=24"}),  //
        whole("int4", "int4"), whole("int4_fp32_scales", "int4", kFp32Scales),
        whole("int4_unrotated", "int4", {"kv_cache.rotation=none"}), whole("int4_tail", "int4", {"kv_cache.tail=24"}),
        whole("int4_unrotated_tail", "int4", {"kv_cache.tail=5", "kv_cache.rotation=none"}),
        of("tiny-gemma3", whole("int4_tail_with_windows", "int4", {"kv_cache.tail=24"})), channels("int4_channels", {}),
        channels("int4_channels_unrotated", {"kv_cache.rotation=none", "kv_cache.tail=45"}),
        channels("int4_channels_fp32_scales", with(kFp32Scales, {"kv_cache.group=64"})),
        pages("paged_fp32", {"kv_cache.format=fp32"}), pages("paged_fp16", {"kv_cache.format=fp16"}),
        pages("paged_bf16", {"kv_cache.format=bf16"}), pages("paged_int8", {"kv_cache.format=int8"}),
        pages("paged_fp8", {"kv_cache.format=fp8"}), pages("paged_int4", {"kv_cache.format=int4"}),
        pages("paged_int8_tail", {"kv_cache.format=int8", "kv_cache.tail=24"}),
        pages("paged_fp8_tail", {"kv_cache.format=fp8", "kv_cache.tail=24"}),
        pages("paged_int4_tail", {"kv_cache.format=int4", "kv_cache.tail=24"}),
        of("tiny-gemma3", pages("paged_with_windows", {})),
        of("tiny-gemma3", pages("paged_int4_tail_with_windows", {"kv_cache.format=int4", "kv_cache.tail=24"})),
        sinks("sink_window_fp32", {}), sinks("sink_window_fp16", {"kv_cache.format=fp16"}),
        sinks("sink_window_bf16", {"kv_cache.format=bf16"}),
        sinks("sink_window_original", {"kv_cache.positions=original"}),
        keeps("h2o_of_everything", h2o(), {"kv_cache.heavy=100", "kv_cache.recent=60"}),
        reads_in_pieces("h2o_of_prompts", evicts("", h2o(), {"kv_cache.heavy=100", "kv_cache.recent=12"})),
        evicts("h2o_fp32", h2o()), evicts("h2o_fp16", h2o(), {"kv_cache.format=fp16"}),
        evicts("h2o_bf16", h2o(), {"kv_cache.format=bf16"}), of("tiny-shared", evicts("h2o_of_shared_caches", h2o())),
        keeps("snapkv_of_everything", snapkv(), {"kv_cache.prompt=160"}), evicts("snapkv_fp32", snapkv()),
        evicts("snapkv_fp16", snapkv(), {"kv_cache.format=fp16"}),
        evicts("snapkv_bf16", snapkv(), {"kv_cache.format=bf16"}),
        whole("quest_of_everything", "quest", {"kv_cache.budget=160", "kv_cache.whole_layers=0"}),
        reads_in_pieces("quest_of_prompts", chooses("", {"kv_cache.budget=112"})),
        chooses("quest_fp32", {"kv_cache.format=fp32"}), chooses("quest_fp16", {"kv_cache.format=fp16"}),
        chooses("quest_bf16", {"kv_cache.format=bf16"})),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace tenon::test
