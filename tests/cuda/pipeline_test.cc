// Whole pipelines on a GPU are held against the same ones on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <tuple>

#include "support/out_of_memory.h"
#include "support/pipelines.h"
#include "tenon/core/quantize.h"
#include "tenon/sdk/linked_rows.h"

namespace tenon {
namespace {

using test::kExact, test::no_gpu, test::open, test::plugins, test::request, test::root, test::Settings;

class CudaPipeline : public testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = no_gpu();
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
};

TEST(CudaDevice, IsThereOrSaysWhatIsMissing) {
  const std::string problem = no_gpu();
  if (problem.empty()) return;
  EXPECT_THAT(problem, testing::AnyOf(testing::HasSubstr("no usable NVIDIA GPU"), testing::HasSubstr("libcudart"),
                                      testing::HasSubstr("no device named")));
}

TEST_F(CudaPipeline, GivesTheTokensAndLogitsOfTheCpu) {
  for (const char* model : {"tiny-gqa-untied", "tiny-linear-scaling", "tiny-llama3-scaling"}) {
    Request r = request();
    r.logprobs = true;
    const Result cpu = open(model, "cpu", kExact)->generate(r), gpu = open(model, "cuda", kExact)->generate(r);
    EXPECT_EQ(gpu.tokens, cpu.tokens) << model;
    ASSERT_EQ(gpu.logprobs.size(), cpu.logprobs.size());
    for (size_t i = 0; i < cpu.logprobs.size(); ++i) {
      EXPECT_NEAR(gpu.logprobs[i].value, cpu.logprobs[i].value, 1e-3) << model << " token " << i;
    }
  }
}

// Rows that were quantized before they were stored are packed to the bits that quantizing while loading gives.
TEST_F(CudaPipeline, RunsFoldersThatWereQuantizedBefore) {
  std::string pattern = std::filesystem::temp_directory_path() / "tenon-quantized-XXXXXX";
  const std::filesystem::path folder = mkdtemp(pattern.data());
  for (const char* model : {"tiny-gqa-untied", "tiny-odd"}) {
    for (const uint32_t group : {0, 32, 64, 128, 256}) {
      SCOPED_TRACE(std::string(model) + " in groups of " + std::to_string(group));
      const std::filesystem::path made = folder / (model + std::to_string(group));
      const std::vector<std::string> scheme = {group == 0 ? "int8wo" : "int4wo"};
      std::vector<QuantizeSetting> settings;
      if (group != 0) settings.emplace_back("group_size", std::to_string(group));
      const auto registry = make_registry({plugins()});
      quantize_model(root() / "tests/golden/data" / model, made,
                     {.target = quantize_targets(scheme, settings, *registry).front()});
      Settings reads = kExact, converts = kExact;
      reads.erase(reads.begin(), reads.begin() + 2);
      converts = reads;
      reads.emplace_back(group == 0 ? "quantization.use=int8wo" : "quantization.use=int4wo");
      converts.push_back(reads.back());
      if (group != 0) converts.push_back("quantization.group_size=" + std::to_string(group));
      Request r = request();
      r.logprobs = true;
      const Result before = open(model, "cuda", converts)->generate(r), after = open(made, "cuda", reads)->generate(r);
      EXPECT_EQ(after.tokens, before.tokens);
      ASSERT_EQ(after.logprobs.size(), before.logprobs.size());
      for (size_t i = 0; i < before.logprobs.size(); ++i) {
        EXPECT_EQ(after.logprobs[i].value, before.logprobs[i].value) << "token " << i;
      }
    }
  }
  std::filesystem::remove_all(folder);
}

// A step of 1100 rows multiplies codes of x on Hopper, with silu-multiply's result in halves; the CPU rounds the same
// x. What differs before it is rounded may become the neighbour, a sixteenth of one number of 288 and more in e4m3.
TEST_F(CudaPipeline, RoundsALongPromptAsTheCpuDoes) {
  Request r = request(1);
  r.logprobs = true;
  for (int32_t i = 0; r.tokens.size() < 1100; ++i) r.tokens.push_back((i * 53 + 11) % 200 + 3);
  for (const Settings& scheme :
       {Settings{"quantization.use=fp8", "quantization.activations=token"}, Settings{"quantization.use=int8dq"}}) {
    SCOPED_TRACE(scheme[0]);
    const auto first_logprob = [&](const std::string& device) {
      EngineOptions options{.config = "synthetic:stories15m", .plugin_dirs = {plugins()}};
      options.set = test::with(scheme, {"scheduler.prefill_rows=2048", "kv_cache.capacity=2048", "sampler.chain=[]",
                                        "sampler.select=greedy", "device.use=" + device});
      return Engine::open(options)->generate(r).logprobs.at(0).value;
    };
    EXPECT_NEAR(first_logprob("cuda"), first_logprob("cpu"), 6e-2);
  }
}

struct Prompt {
  std::string name;
  std::vector<int32_t> ids, greedy;  // greedy: 32 tokens that the model is known to choose clearly
};
std::vector<Prompt> prompts(const std::string& model, std::string* file = nullptr) {
  std::ifstream stream(root() / "tests/golden/data" / model / "golden.json");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const boost::json::value golden = boost::json::parse(text);
  if (file != nullptr) *file = golden.at("file").as_string();
  std::vector<Prompt> all;
  for (const auto& p : golden.at("prompts").as_array()) {
    all.push_back({std::string(p.at("name").as_string()), boost::json::value_to<std::vector<int32_t>>(p.at("ids")),
                   boost::json::value_to<std::vector<int32_t>>(p.at("greedy"))});
    all.back().greedy.resize(32);
  }
  return all;
}

// Up to 8 rows are multiplied by weights as they are; more by weights rounded to fp16.
Settings exact_gguf() {
  Settings settings = kExact;
  settings[0] = "quantization.use=gguf";
  settings[1] = "scheduler.prefill_rows=8";
  settings[3] = "kv_cache.capacity=512";
  settings.emplace_back("quantization.activations=f32");
  return settings;
}

TEST_F(CudaPipeline, MultipliesGgufBlocksAsTheCpuDoes) {
  for (const std::string model : {"tiny-gguf-q8_0", "tiny-gguf-mixed", "tiny-gguf-k"}) {
    const std::string path = model + "/" + model + ".gguf";
    const auto cpu = open(path, "cpu", exact_gguf()), gpu = open(path, "cuda", exact_gguf());
    for (const Prompt& p : prompts(model)) {
      SCOPED_TRACE(model + ", " + p.name);
      const Request r{.tokens = p.ids, .max_new_tokens = 32, .ignore_end = true, .logprobs = true};
      const Result want = cpu->generate(r), got = gpu->generate(r);
      EXPECT_EQ(want.tokens, p.greedy);
      EXPECT_EQ(got.tokens, p.greedy);
      ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
      for (size_t i = 0; i < want.logprobs.size(); ++i) {
        EXPECT_NEAR(got.logprobs[i].value, want.logprobs[i].value, 1e-3) << "token " << i;
      }
    }
  }
}

TEST_F(CudaPipeline, RunsSmolLm2FromItsGguf) {
  std::string file;
  const std::vector<Prompt> all = prompts("smollm2", &file);
  const std::filesystem::path model = root() / "models" / file;
  if (!std::filesystem::exists(model)) GTEST_SKIP() << model << " is not there; scripts/fetch_model.sh fetches it";
  Settings plain = exact_gguf(), large = exact_gguf();
  plain[0] = "quantization.use=none";
  plain.back() = "quantization.dtype=fp32";
  large[1] = "scheduler.prefill_rows=512";
  const auto gpu = open(model, "cuda", exact_gguf()), prefill = open(model, "cuda", large);
  const auto cpu = open(model, "cpu", exact_gguf()), fp32 = open(model, "cpu", plain);
  for (const Prompt& p : all) {
    SCOPED_TRACE(p.name);
    const Request r{.tokens = p.ids, .max_new_tokens = 32, .ignore_end = true};
    const Result got = gpu->generate(r);
    EXPECT_EQ(got.tokens, p.greedy);
    if (p.name == "english") {
      EXPECT_EQ(got.text, cpu->generate(r).text);
      EXPECT_EQ(got.text, fp32->generate(r).text);
    }
    // This is the one prompt whose choices no rounding to fp16 can change.
    if (p.name == "numbers") {
      EXPECT_EQ(prefill->generate(r).tokens, p.greedy);
    }
  }
}

TEST_F(CudaPipeline, GivesTheSameTokensInEveryMode) {
  Settings sampled = {"quantization.use=int8wo", "kv_cache.capacity=128"};
  std::vector<std::vector<int32_t>> tokens;
  for (const char* mode : {"per_op", "recorded", "graph", "auto"}) {
    Settings settings = sampled;
    settings.push_back(std::string("pipeline.execution=") + mode);
    const auto engine = open("tiny-gqa-untied", "cuda", settings);
    tokens.push_back(engine->generate(request()).tokens);
    tokens.push_back(engine->generate(request()).tokens);  // this runs on graphs that are there already
  }
  for (const auto& t : tokens) EXPECT_EQ(t, tokens.front());
}

TEST_F(CudaPipeline, SequencesInStepGiveWhatEachGivesAlone) {
  Settings batch = kExact;
  batch.push_back("scheduler.use=lockstep");
  const auto engine = open("tiny-gqa-untied", "cuda", batch, 3);
  std::vector<Request> requests(3, request(20));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].tokens.resize(7 + 5 * i);
  const std::vector<Result> together = engine->generate(requests);
  const auto alone = open("tiny-gqa-untied", "cuda", kExact);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(together[i].tokens, alone->generate(requests[i]).tokens) << "sequence " << i;
  }
}

