// Tenon runs beside transformers, one field of a tiny model's description varied at a time: the logits are the same, or
// the model is refused by an error that names the field. README.md says how the cases were made.
//
// Each case has a verdict that is kept with it, so that one that changes is noticed as well:
//   equal         both run, and their logits are the same
//   same          as equal, but the field changes nothing in either
//   refused       an error names the field or the tensor; transformers runs
//   refused both  as refused, and transformers refuses as well
//   ignored       transformers refuses, or nothing says what it should be; Tenon runs as if the field were not there
//   not finite    the logits of neither are finite
//   alone         transformers refuses and Tenon runs; README.md lists these and says why
// Everything else fails: other logits, and errors that name neither.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "core/model/family/family_config.h"
#include "made_weights.h"
#include "support/pipelines.h"
#include "support/weights_writer.h"

namespace tenon::differential {
namespace {

namespace json = boost::json;

// The prompts are ids; a folder has to have a tokenizer all the same.
constexpr char kTokenizer[] =
    R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "decoder": {"type": "Fuse"}})";

// This is a share of the largest logit. Tenon and transformers are at most 4e-6 apart; the least that a field moves is
// 4e-5.
constexpr double kTolerance = 2e-5;
constexpr char kNotFinite[] = "its logits are not finite";

const std::filesystem::path kData = test::root() / "tests/differential/data";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Case {
  std::string base, field;
  json::value set;
  json::array drop;
  size_t shapes = 0;
  int64_t reference = 0;  // it is an output, or below 0 an error
  std::string verdict;

  std::string name() const {
    std::string text = base + " " + json::serialize(set);
    if (!drop.empty()) text += " without " + json::serialize(drop);
    if (shapes > 1) text += ", weights " + std::to_string(shapes);
    return text;
  }
};

// Transformers gives these for both prompts: the rows in the middle and at the end of each.
struct Output {
  size_t at = 0, vocab = 0;
};

class Cases {
 public:
  Cases() {
    const char* other = std::getenv("TENON_DIFFERENTIAL_CASES");
    const std::filesystem::path folder = other != nullptr ? std::filesystem::path(other) : kData;
    root_ = json::parse(read_file(folder / "cases.json"));
    const std::string bytes = read_file(folder / "logits.f32");
    logits_.resize(bytes.size() / sizeof(float));
    std::memcpy(logits_.data(), bytes.data(), logits_.size() * sizeof(float));
    for (const json::value& v : root_.at("cases").as_array()) {
      const json::array& c = v.as_array();
      cases_.push_back({std::string(c.at(0).as_string()), std::string(c.at(1).as_string()), c.at(2), c.at(3).as_array(),
                        static_cast<size_t>(c.at(4).as_int64()), c.at(5).as_int64(),
                        c.size() > 6 ? std::string(c.at(6).as_string()) : ""});
    }
  }
  const std::vector<Case>& all() const { return cases_; }
  std::vector<std::pair<std::string, std::vector<int32_t>>> prompts() const {
    std::vector<std::pair<std::string, std::vector<int32_t>>> list;
    for (const auto& [name, ids] : root_.at("prompts").as_object()) {
      list.emplace_back(name, json::value_to<std::vector<int32_t>>(ids));
    }
    return list;
  }
  std::string config(const Case& c) const {
    if (c.set.is_string()) return std::string(c.set.as_string());
    json::object config = root_.at("bases").at(c.base).as_object();
    for (const json::value& key : c.drop) config.erase(key.as_string());
    for (const auto& [key, value] : c.set.as_object()) config[key] = value;
    return json::serialize(config);
  }
  // Writes a GGUF file of the weights of the Llama.
  std::string gguf(const Case& c) const {
    json::object keys = root_.at("bases").at("gguf").as_object();
    for (const json::value& key : c.drop) keys.erase(key.as_string());
    for (const auto& [key, value] : c.set.as_object()) keys[key] = value;
    testing::GgufWriter writer;
    for (const auto& [key, value] : keys) add(writer, key, value.at(0).as_string(), value.at(1));
    const family::Family llama = family::read_family(test::root() / "configs/models/llama.toml");
    for (const std::string& part : family::tensor_paths(llama, 2)) {
      const std::string name = family::tensor_name(llama, "huggingface", part);
      std::vector<int64_t> shape = shape_of(name, c.shapes);
      std::vector<float> values = made_tensor(name, shape);
      if (part.ends_with("attention.q") || part.ends_with("attention.k")) values = in_pairs(values, shape.at(1));
      writer.tensor(family::tensor_name(llama, "gguf", part), 0, {shape.begin(), shape.end()},
                    testing::bytes_of(values));
    }
    return writer.bytes();
  }
  const std::string& weights(const Case& c) const {
    std::string& bytes = files_[c.shapes];
    if (!bytes.empty()) return bytes;
    testing::SafetensorsWriter writer;
    for (const json::value& v : root_.at("shapes").at(c.shapes).as_array()) {
      const std::string name(v.at(0).as_string());
      const auto shape = json::value_to<std::vector<int64_t>>(v.at(1));
      writer.tensor(name, "F32", {shape.begin(), shape.end()}, testing::bytes_of(made_tensor(name, shape)));
    }
    return bytes = writer.bytes();
  }
  std::span<const float> logits(int64_t output) const {
    const json::value& o = root_.at("outputs").at(static_cast<size_t>(output));
    return std::span(logits_).subspan(json::value_to<size_t>(o.at(0)), 4 * json::value_to<size_t>(o.at(1)));
  }
  std::string error(int64_t reference) const {
    return std::string(root_.at("errors").at(static_cast<size_t>(-1 - reference)).as_string());
  }
  int64_t unchanged(const std::string& base) const { return root_.at("unchanged").at(base).as_int64(); }

