// A calibration observes what goes into the matrices of a model while texts run through it, layer by layer.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "encoded_weights.h"
#include "kept_rows.h"
#include "matrix_plan.h"
#include "tenon/core/pipeline.h"
#include "tenon/core/tokenizer.h"

namespace tenon {

class Calibration {
 public:
  // The model, the registry of the options and what the plan names outlive it. Throws Error(kUsage) where no scheme of
  // the plan observes and for a text without tokens; what resolve() throws.
  Calibration(const Weights& model, const Tokenizer& tokenizer, const QuantizeCalibration& options,
              const QuantizePlan& plan, const SchemeEncoder& scheme);

  // Returns the matrices that are encoded together, and the vectors folded with them, in order: those that are only
  // looked up or in no model, each layer, those after all layers.
  std::vector<std::vector<const PlannedTensor*>> batches() const;
  // Says where the rows that enter layers are kept: a folder that is there once observe() is
  // called, and may have those of an earlier run.
  void keep_rows_in(const std::filesystem::path& folder);
  // Runs the texts through the layers that have no rows kept yet, and then through that of the batch, which is next:
  // matrices that were kept as they are stored, the others as the model has them. read() is called after each window of
  // each run, with the windows of all these runs. Throws what Pipeline::build() and load() throw, and Error(kIo).
  using Read = std::function<void(uint32_t window, uint32_t windows)>;
  void observe(std::span<const PlannedTensor* const> batch, const Read& read);
  // Returns the state of a matrix of the batch that was observed last; empty if its scheme does not want to see it, and
  // if it is unseen().
  std::span<const std::byte> observed(const PlannedTensor& p) const;
  // Says that the scheme would see what goes into the matrix, and nothing did: no row went to the expert, or the scheme
  // does not observe experts on the device.
  bool unseen(const PlannedTensor& p) const;
  // Keeps tensor `index` of those that a matrix is written as; the bytes outlive this.
  void keep(const PlannedTensor& p, size_t index, std::span<const std::byte> bytes);
  // Names what the layers depend on beside the model and the schemes: the tokens and the pipeline.
  std::vector<std::string> asked() const;

 private:
  // This is a run of all texts through a range of the model.
  struct Run {
    LayerRange range;
    std::vector<Observer> observers;
    std::function<void(std::span<const float> row)> on_row;  // takes what leaves the range; may be empty
    std::function<void()> read;                              // it is called after each window
  };
  void run(const Run& r, const std::function<void(Pipeline&)>& ended = {});
  void advance_to(uint32_t layer, const std::function<void()>& read);
  PipelineConfig config_now() const;

  const Weights& model_;
  const QuantizeCalibration& options_;
  const QuantizePlan& plan_;
  const SchemeEncoder& scheme_;
  std::map<std::string, ModelMatrix> matrices_;  // keyed by the matrices' names
  uint32_t layers_ = 0, width_ = 0;              // the model's, if it is a known one
  PipelineConfig base_;
  std::vector<std::vector<int32_t>> windows_;
  EncodedTensors encoded_;
  std::optional<KeptRows> kept_;
  std::map<const PlannedTensor*, std::vector<std::byte>> states_;
};

}  // namespace tenon
