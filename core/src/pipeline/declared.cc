#include "declared.h"

#include <numeric>

#include "tenon/core/error.h"
#include "tenon/sdk/error.h"
#include "tenon/sdk/quantized_rows.h"

namespace tenon {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

[[noreturn]] void wrong_shape(const Weights& weights, const WeightTensor& t, const std::vector<int64_t>& expected) {
  throw Error(ErrorCode::kModel, {t.file < weights.files().size() ? weights.files()[t.file].string() : "", 0, 0},
              "tensor \"" + t.name + "\" has the shape " + shape_text(t.shape) + ", expected " + shape_text(expected));
}

tenon_fop fop(tenon_id id) {
  auto op = sdk::abi_struct<tenon_fop>();
  op.id = id;
  return op;
}

}  // namespace

int64_t Site::total_rows() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

SiteId Declared::linear(LinearDecl decl) {
  Site site;
  for (const Matrix& m : decl.mats) {
    const std::vector<int64_t> expected = {m.rows, decl.columns};
    if (m.source->shape != expected) wrong_shape(weights_, *m.source, expected);
    site.rows.push_back(m.rows);
    site.formats.push_back(m.source->format);
  }
  site.decl = std::move(decl);
  sites.push_back(std::move(site));
  return static_cast<SiteId>(sites.size() - 1);
}

VectorId Declared::vector(std::string path, std::vector<const WeightTensor*> parts) {
  Vector v{.path = std::move(path), .parts = std::move(parts), .fill = {}};
  for (const WeightTensor* t : v.parts) {
    if (t->shape.size() != 1) wrong_shape(weights_, *t, {t->shape.empty() ? 0 : t->shape.back()});
    if (t->format != TENON_F32 && t->format != TENON_F16 && t->format != TENON_BF16) {
      throw Error(
          ErrorCode::kModel, {weights_.files()[t->file].string(), 0, 0},
          "tensor \"" + t->name + "\" is " + sdk::format_name(t->format) + "; a vector must be f32, f16 or bf16");
    }
    v.columns += t->shape[0];
  }
  v.storage = storages_.add(v.path, MemoryKind::kWeights, static_cast<uint64_t>(v.columns) * sizeof(float));
  vectors.push_back(std::move(v));
  return static_cast<VectorId>(vectors.size() - 1);
}

VectorId Declared::table(std::string path, int64_t rows, int64_t columns, std::function<void(std::span<float>)> fill) {
  Vector v{.path = std::move(path), .parts = {}, .fill = std::move(fill), .rows = rows, .columns = columns};
  v.storage = storages_.add(v.path, MemoryKind::kTables, static_cast<uint64_t>(rows * columns) * sizeof(float));
  vectors.push_back(std::move(v));
  return static_cast<VectorId>(vectors.size() - 1);
}

LayerId Declared::attention(AttentionDecl decl) {
  layers.push_back({.decl = std::move(decl), .claims = {}});
  return static_cast<LayerId>(layers.size() - 1);
}

const char* fop_name(tenon_id id) {
  switch (id) {
    case TENON_F_RMSNORM:
      return "rmsnorm";
    case TENON_F_BIAS:
      return "bias";
    case TENON_F_ADD:
      return "add";
    case TENON_F_SILU_MUL:
      return "silu_mul";
    case TENON_F_QK_NORM:
      return "qk_norm";
    case TENON_F_ROPE:
      return "rope";
    case TENON_F_KV_APPEND:
      return "kv_append";
    default:
      return "op";
  }
}

Chain prologue_of(const Site& site) {
  Chain chain;
  if (site.decl.norm) {
    tenon_fop op = fop(TENON_F_RMSNORM);
    op.f[0] = site.decl.norm->epsilon;
    chain.ops.push_back(op);
  }
  return chain;
}

Chain epilogue_of(const Site& site, const AttentionDecl* attention) {
  Chain chain;
  if (site.decl.bias) chain.ops.push_back(fop(TENON_F_BIAS));
  if (site.decl.silu_mul) chain.ops.push_back(fop(TENON_F_SILU_MUL));
  if (site.decl.residual) chain.ops.push_back(fop(TENON_F_ADD));
  if (attention == nullptr) return chain;
  const auto heads = [&](tenon_fop op) {
    op.i[2] = static_cast<int32_t>(attention->q_heads);
    op.i[3] = static_cast<int32_t>(attention->kv_heads);
    return op;
  };
  if (attention->q_norm) {
    tenon_fop op = heads(fop(TENON_F_QK_NORM));
    op.f[0] = attention->q_norm->epsilon;
    chain.ops.push_back(op);
  }
  tenon_fop rope = heads(fop(TENON_F_ROPE));
  rope.i[0] = static_cast<int32_t>(attention->rotated);
  rope.i[1] = attention->interleaved ? 1 : 0;
  chain.ops.push_back(rope);
  tenon_fop append = heads(fop(TENON_F_KV_APPEND));
  append.i[0] = attention->layer;
  chain.ops.push_back(append);
  return chain;
}

ChainView::ChainView(const tenon_fop* ops, size_t n) : chain_(sdk::abi_struct<tenon_chain>()) {
  for (size_t i = 0; i < n; ++i) pointers_.push_back(ops + i);
  chain_.n = static_cast<uint32_t>(n);
  chain_.op = pointers_.data();
}

}  // namespace tenon
