// Calibrations see of each expert the rows that went to it, and write an expert that nothing went to as without a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "llama_reference.h"
#include "mixture.h"
#include "pipeline/read_text.h"
#include "quantization/calibrated/moments.h"
#include "quantize/model_listing.h"
#include "support/spoilt_model.h"
#include "tenon/core/tokenizer.h"
#include "tenon/sdk/convert.h"
#include "weights/expect_error.h"

namespace tenon::test {
namespace {

using tenon::testing::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kLongText =
    "The other bird sat on the wall and saw the other bird. One day the wall was gone. Where do 17 quick foxes go when "
    "it rains? They jump over a lazy dog, 5 times (or 6), and sleep until noon; nobody knows why, but everybody asks.";

std::vector<int32_t> tokens_of(const Weights& weights) {
  return make_tokenizer(weights)->encode(kLongText, {.add_special = false});
}

// Names all experts' matrices.
std::vector<std::string> expert_names() {
  std::vector<std::string> names;
  for (const int layer : {0, 1}) {
    for (uint64_t e = 0; e < kMixtureExperts; ++e) {
      for (const char* m : {"w1", "w2", "w3"}) names.push_back(expert_name(layer, e, m));
    }
  }
  return names;
}
bool is_last(const std::string& name) {
  return name.find("experts." + std::to_string(kMixtureExperts - 1) + ".") != std::string::npos;
}

class Experts : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = write_mixture(scratch_.path() / "model");
    weights_ = open_weights(folder_);
    registry_ = schemes();
  }
  void expect_moments(const std::vector<std::string>& settings, double tolerance) const;
  // Writes the model by a scheme in groups of 32.
  QuantizeReport write(const std::string& scheme, const std::string& out, bool with_text,
                       std::vector<QuantizeSetting> settings = {}) {
    settings.push_back({"group_size", "32"});
    QuantizeOptions options = calibrated(scheme, *registry_, settings);
    options.calibration->text = kLongText;
    if (!with_text) options.calibration.reset();
    return quantize_model(folder_, scratch_.path() / out, options);
  }

  double error_of_logits(const std::string& out) const;

  ScratchFolder scratch_;
  std::string folder_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Registry> registry_;
};

// Steps have 96 tokens and so 192 rows of experts, of which one expert has more than a chunk gathers at a time; the
// last step has rows that are not live. `tolerance` is that of a sum, by the sum of its terms' sizes.
void Experts::expect_moments(const std::vector<std::string>& settings, double tolerance) const {
  RegistrySchemas known(*registry_);
  const PipelineConfig config = resolve(load_config(folder_, with(settings, {"kv_cache.capacity=512"})), known);
  ParamValues defaults(known.schema("quantization", "gptq", "cpu"));
  PipelineOptions options;
  options.prefill_rows = options.score_rows = 96;
  options.observers = {{{"quantization", "gptq", {}, std::move(defaults)}, {}}};
  const auto matrices = matrices_of(ModelListing(*weights_, {}));
  for (const std::string& name : expert_names()) options.observers[0].matrices.push_back(matrices.at(name).path);
  const auto pipeline = Pipeline::build(config, *registry_, *weights_, options);
  pipeline->load();
  const std::vector<int32_t> tokens = tokens_of(*weights_);
  read_text(*pipeline, tokens, {.first = 0, .rows_a_step = 96}, {});
  const auto inputs = LlamaReference(*weights_).inputs(tokens);
  for (const std::string& name : expert_names()) {
    const ModelMatrix& m = matrices.at(name);
    const auto columns = static_cast<uint32_t>(m.columns);
    const std::vector<std::byte> state = pipeline->observed(m.path, m.expert.value());
    ASSERT_EQ(state.size(), calibrated::moments_bytes(columns)) << name;
    const calibrated::Moments moments(state.data(), columns);
    const auto found = inputs.find(name);
    const Rows x = found == inputs.end() ? Rows() : found->second;
    EXPECT_EQ(x.empty(), is_last(name)) << name;
    ASSERT_EQ(moments.rows(), static_cast<double>(x.size())) << name;
    for (uint32_t i = 0; i < columns; ++i) {
      double magnitude = 0;
      for (const auto& row : x) magnitude += std::abs(row[i]);
      ASSERT_NEAR(moments.magnitude(i), magnitude, tolerance * (1 + magnitude)) << name << ", column " << i;
      for (uint32_t j = 0; j < columns; ++j) {
        double sum = 0, size = 1;
        for (const auto& row : x) {
          sum += row[i] * row[j];
          size += std::abs(row[i] * row[j]);
        }
        ASSERT_NEAR(moments.product(i, j), sum, tolerance * size) << name << ", columns " << i << " and " << j;
      }
    }
  }
}

