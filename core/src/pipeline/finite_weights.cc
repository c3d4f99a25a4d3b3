// This looks for the first weight of a module that is NaN or infinite, to say why a step's result was not finite. It
// reads the file and not the device's memory, where schemes keep weights in formats of their own. Formats that core
// cannot unpack are passed over. It reads row by row, so one row is all the memory that it takes.
#include "finite_weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tenon/sdk/gguf_blocks.h"
#include "tenon/sdk/told.h"

namespace tenon {
namespace {

// These are rows [first, end) of a tensor. A vector is one row.
struct Rows {
  const WeightTensor* tensor;
  int64_t first = 0, end = 1;

  int64_t columns() const { return tensor->shape.empty() ? 1 : tensor->shape.back(); }
};

Rows all_rows(const WeightTensor& tensor) {
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < tensor.shape.size(); ++d) rows *= tensor.shape[d];
  return {&tensor, 0, rows};
}

std::string problem_of(const Weights& weights, const Rows& rows) {
  const WeightTensor& t = *rows.tensor;
  const int64_t columns = rows.columns();
  const tenon_block block = tenon_format_block(t.format);
  if (!sdk::can_unpack(t.format) || columns % block.elements != 0) return "";
  const auto row_bytes = static_cast<uint64_t>(columns / block.elements) * block.bytes;
  std::vector<std::byte> raw(row_bytes);
  std::vector<float> values(static_cast<size_t>(columns));
  for (int64_t row = rows.first; row < rows.end; ++row) {
    weights.read(t, static_cast<uint64_t>(row) * row_bytes, raw);
    sdk::unpack_row(t.format, raw.data(), static_cast<size_t>(columns), values.data());
    const auto found = std::find_if(values.begin(), values.end(), sdk::no_logit);
    if (found == values.end()) continue;
    const std::string column = std::to_string(found - values.begin());
    return t.name + " holds " + name_of(*found) +
           (t.shape.size() > 1 ? " in row " + std::to_string(row) + ", column " + column : " as element " + column);
  }
  return "";
}

// Returns whether ops of that path belong to the site.
bool belongs(const Declared& declared, const Site& site, const std::string& path) {
  const auto is_attention = [&](const AttentionLayer& layer) {
    return layer.decl.path == path && &declared.sites[layer.qkv] == &site;
  };
  const auto is_matrix = [&](const SiteMatrix& m) { return m.path == path; };
  return site.decl.path == path || (site.decl.lookup && path == "embedding") ||
         std::any_of(site.decl.mats.begin(), site.decl.mats.end(), is_matrix) ||
         std::any_of(declared.layers.begin(), declared.layers.end(), is_attention);
}

std::vector<Rows> weights_of(const Declared& declared, const Site& site, bool looked_up, int32_t token) {
  std::vector<Rows> all;
  for (const SiteMatrix& m : site.decl.mats) {
    for (const Matrix& set : m.sets) {
      for (const WeightTensor* t : set.tensors) {
        const bool by_row = t->shape.size() == 2 && t->shape.front() == m.rows;
        all.push_back(looked_up && by_row ? Rows{t, token, token + 1} : all_rows(*t));
      }
    }
  }
  const auto add = [&](const OpChain& chain) {
    for (const ChainOp& op : chain) {
      for (const std::optional<VectorId>& id : op.vectors) {
        if (!id) continue;
        for (const WeightTensor* t : declared.vectors[*id].tensors) all.push_back(all_rows(*t));
      }
    }
  };
  if (looked_up) return all;
  add(site.before);
  add(site.after);
  for (const OpChain& chain : site.each) add(chain);
  for (const SiteGroup& group : site.groups) add(group.after);
  return all;
}

}  // namespace

std::string name_of(float value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::string weight_not_finite(const ModelInstance& instance, const std::string& path, int32_t token) {
  const Declared& declared = *instance.declared;
  for (const Site& site : declared.sites) {
    if (!belongs(declared, site, path)) continue;
    const bool looked_up = site.decl.lookup && (path == "embedding" || !site.decl.product);
    for (const Rows& rows : weights_of(declared, site, looked_up, token)) {
      std::string problem = problem_of(instance.weights(), rows);
      if (!problem.empty()) return problem;
    }
  }
  return "";
}

}  // namespace tenon