TEST_F(CudaPipeline, AStopInTheMiddleLeavesTheNextRequestUntouched) {
  const auto engine = open("tiny-gqa-untied", "cuda", kExact);
  const Result whole = engine->generate(request());
  Request cut = request();
  uint32_t seen = 0;
  cut.on_token = [&](const Token&) { return ++seen < 5; };
  EXPECT_EQ(engine->generate(cut).finish, FinishReason::kCallback);
  EXPECT_EQ(engine->generate(request()).tokens, whole.tokens);
}

TEST_F(CudaPipeline, OutOfMemoryAtAnyAllocationIsAnErrorThatLeavesNothingBehind) {
  for (const char* scheme : {"none", "int4wo"}) {
    test::expect_errors_where_memory_ends("cuda", {std::string("quantization.use=") + scheme});
  }
}

// Other programs may take memory between planning and loading. Here the device says that it has more than it has.
TEST_F(CudaPipeline, MemoryThatIsGoneWhenItIsLoadedIsAnErrorWithTheFigures) {
  const auto registry = make_registry({plugins()});
  RegistrySchemas schemas(*registry);
  const Settings settings = {"device.use=cuda", "quantization.use=none", "kv_cache.capacity=64"};
  PipelineConfig config = resolve(load_config("synthetic:llama-3.1-405b", settings), schemas);
  const auto weights = open_weights(config.model.path);
  test::RefusingDevice device(*registry, "cuda");
  device.pretend_memory(uint64_t{1} << 50);
  config.device.name = test::RefusingDevice::kName;
  try {
    Pipeline::build(config, *registry, *weights, {})->load();
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMemory);
    EXPECT_THAT(e.what(), testing::ContainsRegex("device.cuda has no [0-9]+ GB for weights: cudaMalloc: out of memory; "
                                                 "[0-9]+ MB of [0-9]+ MB are free now; the plan needs [0-9]+ GB"));
  }
  EXPECT_EQ(device.live_bytes(), 0u);
  EXPECT_FALSE(open("tiny-gqa-untied", "cuda", kExact)->generate(request()).tokens.empty());
}