TEST_F(Experts, HaveTheMomentsOfTheirRows) {
  expect_moments(kExact, 1e-4);
}

// x itself is less exact there.
TEST_F(Experts, HaveTheMomentsOfTheirRowsOnAGpu) {
  if (const std::string missing = no_gpu(); !missing.empty()) GTEST_SKIP() << missing;
  expect_moments(with(kExact, {"device.use=cuda"}), 5e-3);
}

std::vector<std::byte> bytes_of(const Weights& weights, const std::string& name) {
  std::vector<std::byte> bytes(weights.find(name)->bytes);
  weights.read(*weights.find(name), 0, bytes);
  return bytes;
}
template <class T>
std::vector<T> numbers_of(const Weights& weights, const std::string& name) {
  const std::vector<std::byte> bytes = bytes_of(weights, name);
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

// Returns a matrix of 4 bits in groups of 32 of GPTQ's or AWQ's form.
Rows dequantized(const Weights& out, const std::string& name, size_t rows, size_t columns, bool awq) {
  constexpr size_t kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};  // where AWQ has row r % 8 in a word
  const auto words = numbers_of<uint32_t>(out, name + ".qweight"), zeros = numbers_of<uint32_t>(out, name + ".qzeros");
  const auto scales = numbers_of<uint16_t>(out, name + ".scales");
  Rows w(rows, std::vector<double>(columns));
  for (size_t r = 0; r < rows; ++r) {
    const size_t word = r / 8, shift = 4 * (awq ? kPlaces[r % 8] : r % 8);
    for (size_t i = 0; i < columns; ++i) {
      const uint32_t code = (awq ? words[i * rows / 8 + word] >> shift : words[i / 8 * rows + r] >> (i % 8 * 4)) & 15;
      const uint32_t zero = ((zeros[i / 32 * rows / 8 + word] >> shift) & 15) + (awq ? 0 : 1);
      w[r][i] = double{sdk::half_to_float(scales[i / 32 * rows + r])} * (double(code) - double(zero));
    }
  }
  return w;
}

// Returns what AWQ has multiplied the columns of w1 and w3 of the layer's experts by: it has divided the norm, of ones.
std::vector<double> factors_of_layer(const Weights& out, const std::string& expert) {
  const std::string layer = expert.substr(0, expert.find("block_sparse_moe"));
  std::vector<double> factors;
  for (const float divided : numbers_of<float>(out, layer + "post_attention_layernorm.weight")) {
    factors.push_back(1 / double{divided});
  }
  return factors;
}

Rows with_columns(Rows w, const std::vector<double>& factors) {
  for (auto& row : w) {
    for (size_t i = 0; i < row.size(); ++i) row[i] *= factors[i];
  }
  return w;
}

// Returns what AWQ has divided the rows of an expert's w3 by: a row's is told by the multiple of the stored one that
// comes nearest to the row as it was. The expert's name ends with a dot.
std::vector<double> factors_of(const Weights& out, const Weights& model, const std::string& expert) {
  const Rows up = with_columns(rows_of(model, expert + "w3.weight"), factors_of_layer(out, expert));
  const Rows divided = dequantized(out, expert + "w3", up.size(), up[0].size(), true);
  std::vector<double> factors;
  for (size_t f = 0; f < up.size(); ++f) {
    double both = 0, square = 0;
    for (size_t i = 0; i < up[f].size(); ++i) {
      both += up[f][i] * divided[f][i];
      square += divided[f][i] * divided[f][i];
    }
    factors.push_back(both / square);
  }
  return factors;
}
// Takes all factors out of a stored matrix; the columns of w2 have been multiplied by those that w3 is divided by.
Rows without_factors(const Weights& out, const Weights& model, const std::string& name, Rows stored) {
  const std::string expert = name.substr(0, name.size() - 2);
  const std::vector<double> of_w2 = factors_of(out, model, expert), of_layer = factors_of_layer(out, expert);
  for (size_t r = 0; r < stored.size(); ++r) {
    for (size_t i = 0; i < stored[r].size(); ++i) {
      stored[r][i] *= name == expert + "w3" ? of_w2[r] : 1;
      stored[r][i] /= name == expert + "w2" ? of_w2[i] : of_layer[i];
    }
  }
  return stored;
}

