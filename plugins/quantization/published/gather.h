// An op brings x into the order of a matrix whose columns are held in another one than the file's (act-order): k numbers
// a row are moved. A row's order is that of its expert, where it has one. scheme.h does it on the CPU, gather.cuh on a
// GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "tenon/abi/quantization.h"
#include "tenon/sdk/recorder.h"

namespace tenon::published {

// to[r][i] = x[r][order[expert[r]][i]], but for rows whose expert there is not: the product skips or refuses those.
struct GatherArgs {
  uint32_t k, rows, experts;  // experts: 0: there is one order for all rows
  int64_t x_stride;           // floats
};
struct GatherOperand {
  enum : uint32_t { kTo, kFrom, kLive, kExpert, kOrder, kOperands };
};

// Has emit(spec, args) emit the op, a chunk a row on the CPU, before a product of the site, and returns the tensor that it makes: (rows, k) f32.
// The store `order` has the column of each place as an Index, for one expert after the other.
template <class Index, class Site, class Emit>
tenon_tid record_gather(const Site& site, const tenon_linear_call& call, tenon_tid order, sdk::Recorder& rec,
                        const Emit& emit) {
  const GatherArgs args{site.k, static_cast<uint32_t>(rec.describe(call.x).dim[0]), site.experts,
                        rec.floats_of_row(call.x)};
  const tenon_tid to = rec.temp(sdk::tensor(TENON_F32, {int64_t{args.rows}, int64_t{args.k}}));
  const tenon_tid live = call.row_live != 0 ? call.row_live : rec.step(TENON_STEP_LIVE);
  using Operand = GatherOperand;
  const std::vector<tenon_operand> operands =
      sdk::operands_by(Operand::kOperands, {{Operand::kTo, to, TENON_WRITE},
                                            {Operand::kFrom, call.x, TENON_READ},
                                            {Operand::kLive, live, TENON_READ},
                                            {Operand::kExpert, site.experts != 0 ? call.expert : live, TENON_READ},
                                            {Operand::kOrder, order, TENON_READ}});
  sdk::OpSpec spec{.name = "gather", .operands = operands, .chunks = {args.rows}};
  spec.cost.read[args.experts == 0 ? sdk::kFixedCost : sdk::kCostPerRow] = double{sizeof(Index)} * args.k;
  spec.cost.read[sdk::kCostPerRow] += double{sizeof(float)} * args.k;
  spec.cost.written[sdk::kCostPerRow] = double{sizeof(float)} * args.k;
  emit(spec, args);
  return to;
}

}  // namespace tenon::published
