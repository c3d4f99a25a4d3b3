/* draft/1: which tokens to propose ahead.  C11 and C++20.
 * A draft proposes from the host (HOST: it sees the token history there) or by ops in the step program.  Verification is the
 * engine's: proposals become rows of the next step, and greedy or sampled text is the same as without a draft. */
#ifndef TENON_ABI_DRAFT_H
#define TENON_ABI_DRAFT_H

#include "tenon/abi/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TENON_DRAFT_HOST = 1 };
typedef struct tenon_draft_call { /* for record_propose */
  tenon_head h;
  tenon_tid history; /* i32[slots][kv_len]: accepted tokens by position */
  tenon_tid length;  /* i32[slots] */
  tenon_tid out;     /* i32[seqs][max_tokens]: proposals; -1 ends a row */
  uint32_t reserved;
  tenon_candidates *probabilities; /* set form, cap and tensors if the draft has them; form 0 = a point each */
} tenon_draft_call;

typedef struct tenon_draft {
  tenon_head h;
  uint32_t flags, reserved;
  uint32_t (*max_tokens)(void *self); /* [any] proposals a step, at most; fixed after create */
  /* [host] HOST drafts: up to cap tokens that may follow tokens[0, n) of the sequence in `slot`; *count may be 0. */
  tenon_status (*propose)(void *self, uint32_t slot, const int32_t *tokens, uint32_t n, int32_t *out, uint32_t cap,
                          uint32_t *count, tenon_reason *why);
  /* [host] the sequence in `slot` ended or its slot is given to another; NULL if the draft keeps nothing. */
  void (*forget)(void *self, uint32_t slot);
  /* [record] drafts that run on the device; NULL for HOST. */
  tenon_status (*record_propose)(void *self, const tenon_draft_call *c, const tenon_recorder *rec, tenon_reason *why);
} tenon_draft;

#ifdef __cplusplus
}
#endif
#endif
