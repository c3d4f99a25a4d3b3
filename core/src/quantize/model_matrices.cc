#include "model_matrices.h"

#include "tenon/core/error.h"
#include "tenon/core/module.h"

namespace tenon {
namespace {

// Takes a model's declarations for what they say about matrices.
class Listing : public Declarations {
 public:
  LinearId linear(LinearDecl decl) override {
    add(decl.matrix, decl);
    for (const Matrix& expert : decl.experts) add(expert, decl);
    return next_++;
  }
  JoinedId joined(JoinedDecl) override { return next_++; }
  VectorId vector(std::string, std::vector<const WeightTensor*>, int64_t) override { return next_++; }
  void add_to(VectorId, float) override {}
  VectorId table(std::string, int64_t, int64_t, std::function<void(std::span<float>)>) override { return next_++; }
  LayerId attention(AttentionDecl) override { return next_++; }
  RowOpsId row_ops(RowOpsDecl) override { return next_++; }
  uint32_t capacity() const override { return 1; }
  uint32_t layer_count(uint32_t all) const override { return all; }
  void uses(const WeightTensor&) override {}
  void refuse(std::string) override { refused = true; }

  std::map<std::string, ModelMatrix> matrices;
  bool refused = false;

 private:
  void add(const Matrix& m, const LinearDecl& decl) {
    if (m.name.empty()) return;
    matrices[m.name] = {decl.matrix.path, m.name, true, decl.layer, m.rows, decl.columns, decl.product, decl.lookup};
  }

  uint32_t next_ = 0;
};

}  // namespace

std::map<std::string, ModelMatrix> matrices_of(const Weights& weights,
                                               const std::vector<std::filesystem::path>& model_dirs) {
  Listing listing;
  try {
    model_kind_for(weights, model_dirs)->build(weights, listing);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kModel) throw;
    listing.refused = true;
  }
  if (listing.refused) return {};  // any tensors can be written, of a model or not
  return std::move(listing.matrices);
}

}  // namespace tenon