// Expects that every weight is the nearest that its group has, of 4 bits in groups of 32.
void expect_nearest(const Weights& out, const std::string& name, const Rows& w) {
  const Rows stored = dequantized(out, name, w.size(), w[0].size(), true);
  const auto scales = numbers_of<uint16_t>(out, name + ".scales");
  for (size_t r = 0; r < w.size(); ++r) {
    for (size_t i = 0; i < w[r].size(); ++i) {
      const double step = sdk::half_to_float(scales[i / 32 * w.size() + r]);
      ASSERT_NEAR(stored[r][i], w[r][i], 0.51 * step) << name << ": row " << r << ", column " << i;
    }
  }
}

// Returns the sum of squared errors of the products with x.
double error_of(const Rows& stored, const Rows& w, const Rows& x) {
  double error = 0;
  for (const auto& row : x) {
    for (size_t r = 0; r < w.size(); ++r) {
      double sum = 0;
      for (size_t i = 0; i < row.size(); ++i) sum += (stored[r][i] - w[r][i]) * row[i];
      error += sum * sum;
    }
  }
  return error;
}

class CalibratedExperts : public Experts, public ::testing::WithParamInterface<std::pair<std::string, double>> {};

// The first layer sees what the model itself gives it. An expert's matrices come nearer to their products than by
// rounding, over the rows of that expert; the one without rows is as without a text, but for the factors that AWQ finds
// for the columns of all experts' w1 and w3.
TEST_P(CalibratedExperts, LoseLessOnTheirOwnRows) {
  const auto& [scheme, bound] = GetParam();
  const QuantizeReport report = write(scheme, "seen", true);
  EXPECT_TRUE(write(scheme, "blind", false).unseen.empty());
  std::set<std::string> unseen;
  for (const std::string& name : expert_names()) {
    if (is_last(name)) unseen.insert(name + ".weight");
  }
  EXPECT_EQ(std::set<std::string>(report.unseen.begin(), report.unseen.end()), unseen);
  const auto seen = open_weights((scratch_.path() / "seen").string());
  const auto blind = open_weights((scratch_.path() / "blind").string());
  const auto inputs = LlamaReference(*weights_).inputs(tokens_of(*weights_));
  for (const std::string& name : expert_names()) {
    for (const uint16_t scale : numbers_of<uint16_t>(*seen, name + ".scales")) {
      ASSERT_TRUE(std::isfinite(sdk::half_to_float(scale))) << name;
    }
    if (is_last(name) && scheme == "awq" && !name.ends_with("w2")) {
      expect_nearest(*seen, name, with_columns(rows_of(*weights_, name + ".weight"), factors_of_layer(*seen, name)));
    } else if (is_last(name)) {
      for (const char* t : {".qweight", ".qzeros", ".scales"}) {
        EXPECT_EQ(bytes_of(*seen, name + t), bytes_of(*blind, name + t)) << name << t;
      }
    } else if (name.starts_with("model.layers.0.")) {
      const Rows w = rows_of(*weights_, name + ".weight");
      const auto error = [&](const Weights& out) {
        const bool awq = scheme == "awq";
        const Rows stored = dequantized(out, name, w.size(), w[0].size(), awq);
        return error_of(awq ? without_factors(out, *weights_, name, stored) : stored, w, inputs.at(name));
      };
      EXPECT_LT(error(*seen), bound * error(*blind)) << name;
    }
  }
}

// A router is stored in f16, unless it is named.
TEST_F(Experts, AreChosenByRoutersAsTheyWere) {
  const std::string router = "model.layers.1.block_sparse_moe.gate.weight", expert = expert_name(1, 0, "w1");
  const auto written = [&](const char* to, const std::string& out,
                           const std::vector<QuantizeOverride>& overrides = {}) {
    QuantizeOptions options{.target = target(to, *registry_), .overrides = overrides};
    QuantizeReport report = quantize_model(folder_, scratch_.path() / out, options);
    return std::pair(open_weights((scratch_.path() / out).string()), report.exceptions.size());
  };
  const auto [uintx, of_uintx] = written("uintx", "uintx");
  EXPECT_EQ(of_uintx, 2U);
  ASSERT_NE(uintx->find(router), nullptr);
  EXPECT_EQ(uintx->find(router)->format, TENON_F16);
  EXPECT_EQ(uintx->find(expert + ".weight")->format, TENON_U8);
  const auto [blocks, of_blocks] = written("Q8_0", "blocks.gguf");
  EXPECT_EQ(of_blocks, 2U);
  EXPECT_EQ(blocks->find("blk.1.ffn_gate_inp.weight")->format, TENON_F16);
  EXPECT_EQ(blocks->find("blk.1.ffn_down_exps.weight")->format, TENON_Q8_0);
  const auto [named, of_named] = written("Q8_0", "named.gguf", {{"*.ffn_gate_inp.weight", target("Q4_0", *registry_)}});
  EXPECT_EQ(of_named, 0U);
  EXPECT_EQ(named->find("blk.1.ffn_gate_inp.weight")->format, TENON_Q4_0);
  const auto [gptq, of_gptq] = written("gptq", "gptq");
  EXPECT_EQ(gptq->find(router)->format, TENON_F16);
  EXPECT_EQ(gptq->find(expert + ".qweight")->format, TENON_I32);
}

