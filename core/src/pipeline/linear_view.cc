#include "linear_view.h"

#include <algorithm>

#include "tenon/sdk/error.h"

namespace tenon {

LinearView::LinearView(const Site& site, const std::vector<size_t>& mats, const OpChain& offered,
                       const std::string& description)
    : linear(sdk::abi_struct<tenon_linear>()), before_(site.before), offered_(offered) {
  for (const size_t m : mats) rows_.push_back(site.decl.mats[m].rows);
  for (size_t set = 0; set < site.decl.sets(); ++set) {
    for (const size_t m : mats) add_matrix(site.decl.mats[m].sets[set]);
  }
  const bool whole = mats.size() == site.decl.mats.size();
  linear.path = whole ? site.decl.path.c_str() : site.decl.mats[mats.front()].path.c_str();
  linear.n_mats = static_cast<uint32_t>(mats.size());
  linear.x_format = TENON_F32;
  linear.y_format = TENON_F32;
  linear.experts = site.decl.experts;
  linear.in_dim = site.decl.columns;
  linear.out_dim = rows_.data();
  linear.matrix = matrices_.data();
  linear.description = description.c_str();
  linear.rows_wanted = site.decl.lookup ? 1 : 0;
  linear.product_wanted = site.decl.product ? 1 : 0;
  linear.pro = before_.get();
  linear.epi = offered_.get();
}

void LinearView::add_matrix(const Matrix& matrix) {
  std::vector<tenon_stored>& tensors = tensors_.emplace_back();
  for (const WeightTensor* t : matrix.tensors) {
    tenon_stored& stored = tensors.emplace_back();
    stored.name = t->name.c_str() + matrix.name.size() + 1;  // the name goes on after "matrix."
    stored.format = t->format;
    stored.rank = static_cast<uint32_t>(t->shape.size());
    std::copy(t->shape.begin(), t->shape.end(), stored.dim);
  }
  matrices_.push_back({matrix.name.c_str(), static_cast<uint32_t>(tensors.size()), 0, tensors.data()});
}

}  // namespace tenon
