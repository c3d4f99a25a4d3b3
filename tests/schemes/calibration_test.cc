// With texts, quantize_model() writes what follows from what the layers see, and that runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>

#include "llama_reference.h"
#include "schemes.h"
#include "support/weights_writer.h"
#include "tenon/core/tokenizer.h"
#include "weights/expect_error.h"

namespace tenon::test {
namespace {

using tenon::testing::bytes_of;
using tenon::testing::expect_error;
using tenon::testing::SafetensorsWriter;
using tenon::testing::ScratchFolder;

std::string without(const std::string& text, const std::string& end) {
  return text.substr(0, text.size() - end.size());
}

// Returns what the stored tensors of each matrix stand for, by the name that it had.
std::map<std::string, Rows> dequantized(const Weights& out) {
  std::map<std::string, Rows> all;
  for (const WeightTensor& t : out.tensors()) {
    if (!t.name.ends_with(".codes")) continue;
    const std::string stem = without(t.name, ".codes");
    const std::vector<double> row = rows_of(out, stem + ".row_scale")[0],
                              column = rows_of(out, stem + ".column_scale")[0];
    std::vector<int8_t> codes(t.bytes);
    out.read(t, 0, std::as_writable_bytes(std::span(codes)));
    Rows& w = all[stem + ".weight"];
    for (size_t r = 0; r < row.size(); ++r) {
      w.emplace_back();
      for (size_t i = 0; i < column.size(); ++i) w[r].push_back(codes[r * column.size() + i] * row[r] * column[i]);
    }
  }
  return all;
}

// Returns what `seen` makes of inputs.
std::vector<double> column_scales(const Rows& x) {
  std::vector<double> mean(x.front().size());
  for (const auto& row : x) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += std::abs(row[i]) / static_cast<double>(x.size());
  }
  double log_mean = 0;
  for (const double m : mean) log_mean += std::log(m) / static_cast<double>(mean.size());
  for (double& m : mean) m = std::exp(0.5 * (log_mean - std::log(m)));
  return mean;
}

// A layer sees what comes out of the layers before it as they are stored, and of its own matrices as they were.
TEST(Calibration, ShowsEachLayerWhatTheStoredOnesBeforeItGive) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  quantize_model(golden(kTiny), scratch.path() / "out", calibrated("seen", *registry));
  const auto source = open_weights(golden(kTiny)), out = open_weights((scratch.path() / "out").string());
  const std::vector<int32_t> tokens = make_tokenizer(*source)->encode(kText, {.add_special = false});
  const std::map<std::string, Rows> stored = dequantized(*out);
  ASSERT_EQ(stored.size(), 2U + 2 * 7);
  const auto expect_scales = [&](const std::string& tensor, const Rows& x) {
    const std::vector<double> scales = rows_of(*out, tensor + ".column_scale")[0], expected = column_scales(x);
    ASSERT_EQ(scales.size(), expected.size()) << tensor;
    for (size_t i = 0; i < scales.size(); ++i) EXPECT_NEAR(scales[i], expected[i], 1e-3 * expected[i]) << tensor << i;
  };
  std::map<std::string, Rows> before;
  before["model.embed_tokens.weight"] = stored.at("model.embed_tokens.weight");
  const Rows of_embedding = rows_of(*out, "model.embed_tokens.column_scale");
  for (const double scale : of_embedding[0]) EXPECT_EQ(scale, 1);  // it is not observed
  for (const char* layer : {"0", "1"}) {
    const auto inputs = LlamaReference(*source, before).inputs(tokens);
    const std::string path = std::string("layers.") + layer, name = "model." + path;
    expect_scales(name + ".self_attn.q_proj", inputs.at(path + ".attention.q"));
    expect_scales(name + ".self_attn.v_proj", inputs.at(path + ".attention.v"));
    expect_scales(name + ".self_attn.o_proj", inputs.at(path + ".attention.o"));
    expect_scales(name + ".mlp.up_proj", inputs.at(path + ".mlp.up"));
    expect_scales(name + ".mlp.down_proj", inputs.at(path + ".mlp.down"));
    for (const auto& [tensor, rows] : stored) {
      if (tensor.starts_with(name + ".")) before[tensor] = rows;
    }
  }
  expect_scales("lm_head", LlamaReference(*source, before).inputs(tokens).at("lm_head"));
}

