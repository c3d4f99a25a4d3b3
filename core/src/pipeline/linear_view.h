// This shows a site's matrices as the boundary has them.
#pragma once

#include <string>
#include <vector>

#include "declared.h"

namespace tenon {

// This shows some matrices of a site, with the ops before the site and those offered after the matrices. What it is
// made of outlives it.
struct LinearView {
  // `mats` index the site's; a scheme may claim what is `offered`. See tenon_linear for the description.
  LinearView(const Site& site, const std::vector<size_t>& mats, const OpChain& offered, const std::string& description);
  LinearView(const LinearView&) = delete;
  LinearView& operator=(const LinearView&) = delete;

  tenon_linear linear;  // x and y are f32

 private:
  void add_matrix(const Matrix& matrix);

  std::vector<int64_t> rows_;                       // by matrix
  std::vector<std::vector<tenon_stored>> tensors_;  // by matrix, of one expert after the other
  std::vector<tenon_matrix> matrices_;              // they are by matrix, too
  ChainView before_, offered_;
};

}  // namespace tenon
