// Records the copy of a view (gather.h) before the kernels that attend to it, and what comes after them.
#pragma once

#include "gather.h"

namespace tenon::flash {

// Says whether the view can be copied for flash's kernels. Its numbers become halves, so those in f32 stay as they are.
bool can_copy(const tenon_attn& a, const tenon_kv_view& kv, const tenon_bounds& b);

struct CopiedView {
  sdk::KvLayout kv;
  uint32_t sequences, rows_of_sequence, room;  // bounds
  uint32_t all_pages;
  double most_tokens;  // a row reads so many at most; 0: as many as its context has
  uint32_t window;     // in places; 0: a row sees all that its sequence has up to itself
  bool joins;          // a ring's first cells are attended to already; sums has theirs
  tenon_tid q, keys, values, pages, live, pos, slot, seq_slot, seq_row, kv_len;
  tenon_tid cell_of;  // 0: nobody wants weights
  tenon_tid sums;     // 0: attention is to leave none, and joins none
};
CopiedView record_copy(const tenon_attn& a, const tenon_attn_call& call, sdk::Recorder& r);
// Attention over the copy has left its sums.
void record_weights(const tenon_attn& a, const tenon_attn_call& call, const CopiedView& copy, sdk::Recorder& r);

}  // namespace tenon::flash