// Writes the same model with every matrix as plain floats.
std::string plain_folder(const ScratchFolder& scratch, const Weights& out) {
  SafetensorsWriter writer;
  const std::map<std::string, Rows> stored = dequantized(out);
  for (const auto& [name, rows] : stored) {
    std::vector<float> w;
    for (const auto& row : rows) w.insert(w.end(), row.begin(), row.end());
    writer.tensor(name, "F32", {rows.size(), rows.front().size()}, bytes_of(w));
  }
  const auto source = open_weights(golden(kTiny));
  for (const WeightTensor& t : source->tensors()) {
    if (stored.contains(t.name)) continue;
    const std::vector<double> v = rows_of(*source, t.name)[0];
    writer.tensor(t.name, "F32", {v.size()}, bytes_of(std::vector<float>(v.begin(), v.end())));
  }
  std::filesystem::create_directory(scratch.path() / "plain");
  scratch.put("plain/model.safetensors", writer.bytes());
  for (const char* name : {"config.json", "tokenizer.json"}) {
    std::filesystem::copy_file(std::filesystem::path(golden(kTiny)) / name, scratch.path() / "plain" / name);
  }
  return scratch.path() / "plain";
}

TEST(Calibration, WritesAFolderThatRuns) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::string folder = scratch.path() / "out";
  quantize_model(golden(kTiny), folder, calibrated("seen", *registry));
  const std::string plain = plain_folder(scratch, *open_weights(folder));
  const auto run = [&](const std::string& model, const std::string& scheme) {
    EngineOptions options{.config = model, .set = kExact, .plugin_dirs = {TENON_SCHEME_TEST_PLUGINS, plugins()}};
    options.set.erase(options.set.begin(), options.set.begin() + 2);
    options.set.push_back("quantization.use=" + scheme);
    Request r = request();
    r.logprobs = true;
    return Engine::open(options)->generate(r);
  };
  const Result own = run(folder, "seen"), floats = run(plain, "seen");
  EXPECT_EQ(own.tokens, floats.tokens);
  ASSERT_EQ(own.logprobs.size(), floats.logprobs.size());
  for (size_t i = 0; i < own.logprobs.size(); ++i) {
    EXPECT_NEAR(own.logprobs[i].value, floats.logprobs[i].value, 1e-5) << "token " << i;
  }
}

// The largest x of the text becomes 448 times the scale. q, k and v have the same x.
TEST(Calibration, WritesAScaleOfX) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::string folder = scratch.path() / "out";
  const std::vector<QuantizeSetting> set = {{"scales", "tensor"}, {"activations", "static"}};
  quantize_model(golden(kTiny), folder, calibrated("fp8", *registry, set));
  const auto source = open_weights(golden(kTiny)), out = open_weights(folder);
  const auto inputs = LlamaReference(*source).inputs(make_tokenizer(*source)->encode(kText, {.add_special = false}));
  const auto expect_scale = [&](const std::string& matrix, const std::string& input) {
    double largest = 0;
    for (const auto& row : inputs.at(input)) {
      for (const double x : row) largest = std::max(largest, std::abs(x));
    }
    EXPECT_NEAR(rows_of(*out, "model.layers.0." + matrix + ".input_scale")[0][0], largest / 448, 1e-5 * largest / 448);
  };
  for (const char* name : {"q", "k", "v"}) {
    expect_scale(std::string("self_attn.") + name + "_proj", std::string("layers.0.attention.") + name);
  }
  expect_scale("self_attn.o_proj", "layers.0.attention.o");
  expect_scale("mlp.down_proj", "layers.0.mlp.down");
  // config.json says that x is rounded, and so it is.
  const auto first = [&](const std::string& activations) {
    EngineOptions options{.config = folder, .set = kExact, .plugin_dirs = {plugins()}};
    options.set.erase(options.set.begin(), options.set.begin() + 2);
    options.set.emplace_back("quantization.use=fp8");
    options.set.push_back("quantization.activations=" + activations);
    options.set.emplace_back(R"(quantization.override=[{match="lm_head", use="none", dtype="fp32"}])");
    Request r = request();
    r.logprobs = true;
    return Engine::open(options)->generate(r).logprobs.front().value;
  };
  EXPECT_EQ(first("auto"), first("static"));
  EXPECT_NE(first("f32"), first("static"));
  EXPECT_NEAR(first("f32"), first("static"), 0.5);

  expect_error(ErrorCode::kModel, {"activations = \"static\"", "--calibrate"}, [&] {
    quantize_model(golden(kTiny), scratch.path() / "blind", {.target = target("fp8", *registry, set)});
  });
  const QuantizeReport rows =
      quantize_model(golden(kTiny), scratch.path() / "rows",
                     {.target = target("fp8", *registry, {{"scales", "block"}, {"activations", "static"}})});
  const auto of_the_scales = [](const QuantizeException& e) {
    return e.reason.find("expected scales of a row or a tensor") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(rows.exceptions, of_the_scales), 2 * 7);
}

