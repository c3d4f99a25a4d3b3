// These are pipelines of models that a test declares itself, over weights that it makes up.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tenon/core/engine.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/registry.h"

namespace tenon::test {

using Values = std::vector<float>;

// This has tensors of f32 by name, values between -1 and 1 from a generator that starts with the name.
class MadeWeights : public Weights {
 public:
  const WeightTensor* add(const std::string& name, std::vector<int64_t> shape);
  const Values& values(const std::string& name) const { return values_.at(name); }
  // Adds a tensor of these bytes.
  const WeightTensor* add_bytes(const std::string& name, tenon_format format, std::vector<int64_t> shape,
                                std::vector<std::byte> bytes);
  // Returns a plain matrix of that name: its tensor is NAME.weight.
  Matrix matrix(const std::string& path, const std::string& name, int64_t rows, int64_t columns);

  MetadataValue description = std::string();  // it says how matrices are stored

  std::string_view convention() const override { return "huggingface"; }
  const std::vector<std::filesystem::path>& files() const override { return files_; }
  const std::vector<WeightTensor>& tensors() const override { return tensors_; }
  const WeightTensor* find(std::string_view name) const override;
  std::vector<const WeightTensor*> find_under(std::string_view) const override { return {}; }
  const MetadataValue* metadata(std::string_view key) const override {
    return key == "quantization_config" ? &description : nullptr;
  }
  std::vector<std::string> metadata_keys() const override { return {}; }
  const std::byte* mapped(const WeightTensor&) const override { return nullptr; }
  void read(const WeightTensor& tensor, uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::vector<std::filesystem::path> files_ = {"made up"};
  std::vector<WeightTensor> tensors_;
  std::map<std::string, std::unique_ptr<WeightTensor>> by_name_;
  std::map<std::string, Values> values_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

// This is what a test's model is: declare() is called once, and gives what is called to record a step.
using Record = std::function<tenon_tid(StepBuilder&)>;
struct MadeModel {
  MadeWeights weights;
  ModelInfo info;  // vocab, width and context are used
  std::function<Record(MadeWeights&, Declarations&)> declare;
};

// Returns the kind of such a model, which the model outlives; the components of the build and of these tests; and exact
// components of the CPU unless `set` says otherwise.
ModelKind kind_of(MadeModel& model);
Registry& registry();
PipelineConfig config_of(std::vector<std::string> set);

// Logits of the last `wanted` rows of a prompt, in exact components of the CPU
// unless `set` says otherwise. Throws Error.
std::vector<Values> logits_of(MadeModel& model, const std::vector<int32_t>& tokens, uint32_t wanted,
                              std::vector<std::string> set = {});
// Builds the same pipeline, not loaded.
std::unique_ptr<Pipeline> build(MadeModel& model, uint32_t rows, uint32_t wanted, std::vector<std::string> set = {});
// Returns the text of the error that building throws, or "no error".
std::string error_of(MadeModel model, std::vector<std::string> set = {});

}  // namespace tenon::test
