#include "remembering.h"

#include <algorithm>
#include <numeric>

#include "pipeline_impl.h"
#include "tenon/core/error.h"
#include "token_choice.h"

namespace tenon {
namespace {

// Makes candidates of a form that the sampler takes, which nothing writes: no row has any.
tenon_candidates no_candidates(const ChainEntry& entry, ProgramRecording& rec, uint32_t vocab) {
  const int64_t rows = rec.bounds().out_rows;
  auto none = sdk::abi_struct<tenon_candidates>();
  none.form = (entry.table().in_forms & TENON_DENSE) != 0 ? TENON_DENSE : TENON_SPARSE;
  none.cap = none.vocab = vocab;
  none.logits = rec.temp(sdk::tensor(TENON_F32, {rows, vocab}), "none");
  if (none.form == TENON_DENSE) return none;
  none.id = rec.temp(sdk::tensor(TENON_I32, {rows, vocab}), "none");
  none.count = rec.temp(sdk::tensor(TENON_I32, {rows}), "none");
  return none;
}

}  // namespace

std::unique_ptr<Program> record_remembering(const ProgramContext& context, tenon_bounds bounds) {
  if (std::none_of(context.samplers.begin(), context.samplers.end(), remembers)) return nullptr;
  bounds.seqs = bounds.out_rows = 1;
  bounds.rows_per_seq = bounds.rows;
  ProgramRecording rec(bounds, context.storages, context.state.storages(), &context.largest);
  ModelBuilder builder(context.target, context.storages, rec, 0);
  for (const ChainEntry& entry : context.samplers) {
    if (remembers(entry)) record_accept(entry, builder, no_candidates(entry, rec, context.target.info().vocab));
  }
  return rec.finish({});
}

// Shows a sequence's samplers tokens that it has in the cache and that no step ran.
Status Pipeline::Impl::remember(uint32_t slot, std::span<const int32_t> tokens) {
  if (!remembering || tokens.empty()) return {};
  Status status = drop_ahead();
  for (size_t first = 0; first < tokens.size() && status.ok();) {
    const size_t rows = std::min<size_t>(tokens.size() - first, remembering->bounds().rows);
    StepBatch batch;
    batch.token.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                       tokens.begin() + static_cast<std::ptrdiff_t>(first + rows));
    batch.slot.assign(rows, static_cast<int32_t>(slot));
    batch.position.resize(rows);
    batch.parent.resize(rows);
    std::iota(batch.position.begin(), batch.position.end(), static_cast<int32_t>(first));
    std::iota(batch.parent.begin(), batch.parent.end(), -1);
    batch.seq_slot = {static_cast<int32_t>(slot)};
    batch.seq_row = {0, static_cast<int32_t>(rows)};
    batch.kv_len.assign(remembering->bounds().slots, 0);
    batch.kv_len[slot] = static_cast<int32_t>(first);
    status = state.publish(batch);
    state.accept_all(batch);
    if (status.ok()) status = runner->run_each(*remembering, remembering->ops().size(), [](size_t) {});
    first += rows;
  }
  return status;
}

}  // namespace tenon
