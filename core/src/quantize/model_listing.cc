#include "model_listing.h"

#include "tenon/core/error.h"

namespace tenon {

ModelListing::ModelListing(const Weights& weights, const std::vector<std::filesystem::path>& model_dirs) {
  try {
    model_ = model_kind_for(weights, model_dirs)->build(weights, *this);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kModel) throw;
    refused_ = true;
  }
  if (!refused_) return;
  model_.reset();  // any tensors can be written, of a model or not
  linears_.clear();
  joined_.clear();
  attentions_.clear();
  vectors_.clear();
}

std::map<std::string, ModelMatrix> matrices_of(const ModelListing& model) {
  std::map<std::string, ModelMatrix> matrices;
  for (const LinearDecl& decl : model.linears()) {
    const auto add = [&](const Matrix& m, std::optional<uint32_t> expert) {
      if (m.name.empty()) return;
      matrices[m.name] = {decl.matrix.path, m.name,       true,        decl.layer, m.rows,
                          decl.columns,     decl.product, decl.lookup, expert};
    };
    add(decl.matrix, {});
    for (uint32_t e = 0; e < decl.experts.size(); ++e) add(decl.experts[e], e);
  }
  return matrices;
}

}  // namespace tenon