// Prompts of so many rows go through cuBLASLt. What silu makes goes to the next product in the weights' own
// halves, and in f32 where the weights are f32. A copy of the weights that is kept has the same products, and nothing is
// unpacked.
TEST_F(CudaPipeline, LongPromptsPassHalvesFromSiluToTheNextProduct) {
  Request r = request(2);
  for (int32_t i = 0; i < 1500; ++i) r.tokens.push_back((i * 41 + 7) % 200 + 3);
  r.logprobs = true;
  const auto long_prompts = [](const std::string& dtype, const std::string& copy = "false") {
    return open(test::kTiny, "cuda",
                test::with(kExact, {"quantization.dtype=" + dtype, "quantization.plain_copy=" + copy,
                                    "kv_cache.capacity=1600", "scheduler.prefill_rows=1600"}));
  };
  const auto unpacks = [](const Engine& engine) {
    return std::ranges::any_of(engine.pipeline().programs(), [](const Program* program) {
      return std::ranges::any_of(program->ops(), [](const ProgramOp& op) { return op.name == "unpack"; });
    });
  };
  const auto formats = [](const Engine& engine) {
    std::set<tenon_format> found;
    for (const Program* program : engine.pipeline().programs()) {
      for (const ProgramOp& op : program->ops()) {
        if (op.name == "silu_mul_rows") found.insert(program->tensor(op.operands[1].tensor).view.format);
      }
    }
    return found;
  };
  const auto exact = long_prompts("fp32");
  EXPECT_THAT(formats(*exact), testing::ElementsAre(tenon_format{TENON_F32}));
  const Result want = exact->generate(r);
  using Halves = std::tuple<const char*, tenon_format, double>;
  for (const auto& [dtype, format, error] : {Halves{"fp16", TENON_F16, 0.02}, Halves{"bf16", TENON_BF16, 0.1}}) {
    const auto engine = long_prompts(dtype);
    EXPECT_THAT(formats(*engine), testing::ElementsAre(format));
    const Result got = engine->generate(r);
    ASSERT_EQ(got.logprobs.size(), want.logprobs.size());
    EXPECT_EQ(got.tokens[0], want.tokens[0]) << dtype;
    EXPECT_NEAR(got.logprobs[0].value, want.logprobs[0].value, error) << dtype;
    EXPECT_TRUE(unpacks(*engine));
    const auto copied = long_prompts(dtype, "true");
    EXPECT_FALSE(unpacks(*copied));
    const Result from_copy = copied->generate(r);
    EXPECT_EQ(from_copy.tokens[0], got.tokens[0]) << dtype;
    EXPECT_NEAR(from_copy.logprobs[0].value, got.logprobs[0].value, 1e-3) << dtype;
  }
}