TEST(Calibration, RefusesASchemeThatDoesNotLook) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  expect_error(ErrorCode::kUsage, {"int8wo", "does not look at texts"},
               [&] { quantize_model(golden(kTiny), scratch.path() / "out", calibrated("int8wo", *registry)); });
  expect_error(ErrorCode::kUsage, {"fp8", "does not look at texts", "with these parameters"},
               [&] { quantize_model(golden(kTiny), scratch.path() / "out", calibrated("fp8", *registry)); });
  expect_error(ErrorCode::kUsage, {"Q8_0", "calibration"},
               [&] { quantize_model(golden(kTiny), scratch.path() / "out.gguf", calibrated("Q8_0", *registry)); });
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 0);
}

struct Stop {};

// Ends a run when the second layer is observed.
QuantizeOptions interrupted(const std::string& scheme, Registry& registry, const std::function<void()>& end) {
  QuantizeOptions options = calibrated(scheme, registry);
  options.progress = [end](const QuantizeProgress& p) {
    if (p.windows > 0 && p.name == "layers.1") end();
  };
  return options;
}

void stop() {
  throw Stop();
}

std::string bytes_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Calibration, EndsWithWhatProgressThrows) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  EXPECT_THROW(quantize_model(golden(kTiny), scratch.path() / "out", interrupted("seen", *registry, stop)), Stop);
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "out"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() / "out.calibrated"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 1);
}

// Every layer costs the run of itself alone, twice, however many are before it: what enters it is made by the one
// before, and then it is observed. The first rows are those of the embedding.
TEST(Calibration, RunsEachLayerTwice) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  QuantizeOptions options = calibrated("seen", *registry);
  options.calibration->context = 8;
  std::map<std::string, uint32_t> read, all;
  uint32_t windows = 0;
  options.progress = [&](const QuantizeProgress& p) {
    if (p.windows == 0) return;
    ++read[std::string(p.name)];
    all[std::string(p.name)] = p.windows;
    windows = p.windows / 2;
  };
  quantize_model(golden(kTiny), scratch.path() / "out", options);
  ASSERT_GT(windows, 1U);
  EXPECT_EQ(read, (std::map<std::string, uint32_t>{
                      {"layers.0", 2 * windows}, {"layers.1", 2 * windows}, {"lm_head", 2 * windows}}));
  EXPECT_EQ(read, all);
}

