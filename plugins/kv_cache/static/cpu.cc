#include <algorithm>
#include <cstring>

#include "ops.h"
#include "plugin.h"

namespace tenon::static_cache {

void emit_append(sdk::Recorder& r, std::span<const tenon_operand> operands, const tenon_cost& cost,
                 const AppendArgs& args) {
  r.emit<append>(
      {.name = "append", .operands = operands, .chunks = {(args.rows + kAppendRows - 1) / kAppendRows}, .cost = cost},
      args);
}

void emit_dequant(sdk::Recorder& r, std::span<const tenon_operand> operands, const tenon_cost& cost,
                  const DequantArgs& args) {
  r.emit<dequant>({.name = "dequant",
                   .operands = operands,
                   .chunks = {args.seqs * args.to.heads * dequant_blocks(args)},
                   .cost = cost,
                   .thread_scratch_bytes = std::max(args.to.k.dim, args.to.v.dim) * sizeof(float)},
                  args);
}

void copy(const Copy& c, void*) {
  for (uint64_t i = 0; i < c.pieces; ++i) {
    std::memcpy(static_cast<std::byte*>(c.to) + i * c.to_pitch,
                static_cast<const std::byte*>(c.from) + i * c.from_pitch, c.bytes);
  }
}

void finish(void*) {}

}  // namespace tenon::static_cache

TENON_PLUGIN(tenon::static_cache::StaticCache);
