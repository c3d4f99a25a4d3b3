/* draft/1: a draft proposes tokens ahead, from the tokens of a sequence so far.  C11 and C++20.
 * The engine verifies them: proposals become rows of the next step, and greedy or sampled text is the same as without a
 * draft. */
#ifndef TENON_ABI_DRAFT_H
#define TENON_ABI_DRAFT_H

#include "tenon/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TENON_DRAFT_TREES = 1 /* proposals may branch; the host then builds programs, cache and attention for trees */ };
typedef struct tenon_draft {
  tenon_head h;
  uint32_t flags, reserved;
  uint32_t (*max_tokens)(void *self); /* [any] It proposes so many tokens a step at most; the number is fixed after create. */
  /* [host] It writes up to cap tokens that may follow tokens[0, n) of the sequence in `slot` to out, and how many to *count, which
   * may be 0.  Proposal i follows proposal parent[i], which is less than i, or the sequence's newest token if parent[i] is -1.  The
   * host fills parent in as a chain, i - 1, and only a draft with TREES may change it. */
  tenon_status (*propose)(void *self, uint32_t slot, const int32_t *tokens, uint32_t n, int32_t *out, int32_t *parent,
                          uint32_t cap, uint32_t *count, tenon_reason *why);
  /* [host] The sequence in `slot` has ended, or its slot is given to another.  NULL if the draft keeps nothing. */
  void (*forget)(void *self, uint32_t slot);
} tenon_draft;

#ifdef __cplusplus
}
#endif
#endif