// Returns how many ops of that name have a tensor of tiled rows (tenon/sdk/linked_rows.h), in all programs.
size_t ops_with_tiled_rows(const Engine& engine, const std::string& name) {
  size_t found = 0;
  for (const Program* program : engine.pipeline().programs()) {
    for (const ProgramOp& op : program->ops()) {
      const auto tiled = [&](const tenon_operand& o) { return sdk::is_tiled(program->tensor(o.tensor).view); };
      found += op.name == name && std::ranges::any_of(op.operands, tiled) ? 1 : 0;
    }
  }
  return found;
}

// On Hopper a step of so many sequences leaves rows as the next product multiplies them: after attention, after silu, and
// beside the residual for the norms.
TEST_F(CudaPipeline, ManySequencesPassHalvesBetweenAllProductsOfALayer) {
  for (const uint32_t sequences : {16u, 40u}) {
    std::vector<Request> requests(sequences, request(4));
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].tokens.resize(1 + i % 7);
      requests[i].tokens[0] = static_cast<int32_t>(3 + i * 5);
      requests[i].logprobs = true;
    }
    const auto engine = [&](const std::string& device, const std::string& scheme) {
      EngineOptions options{.config = "synthetic:llama-3.2-1b", .plugin_dirs = {plugins()}};
      options.sequences = sequences;
      options.set = {"device.use=" + device, "quantization.use=" + scheme, "scheduler.use=lockstep",
                     "model.layers=2",       "kv_cache.capacity=32",       "kv_cache.format=fp16",
                     "sampler.chain=[]",     "sampler.select=greedy"};
      return Engine::open(options);
    };
    for (const char* scheme : {"int8wo", "int4wo", "none"}) {
      SCOPED_TRACE(scheme + (" with " + std::to_string(sequences)) + " sequences");
      const auto gpu = engine("cuda", scheme);
      if (ops_with_tiled_rows(*gpu, "tile_gemm") != 0) {
        EXPECT_GE(ops_with_tiled_rows(*gpu, "attention"), 2U);
      }
      const std::vector<Result> got = gpu->generate(requests), want = engine("cpu", scheme)->generate(requests);
      for (uint32_t i = 0; i < sequences; ++i) {
        ASSERT_EQ(got[i].logprobs.size(), 4U);
        for (size_t t = 0; t < 4; ++t) {
          EXPECT_NEAR(got[i].logprobs[t].value, want[i].logprobs[t].value, 5e-2) << "sequence " << i << " token " << t;
          if (got[i].tokens[t] != want[i].tokens[t]) break;  // what follows has another beginning
        }
      }
    }
  }
}

TEST_F(CudaPipeline, AllocatesWhatThePlanSays) {
  const auto engine = open("tiny-gqa-untied", "cuda", kExact);
  EXPECT_EQ(engine->pipeline().high_water(), 0u);
  static_cast<void>(engine->generate(request()));
  EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
  EXPECT_EQ(engine->pipeline().allocated(), engine->pipeline().plan().resident());
}

}  // namespace
}  // namespace tenon
