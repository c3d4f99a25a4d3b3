// Names for what stands where in TENON_F_MASK (tenon/abi/grammar.h), which the host writes and devices read.
#pragma once

#include "tenon/abi/grammar.h"
#include "tenon/abi/program.h"
#include "tenon/sdk/error.h"

namespace tenon::sdk {

struct MaskOp {
  tenon_tid masks;   // u32[masks][words]
  tenon_tid number;  // i32[out_rows]: a row's mask, or -1

  MaskOp(tenon_tid all, tenon_tid of_row) : masks(all), number(of_row) {}
  explicit MaskOp(const tenon_fop& op) : masks(op.t[0]), number(op.t[1]) {}

  tenon_fop fop() const {
    auto op = abi_struct<tenon_fop>();
    op.id = TENON_F_MASK;
    op.t[0] = masks;
    op.t[1] = number;
    return op;
  }
};

}  // namespace tenon::sdk