 private:
  static constexpr size_t kHeadDim = 16;

  static void add(testing::GgufWriter& writer, std::string_view key, std::string_view type, const json::value& v) {
    if (type == "u32") writer.add(key, json::value_to<uint32_t>(v));
    if (type == "i32") writer.add(key, json::value_to<int32_t>(v));
    if (type == "u64") writer.add(key, json::value_to<uint64_t>(v));
    if (type == "f32") writer.add(key, real(v));
    if (type == "bool") writer.add(key, v.as_bool());
    if (type == "str") writer.add(key, std::string_view(v.as_string()));
    if (type == "i32s") writer.add(key, json::value_to<std::vector<int32_t>>(v));
    if (type == "strs") writer.add(key, json::value_to<std::vector<std::string>>(v));
    if (type != "f32s" && type != "tensor") return;
    std::vector<float> values;
    for (const json::value& each : v.as_array()) values.push_back(real(each));
    if (type == "f32s") writer.add(key, values);
    if (type == "tensor") writer.tensor(key, 0, {values.size()}, testing::bytes_of(values));
  }
  // JSON has no words for what is not finite, so cases.json has texts there.
  static float real(const json::value& v) {
    return v.is_string() ? std::strtof(v.as_string().c_str(), nullptr) : v.to_number<float>();
  }
  // Returns the rows of each head, (i, i + head_dim / 2) side by side.
  static std::vector<float> in_pairs(const std::vector<float>& values, int64_t columns) {
    const auto width = static_cast<size_t>(columns);
    std::vector<float> result;
    for (size_t row = 0; row < values.size() / width; ++row) {
      const size_t in_head = row % kHeadDim, from = row - in_head + in_head / 2 + in_head % 2 * (kHeadDim / 2);
      result.insert(result.end(), values.begin() + static_cast<ptrdiff_t>(from * width),
                    values.begin() + static_cast<ptrdiff_t>((from + 1) * width));
    }
    return result;
  }
  std::vector<int64_t> shape_of(const std::string& name, size_t shapes) const {
    for (const json::value& v : root_.at("shapes").at(shapes).as_array()) {
      if (v.at(0).as_string() == name) return json::value_to<std::vector<int64_t>>(v.at(1));
    }
    throw std::invalid_argument(name);
  }

  json::value root_;
  std::vector<float> logits_;
  std::vector<Case> cases_;
  mutable std::map<size_t, std::string> files_;
};

const Cases& cases() {
  static const Cases kCases;
  return kCases;
}

std::unique_ptr<Engine> open(const std::filesystem::path& model, size_t capacity) {
  EngineOptions options;
  options.config = model.string();
  options.set = {"device.use=cpu",
                 "device.threads=1",
                 "quantization.use=none",
                 "quantization.dtype=fp32",
                 "kv_cache.format=fp32",
                 "sampler.chain=[]",
                 "sampler.select=greedy",
                 "kv_cache.capacity=" + std::to_string(capacity),
                 "model.context=" + std::to_string(capacity)};
  options.plugin_dirs = {test::plugins()};
  options.score_rows = 64;
  return Engine::open(options);
}

std::vector<float> run(const std::filesystem::path& model, const std::vector<int32_t>& prompt) {
  const auto engine = open(model, prompt.size());
  std::vector<float> rows;
  const std::span scored(prompt.data(), prompt.size() - 1);  // the cache has room for one token more
  engine->score(scored, 0, [&](uint32_t row, std::span<const float> logits) {
    if (row == prompt.size() / 2 || row + 1 == scored.size()) rows.insert(rows.end(), logits.begin(), logits.end());
  });
  return rows;
}