// A router stays as the file has it in a pipeline, too, unless it is named. The plan of memory has what is taken.
TEST_F(Experts, AreChosenByRoutersAsTheFileHasThem) {
  const auto routers = [&](const std::string& setting) {
    const Settings set = {"quantization.use=int4wo", "kv_cache.capacity=64", setting};
    const auto engine = Engine::open({.config = folder_, .set = set, .plugin_dirs = {plugins()}});
    engine->load();
    EXPECT_EQ(engine->pipeline().allocated(), engine->pipeline().plan().resident());
    EXPECT_EQ(engine->pipeline().high_water(), engine->pipeline().plan().peak());
    std::vector<std::string> found;
    for (const Decision& d : engine->pipeline().decisions()) {
      if (d.path.ends_with(".router")) found.push_back(d.text);
      if (d.path.ends_with(".down")) {
        EXPECT_THAT(d.text, StartsWith("quantization.int4wo from f32"));
      }
    }
    return found;
  };
  EXPECT_THAT(routers("sampler.chain=[]"),
              ElementsAre(HasSubstr("from f32, in place, a router, which stays as the file has it")));
  EXPECT_THAT(
      routers("quantization.override=[{match = \"layers.*.experts.router\", use = \"int4wo\", group_size = 32}]"),
      ElementsAre(StartsWith("quantization.int4wo from f32")));
}

// Readers that would look for packed tensors are told where there are none.
TEST_F(Experts, HaveTheirRoutersNamedWhereAFormHasAList) {
  const auto names = [&](const std::string& scheme, const QuantizeSetting& set, const char* list) {
    QuantizeOptions options{.target = target(scheme, *registry_, {set})};
    const std::filesystem::path out = scratch_.path() / (scheme + list);
    quantize_model(folder_, out, options);
    std::vector<std::string> found;
    const boost::json::object config = config_of(out);
    for (const auto& name : config.at("quantization_config").at(list).as_array()) found.emplace_back(name.as_string());
    return found;
  };
  const auto expected = ::testing::UnorderedElementsAre("lm_head", "model.layers.0.block_sparse_moe.gate",
                                                        "model.layers.1.block_sparse_moe.gate");
  EXPECT_THAT(names("awq", {"group_size", "32"}, "modules_to_not_convert"), expected);
  EXPECT_THAT(names("fp8", {"scales", "block"}, "modules_to_not_convert"), expected);
  EXPECT_THAT(names("fp8", {"scales", "tensor"}, "ignore"), expected);
}

// The columns of w2 have factors of each expert, but for the one without rows.
TEST_F(Experts, HaveFactorsOfTheirOwn) {
  write("awq", "seen", true);
  const auto out = open_weights((scratch_.path() / "seen").string());
  std::set<std::vector<double>> found;
  for (uint64_t e = 0; e < kMixtureExperts; ++e) {
    const std::vector<double> factors = factors_of(*out, *weights_, expert_name(0, e, ""));
    const auto [least, greatest] = std::minmax_element(factors.begin(), factors.end());
    if (e + 1 < kMixtureExperts) {
      EXPECT_GT(*greatest, 1.3 * *least) << e;
    } else {
      EXPECT_LT(*greatest, 1.1 * *least) << e;
    }
    found.insert(factors);
  }
  EXPECT_EQ(found.size(), kMixtureExperts);
}

// All experts' w1 and w3 share factors, and the router takes what it took.
TEST_F(Experts, ShareFactorsWithTheirRouter) {
  write("awq", "seen", true);
  const auto out = open_weights((scratch_.path() / "seen").string());
  const std::vector<double> factors = factors_of_layer(*out, expert_name(0, 0, ""));
  const auto [least, greatest] = std::minmax_element(factors.begin(), factors.end());
  EXPECT_GT(*greatest, 1.3 * *least);
  const std::string router = "model.layers.0.block_sparse_moe.gate.weight";
  ASSERT_EQ(out->find(router)->format, TENON_F32);
  const Rows before = with_columns(rows_of(*weights_, router), factors), after = rows_of(*out, router);
  for (size_t e = 0; e < before.size(); ++e) {
    for (size_t i = 0; i < factors.size(); ++i) {
      EXPECT_NEAR(after[e][i], before[e][i], 1e-6 * std::abs(before[e][i])) << e << ", " << i;
    }
  }
}

