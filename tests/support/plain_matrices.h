// These are plain matrices as a host describes them, one tensor "weight" each.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "tenon/abi/quantization.h"

namespace tenon::test {

// It has `experts` sets, or one if that is 0. The pointers are valid as long as this.
class PlainMatrices {
 public:
  PlainMatrices(std::span<const tenon_format> formats, std::span<const int64_t> rows, int64_t k, uint32_t experts = 0) {
    for (size_t i = 0; i < formats.size(); ++i) tensors_.push_back({"weight", formats[i], 2, {rows[i], k, 0, 0}});
    for (uint32_t set = 0; set < std::max(experts, 1U); ++set) {
      for (const tenon_stored& t : tensors_) matrices_.push_back({"matrix", 1, 0, &t});
    }
  }
  PlainMatrices(const PlainMatrices&) = delete;
  PlainMatrices& operator=(const PlainMatrices&) = delete;
  const tenon_matrix* get() const { return matrices_.data(); }

 private:
  std::vector<tenon_stored> tensors_;
  std::vector<tenon_matrix> matrices_;
};

}  // namespace tenon::test
