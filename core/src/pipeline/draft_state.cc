#include "draft_state.h"

namespace tenon {

void DraftState::declare(StorageTable& storages, const tenon_bounds& round, const StepState& state) {
  pass_bounds_ = choice_bounds_ = round;
  pass_bounds_.rows = pass_bounds_.out_rows = choice_bounds_.out_rows = round.seqs;
  pass_bounds_.rows_per_seq = 1;
  const auto base = state.storages();
  pass_.assign(base.begin(), base.end());
  choice_ = pass_;
  const auto own = [&](const char* name, uint64_t words) {
    return storages.add(std::string("draft/step/") + name, MemoryKind::kState, words * 4);
  };
  const uint64_t seqs = round.seqs;
  const struct {
    uint32_t role;
    const char* name;
    uint64_t words;
  } of_pass[] = {{TENON_STEP_LIVE, "live", 4},
                 {TENON_STEP_TOKEN, "token", seqs},
                 {TENON_STEP_POS, "pos", seqs},
                 {TENON_STEP_SLOT, "slot", seqs},
                 {TENON_STEP_PARENT, "parent", seqs},
                 {TENON_STEP_SEQ_ROW, "seq_row", seqs + 1},
                 {TENON_STEP_KV_LEN, "kv_len", round.slots},
                 {TENON_STEP_OUT_ROW, "out_row", seqs}};
  for (const auto& [role, name, words] : of_pass) pass_[role] = own(name, words);
  pass_[TENON_STEP_PLACE] = pass_[TENON_STEP_POS];  // in a chain both are equal
  choice_[TENON_STEP_LIVE] = own("choice_live", 4);
  choice_[TENON_STEP_OUT_ROW] = own("choice_row", seqs);
  choice_[TENON_STEP_NEXT] = own("next", seqs);
}

}  // namespace tenon