// A run ends while it observes the second layer, whose rows are kept. If they are damaged afterwards, as by a power
// cut, they are made anew, from the first on.
TEST(Calibration, MakesRowsAnewThatAreNotWhole) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::filesystem::path out = scratch.path() / "out", rows = scratch.path() / "out.calibrated/rows-1";
  QuantizeOptions options = calibrated("gptq", *registry);
  const auto stop_at = [&](uint32_t window) {
    options.progress = [window](const QuantizeProgress& p) {
      if (p.windows > 0 && p.name == "layers.1" && p.window == window) stop();
    };
    EXPECT_THROW(quantize_model(golden(kTiny), out, options), Stop);
  };
  stop_at(2);  // the text is one window: the first layer has run as it is stored
  ASSERT_TRUE(std::filesystem::exists(rows));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "out.calibrated/rows-0"));
  uint32_t windows = 0;
  const auto count = [&](const QuantizeProgress& p) {
    if (p.name == "layers.1") windows = std::max(windows, p.windows);
  };
  options.progress = count;
  quantize_model(golden(kTiny), scratch.path() / "whole", options);
  EXPECT_EQ(windows, 2U);
  std::fstream(rows, std::ios::binary | std::ios::in | std::ios::out).seekp(256).put('\x55').put('\x55');
  windows = 0;
  options.progress = count;
  quantize_model(golden(kTiny), out, options);
  EXPECT_EQ(windows, 3U);  // these are the embedding, the first layer, the second
  EXPECT_EQ(bytes_of_file(out / "model.safetensors"), bytes_of_file(scratch.path() / "whole/model.safetensors"));
}

class Resumed : public ::testing::TestWithParam<const char*> {};

// A process is killed while it observes the second layer. The next one observes that layer first, and writes the same.
TEST_P(Resumed, GoesOnFromTheLayersThatAreStored) {
  const ScratchFolder scratch;
  const pid_t child = fork();
  if (child == 0) {
    const auto registry = schemes();
    quantize_model(golden(kTiny), scratch.path() / "out",
                   interrupted(GetParam(), *registry, [] { ::kill(::getpid(), SIGKILL); }));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "out"));
  const auto registry = schemes();
  QuantizeOptions options = calibrated(GetParam(), *registry);
  std::vector<std::string> observed;
  options.progress = [&](const QuantizeProgress& p) {
    if (p.windows > 0) observed.emplace_back(p.name);
  };
  const QuantizeReport whole = quantize_model(golden(kTiny), scratch.path() / "whole", options);
  EXPECT_EQ(observed.front(), "layers.0");
  observed.clear();
  const QuantizeReport resumed = quantize_model(golden(kTiny), scratch.path() / "out", options);
  EXPECT_EQ(observed.front(), "layers.1");
  EXPECT_EQ(whole.resumed, 0U);
  EXPECT_GT(resumed.resumed, 0U);
  EXPECT_EQ(bytes_of_file(scratch.path() / "out/model.safetensors"),
            bytes_of_file(scratch.path() / "whole/model.safetensors"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.path()), {}), 2);
}

INSTANTIATE_TEST_SUITE_P(Schemes, Resumed, ::testing::Values("seen", "gptq", "folds"));

TEST(Calibration, RefusesLayersOfAnotherCall) {
  const ScratchFolder scratch;
  const auto registry = schemes();
  const std::filesystem::path out = scratch.path() / "out";
  EXPECT_THROW(quantize_model(golden(kTiny), out, interrupted("gptq", *registry, stop)), Stop);
  QuantizeOptions other = calibrated("gptq", *registry);
  other.calibration->text += " And more.";
  expect_error(ErrorCode::kUsage, {"out.calibrated", "windows of 256 tokens", "remove the folder"},
               [&] { quantize_model(golden(kTiny), out, other); });
  other = calibrated("gptq", *registry);
  other.target = target("gptq", *registry, {{"bits", "8"}});
  expect_error(ErrorCode::kUsage, {"gptq.bits = 4", "gptq.bits = 8"},
               [&] { quantize_model(golden(kTiny), out, other); });
  std::filesystem::resize_file(scratch.path() / "out.calibrated/layer-0", 100);
  expect_error(ErrorCode::kIo, {"layer-0", "has 100 bytes"},
               [&] { quantize_model(golden(kTiny), out, calibrated("gptq", *registry)); });
}

}  // namespace
}  // namespace tenon::test
