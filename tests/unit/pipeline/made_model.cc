// This makes a pipeline of a model that a test declares, with weights of its own and without a file.
#include "made_model.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "support/one_sequence.h"
#include "tenon/core/registry.h"
#include "tenon/sdk/op.h"

namespace tenon::test {
namespace {

class Recorded : public Model {
 public:
  Recorded(ModelInfo info, Record record) : info_(std::move(info)), record_(std::move(record)) {}
  const ModelInfo& info() const override { return info_; }
  tenon_tid record(StepBuilder& builder) const override { return record_(builder); }

 private:
  ModelInfo info_;
  Record record_;
};

}  // namespace

ModelKind kind_of(MadeModel& model) {
  ModelKind kind;
  kind.name = "made";
  kind.doc = "made up by a test";
  kind.describe = [&model](const Weights&) { return model.info; };
  kind.build = [&model](const Weights&, Declarations& declare) {
    return std::make_unique<Recorded>(model.info, model.declare(model.weights, declare));
  };
  return kind;
}

Registry& registry() {
  static const std::unique_ptr<Registry> all = [] {
    auto r = make_registry({});
    r->add_root(TENON_TEMPLATES);
    r->add_root(TENON_PIPELINE_TEST_PLUGINS);
    return r;
  }();
  return *all;
}

const WeightTensor* MadeWeights::add(const std::string& name, std::vector<int64_t> shape) {
  if (const WeightTensor* there = find(name)) return there;
  WeightTensor t{.name = name, .format = TENON_F32, .shape = std::move(shape)};
  size_t n = 1;
  for (const int64_t d : t.shape) n *= static_cast<size_t>(d);
  t.bytes = n * sizeof(float);
  std::mt19937_64 random(sdk::op_id(name));
  std::uniform_real_distribution<float> value(-1, 1);
  Values& values = values_[name];
  while (values.size() < n) values.push_back(value(random));
  tensors_.push_back(t);
  return (by_name_[name] = std::make_unique<WeightTensor>(t)).get();
}

const WeightTensor* MadeWeights::add_bytes(const std::string& name, tenon_format format, std::vector<int64_t> shape,
                                           std::vector<std::byte> bytes) {
  WeightTensor t{.name = name, .format = format, .shape = std::move(shape), .bytes = bytes.size()};
  bytes_[name] = std::move(bytes);
  tensors_.push_back(t);
  return (by_name_[name] = std::make_unique<WeightTensor>(t)).get();
}

Matrix MadeWeights::matrix(const std::string& path, const std::string& name, int64_t rows, int64_t columns) {
  return {.path = path, .name = name, .tensors = {add(name + ".weight", {rows, columns})}, .rows = rows};
}

const WeightTensor* MadeWeights::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : found->second.get();
}

void MadeWeights::read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  if (const auto raw = bytes_.find(tensor.name); raw != bytes_.end()) {
    std::memcpy(out.data(), raw->second.data() + offset, out.size());
    return;
  }
  std::memcpy(out.data(), reinterpret_cast<const std::byte*>(values_.at(tensor.name).data()) + offset, out.size());
}

PipelineConfig config_of(std::vector<std::string> set) {
  const std::vector<std::string> exact = {"kv_cache.format=fp32", "kv_cache.capacity=64", "sampler.chain=[]",
                                          "sampler.select=greedy"};
  set.insert(set.begin(), exact.begin(), exact.end());
  const auto names_scheme = [](const std::string& s) { return s.starts_with("quantization.use="); };
  if (std::none_of(set.begin(), set.end(), names_scheme)) {
    set.insert(set.end(), {"quantization.use=none", "quantization.dtype=fp32"});
  }
  RegistrySchemas schemas(registry());
  return resolve(load_config("", set), schemas, ModelPath::kOptional);
}

std::unique_ptr<Pipeline> build(MadeModel& model, uint32_t rows, uint32_t wanted, std::vector<std::string> set) {
  const PipelineConfig config = config_of(std::move(set));
  PipelineOptions options;
  options.prefill_rows = rows;
  options.score_rows = wanted;
  const ModelKind kind = kind_of(model);
  options.model = &kind;
  return Pipeline::build(config, registry(), model.weights, options);
}

std::vector<Values> logits_of(MadeModel& model, const std::vector<int32_t>& tokens, uint32_t wanted,
                              std::vector<std::string> set) {
  const auto rows = static_cast<uint32_t>(tokens.size());
  const std::unique_ptr<Pipeline> pipeline = build(model, rows, wanted, std::move(set));
  pipeline->load();
  pipeline->start_sequence(0, 1, {});
  if (Status s = pipeline->reserve(0, rows); !s.ok()) throw Error(s.code(), s.message());
  StepBatch batch = step_of_one(tokens, 0, rows - wanted);
  batch.sample = false;
  batch.prompts = 1;
  batch.prompt_rows = rows;
  StepResult result;
  if (Status s = pipeline->step(batch, result); !s.ok()) throw Error(s.code(), s.message());
  std::vector<Values> logits;
  for (uint32_t r = 0; r < wanted; ++r) {
    const auto row = result.logits.subspan(size_t{r} * model.info.vocab, model.info.vocab);
    logits.emplace_back(row.begin(), row.end());
  }
  return logits;
}

std::string error_of(MadeModel model, std::vector<std::string> set) {
  try {
    build(model, 4, 1, std::move(set));
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace tenon::test