double distance(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return INFINITY;
  double worst = 0, peak = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double want = static_cast<double>(expected[i]), difference = std::abs(static_cast<double>(found[i]) - want);
    if (!(difference <= worst)) worst = difference;
    peak = std::max(peak, std::abs(want));
  }
  return worst / peak;
}

struct Verdict {
  std::string word, detail;
};

Verdict refusal(const Case& c, const std::string& error) {
  const bool named = c.field.empty() || error.find(c.field) != error.npos || error.find("tensor \"") != error.npos ||
                     error.find("matrix \"") != error.npos || error.find("no valid JSON") != error.npos;
  if (!named && c.reference < 0 && cases().error(c.reference) == kNotFinite) return {"not finite", error};
  if (!named) return {"names nothing", error};
  return {c.reference < 0 ? "refused both" : "refused", error};
}

Verdict judge(const Case& c) {
  const testing::ScratchFolder folder;
  std::filesystem::path model = folder.path();
  if (c.base == "gguf") {
    model = folder.put("model.gguf", cases().gguf(c));
  } else {
    folder.put("config.json", cases().config(c));
    folder.put("model.safetensors", cases().weights(c));
    folder.put("tokenizer.json", kTokenizer);
  }
  std::vector<float> found;
  try {
    for (const auto& [name, ids] : cases().prompts()) {
      const std::vector<float> rows = run(model, ids);
      found.insert(found.end(), rows.begin(), rows.end());
    }
  } catch (const Error& e) {
    return refusal(c, e.what());
  }
  if (c.reference < 0) {
    const bool finite = std::all_of(found.begin(), found.end(), [](float v) { return std::isfinite(v); });
    if (!finite && cases().error(c.reference) == kNotFinite) return {"not finite", "no error"};
    const bool unmoved = distance(found, cases().logits(cases().unchanged(c.base))) < kTolerance;
    return {unmoved ? "ignored" : "alone", cases().error(c.reference)};
  }
  const double far = distance(found, cases().logits(c.reference));
  const bool same = c.reference == cases().unchanged(c.base);
  if (!(far < kTolerance)) {
    return {"DIFFERS", std::to_string(far) + " of the largest logit" + (same ? "; transformers ignores it" : "")};
  }
  return {same ? "same" : "equal", std::to_string(far)};
}

// The cases score whole prompts; here tokens come one by one, over the same windows.
TEST(Differential, AWindowOfSomeLayersHoldsWhileGenerating) {
  for (const Case& c : cases().all()) {
    if (c.base != "mistral" || c.field != "layer_types" || c.verdict != "equal" || !c.set.is_object()) continue;
    const testing::ScratchFolder folder;
    folder.put("config.json", cases().config(c));
    folder.put("model.safetensors", cases().weights(c));
    folder.put("tokenizer.json", kTokenizer);
    const auto engine = open(folder.path(), 64);
    std::vector<int32_t> tokens = cases().prompts().back().second;
    const auto first = static_cast<uint32_t>(tokens.size());
    const Result result = engine->generate({.tokens = tokens, .max_new_tokens = 20, .ignore_end = true});
    ASSERT_EQ(result.tokens.size(), 20U) << c.name();
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    engine->score(tokens, first - 1, [&](uint32_t row, std::span<const float> logits) {
      if (row + 1 >= tokens.size()) return;
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      EXPECT_EQ(tokens[row + 1], best) << c.name() << ", row " << row;
    });
  }
}

constexpr size_t kShards = 8;

class Fields : public ::testing::TestWithParam<size_t> {};

TEST_P(Fields, TheOutputIsThatOfTransformersOrTheFieldIsRefused) {
  const char* out = std::getenv("TENON_DIFFERENTIAL_OUT");
  std::ofstream file;
  if (out != nullptr) file.open(std::string(out) + "." + std::to_string(GetParam()));
  for (size_t i = GetParam(); i < cases().all().size(); i += kShards) {
    const Case& c = cases().all()[i];
    const Verdict verdict = judge(c);
    if (out != nullptr) {
      file << json::serialize(json::array{i, verdict.word, verdict.detail, c.name()}) << "\n";
    } else {
      EXPECT_EQ(verdict.word, c.verdict) << c.name() << ": " << verdict.detail;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, Fields, ::testing::Range(size_t{0}, kShards));

}  // namespace
}  // namespace tenon::differential
