// A scheme that also has tensors of its own writes with this in a form that published checkpoints have.
#pragma once

#include "tenon/abi/quantization.h"

namespace tenon::published {

// describe() and encode() do what tenon_quantization says of them. Both throw sdk::Refused.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual tenon_written describe(const tenon_linear& s) const = 0;
  virtual void encode(const tenon_linear& s, const tenon_encode& e) const = 0;
};

}  // namespace tenon::published
