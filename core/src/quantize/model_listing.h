// This takes down a model's declarations for what they say about matrices and what stands between them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scheme_encoder.h"
#include "tenon/core/module.h"

namespace tenon {

class ModelListing : public Declarations {
 public:
  struct Vector {
    std::vector<const WeightTensor*> tensors;
    float added = 0;  // to each element as it is stored
  };

  // Lists nothing if no architecture claims the weights or they are no whole model.
  ModelListing(const Weights& weights, const std::vector<std::filesystem::path>& model_dirs);

  // They are numbered by LinearId, JoinedId, LayerId and VectorId. Tensors are the weights'.
  const std::vector<LinearDecl>& linears() const { return linears_; }
  const std::vector<JoinedDecl>& joined_linears() const { return joined_; }
  const std::vector<AttentionDecl>& attentions() const { return attentions_; }
  const std::vector<Vector>& vectors() const { return vectors_; }
  const Model* model() const { return model_.get(); }  // nullptr: nothing is listed

  LinearId linear(LinearDecl decl) override { return add(linears_, std::move(decl)); }
  JoinedId joined(JoinedDecl decl) override { return add(joined_, std::move(decl)); }
  VectorId vector(std::string, std::vector<const WeightTensor*> tensors, int64_t) override {
    return add(vectors_, {std::move(tensors)});
  }
  void add_to(VectorId vector, float number) override { vectors_[vector].added += number; }
  VectorId table(std::string, int64_t, int64_t, std::function<void(std::span<float>)>) override {
    return add(vectors_, {});
  }
  LayerId attention(AttentionDecl decl) override { return add(attentions_, std::move(decl)); }
  RowOpsId row_ops(RowOpsDecl) override { return row_ops_++; }
  uint32_t capacity() const override { return 1; }
  LayerRange layer_range(uint32_t all) const override { return {0, all}; }
  void uses(const WeightTensor&) override {}
  void refuse(std::string) override { refused_ = true; }

 private:
  template <class T>
  static uint32_t add(std::vector<T>& all, T one) {
    all.push_back(std::move(one));
    return static_cast<uint32_t>(all.size() - 1);
  }

  std::vector<LinearDecl> linears_;
  std::vector<JoinedDecl> joined_;
  std::vector<AttentionDecl> attentions_;
  std::vector<Vector> vectors_;
  RowOpsId row_ops_ = 0;
  std::unique_ptr<Model> model_;
  bool refused_ = false;
};

// Returns the matrices by their names in the file.
std::map<std::string, ModelMatrix> matrices_of(const ModelListing& model);

}  // namespace tenon
