#pragma once

#include "tenon/sdk/op.h"
#include "tenon/sdk/rope_pairs.h"

namespace tenon::op {

// Turns pairs of dimensions (Su et al. 2021, arXiv:2104.09864). The table has an angle for each position and pair.
class Rope : public sdk::Op<Rope> {
 public:
  static constexpr const char* kName = "rope";
  static constexpr const char* kDoc = "Rotary positions: pairs of Q and K turned by their row's position.";
  static constexpr auto kParams = sdk::params();
  static constexpr tenon_id kId = TENON_F_ROPE;
  static constexpr uint32_t kFlags = TENON_SMALL_OP_IN_PLACE;
  enum Tensor : uint32_t { kTable };
  enum StepTensor : uint32_t { kPos };
  // The enumerators are the places in tenon_fop.i.
  enum Integer : uint32_t { kRotated, kInterleaved };
  static constexpr auto kArgs = sdk::op_args_over_heads(
      sdk::op_table("table", kTable, "f32 (positions, rotated / 2, 2) of (cos, sin)"),
      sdk::op_integer("rotated", kRotated, "dimensions of a head that turn"),
      sdk::op_integer("interleaved", kInterleaved, "0: i turns with i + rotated / 2, 1: 2i with 2i + 1"));

  Rope(const sdk::Params&, const sdk::Env&) {}
  // `integers` is tenon_fop.i, or a copy of it.
  static constexpr sdk::RopePairs pairs_of(const int32_t (&integers)[8]) {
    return {static_cast<uint32_t>(integers[kRotated]), integers[kInterleaved]};
  }
  int64_t columns(const tenon_fop& op, int64_t x) const { return sdk::columns_of_heads(op, x); }
  void record(const tenon_fop& op, tenon_tid x, tenon_tid y, sdk::Recorder& r) const;
};

}  // namespace tenon::op
