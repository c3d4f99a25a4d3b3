// Matrices that take x come from the model as they are, without the factors that other foldings of the layer give their
// rows: a row's factor changes nothing in how the row is rounded.
#include "layer_factors.h"

#include <algorithm>

#include "../../model/weights/tensor_converter.h"

namespace tenon {
namespace {

std::vector<float> all_of(const Weights& model, const PlannedTensor& p) {
  std::vector<float> weights(weights::element_count(*p.source));
  const std::vector<int64_t>& shape = p.source->shape;
  read_weights(model, *p.source, 0, static_cast<uint64_t>(shape.empty() ? 1 : shape.front()), weights);
  return weights;
}

std::vector<float> chosen_factors(const Weights& model, const PlannedFolding& folding, const Calibration& calibration) {
  SharedColumns shared{
      .matrices = {}, .data = {}, .observed = {}, .tied = folding.source, .routed = folding.experts > 0};
  const size_t sets = std::max(folding.experts, 1U), of_a_set = folding.consumers.size() / sets;
  for (size_t set = 0; set < sets; ++set) {
    shared.observed.push_back(calibration.observed(*folding.consumers[set * of_a_set]));
  }
  if (std::ranges::all_of(shared.observed, [](const auto& state) { return state.empty(); })) return {};
  std::vector<std::vector<float>> weights;
  for (const PlannedTensor* p : folding.consumers) {
    weights.push_back(all_of(model, *p));
    shared.matrices.push_back(&p->matrix);
    shared.data.push_back(weights.back().data());
  }
  return folding.consumers.front()->scheme->column_factors(shared);
}

}  // namespace

LayerFactors::LayerFactors(const Weights& model, const QuantizePlan& plan, const Calibration& calibration,
                           int32_t layer)
    : model_(model) {
  for (const PlannedFolding& folding : plan.foldings) {
    if (folding.layer == layer) fold(folding, chosen_factors(model, folding, calibration));
  }
}

// A row has as many weights as there are factors, and is multiplied by them.
void LayerFactors::multiply_columns(const PlannedTensor& matrix, const std::vector<float>& factors) {
  std::vector<float>& weights = plain_.try_emplace(&matrix, all_of(model_, matrix)).first->second;
  for (size_t i = 0; i < weights.size() && !factors.empty(); ++i) weights[i] *= factors[i % factors.size()];
}

// There are no factors where the scheme does not observe the site.
void LayerFactors::fold(const PlannedFolding& folding, const std::vector<float>& factors) {
  std::vector<float> of_source(folding.sources, 1);
  for (size_t i = 0; i < factors.size(); ++i) of_source[folding.source[i]] = factors[i];
  for (const PlannedTensor* p : folding.consumers) {
    if (!factors.empty()) matrices_[p].columns = factors;
  }
  if (folding.producer != nullptr && !factors.empty()) {
    std::vector<float>& rows = matrices_[folding.producer].rows;
    rows.resize(static_cast<size_t>(folding.producer->matrix.rows), 1);
    for (size_t i = 0; i < of_source.size(); ++i) rows[static_cast<size_t>(folding.first_row) + i] /= of_source[i];
  }
  if (folding.router != nullptr) multiply_columns(*folding.router, factors);
  for (const PlannedFolding::Elements& e : folding.vectors) {
    std::vector<float>& vector = plain_.try_emplace(e.vector, all_of(model_, *e.vector)).first->second;
    for (size_t i = 0; i < of_source.size(); ++i) {
      float& element = vector[static_cast<size_t>(e.first) + i];
      if (of_source[i] != 1) element = (element + e.added) / of_source[i] - e.added;
    }
  }
}

const MatrixFactors* LayerFactors::of(const PlannedTensor& matrix) const {
  const auto found = matrices_.find(&matrix);
  return found == matrices_.end() ? nullptr : &found->second;
}

}  // namespace tenon