// Returns the sum of squares by which the text's logits differ from those of the model itself.
double Experts::error_of_logits(const std::string& out) const {
  const std::vector<int32_t> tokens = tokens_of(*weights_);
  const auto logits = [&](const std::string& model, const Settings& more) {
    Settings set = {"kv_cache.format=fp32", "kv_cache.capacity=512", "sampler.chain=[]", "sampler.select=greedy"};
    const auto engine = Engine::open(
        {.config = scratch_.path() / model, .set = with(set, more), .plugin_dirs = {plugins()}, .score_rows = 64});
    std::vector<float> all;
    engine->score(tokens, 0,
                  [&](uint32_t, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
    return all;
  };
  const std::vector<float> exact = logits("model", {"quantization.use=none", "quantization.dtype=fp32"});
  const std::vector<float> found = logits(out, {"quantization.use=auto"});
  double sum = 0;
  for (size_t i = 0; i < exact.size(); ++i) sum += std::pow(double{found[i]} - exact[i], 2);
  return sum;
}

TEST_P(CalibratedExperts, RunNearerToTheModel) {
  const std::string& scheme = GetParam().first;
  write(scheme, "seen", true);
  write(scheme, "blind", false);
  const double seen = error_of_logits("seen");
  EXPECT_TRUE(std::isfinite(seen));
  EXPECT_LT(seen, error_of_logits("blind"));
}

// An error names the tensor of the expert that is damaged.
TEST_F(Experts, AreNamedWhereTheirTensorsAreDamaged) {
  write("gptq", "damaged", false);
  const std::string name = expert_name(1, 2, "w3");
  SpoiltModel model(scratch_.path() / "damaged");
  model.set(name + ".scales", 5, NAN);
  const Settings set = {"quantization.use=auto", "kv_cache.capacity=64"};
  testing::expect_error(
      ErrorCode::kPlugin,
      {(model.path() / "model.safetensors").string() + ": error: quantization.gptq: load " + name,
       "\"" + name + ".scales\": number 5"},
      [&] { Engine::open({.config = model.path(), .set = set, .plugin_dirs = {plugins()}})->load(); });
}

// The error names the tensor that has the weight, and not what came of it, whether the scheme takes the tensor or not.
TEST_F(Experts, AreNamedWhereWeightsAreNotFiniteInACalibration) {
  int number = 0;
  const auto expect_named = [&](const std::string& scheme, const std::string& tensor,
                                const std::vector<QuantizeOverride>& overrides) {
    SCOPED_TRACE(scheme + ", " + tensor);
    SpoiltModel model(folder_);
    model.set(tensor, 100, NAN);
    QuantizeOptions options = calibrated(scheme, *registry_);
    options.calibration->text = kLongText;
    options.overrides = overrides;
    testing::expect_error(
        ErrorCode::kModel,
        {(model.path() / "model.safetensors").string(), "tensor \"" + tensor + "\": weight 100", "is NaN"},
        [&] { quantize_model(model.path().string(), scratch_.path() / std::to_string(number++), options); });
  };
  for (const char* scheme : {"gptq", "awq"}) {
    for (const char* matrix : {"w1", "w2", "w3"}) expect_named(scheme, expert_name(0, 1, matrix) + ".weight", {});
    expect_named(scheme, expert_name(0, 1, "w3") + ".weight", {{"*.w3.weight", target("F16", *registry_)}});
    expect_named(scheme, "model.layers.0.block_sparse_moe.gate.weight", {});
    expect_named(scheme, "model.layers.0.post_attention_layernorm.weight", {});
  }
}

// Each expert has an order of its own, by the rows that came to it.
TEST_F(Experts, RunWithColumnsInAnotherOrder) {
  write("gptq", "ordered", true, {{"act_order", "true"}});
  write("gptq", "blind", false);
  const auto out = open_weights((scratch_.path() / "ordered").string());
  const auto groups = [&](uint64_t e) { return numbers_of<int32_t>(*out, expert_name(0, e, "w1") + ".g_idx"); };
  EXPECT_NE(groups(0), groups(1));
  EXPECT_LT(error_of_logits("ordered"), 0.2 * error_of_logits("blind"));
}

INSTANTIATE_TEST_SUITE_P(Schemes, CalibratedExperts,
                         ::testing::Values(std::pair<std::string, double>("gptq", 0.7),
                                           std::pair<std::string, double>("awq", 0.75)));

}  // namespace
}  // namespace tenon::test
