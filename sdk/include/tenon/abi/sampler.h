/* sampler/1: logits to a token, as recorded ops; a chain of processors and one selector.  C11 and C++20. */
#ifndef TENON_ABI_SAMPLER_H
#define TENON_ABI_SAMPLER_H

#include "tenon/abi/params.h"
#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TENON_DENSE = 1, TENON_SPARSE = 2 }; /* forms */
enum { TENON_SORTED = 1 };                  /* flags: SPARSE rows are in falling order of logit */
/* What runs down the chain.  A processor never writes its input's tensors: it makes new ones and rewrites *c.
 * A candidate that is out has the logit -infinity (DENSE) or is not listed (SPARSE). */
typedef struct tenon_candidates {
  tenon_head h;
  uint32_t form, cap, vocab, flags; /* SPARSE: room for cap entries a row */
  tenon_tid logits;                 /* f32[out_rows][vocab], or f32[out_rows][cap] */
  tenon_tid id, count;              /* SPARSE: i32[out_rows][cap], i32[out_rows] */
} tenon_candidates;

enum { TENON_SAMPLER_HOST = 1 }; /* needs the host between two steps (a grammar's mask): the program is split there */
typedef struct tenon_sampler {
  tenon_head h;
  uint32_t in_forms;    /* mask of forms that apply/select accept */
  uint32_t is_selector; /* 1: record_select; 0: record_apply */
  uint32_t param_bytes; /* one record per slot, in device memory */
  uint32_t flags;
  uint64_t (*state_bytes)(void *self, uint32_t vocab); /* [setup] per slot; 0 = stateless.  Zeroed when a sequence starts */
  /* [host] writes param_bytes for a request: every value of the schema, the request's overrides in place. */
  tenon_status (*encode)(void *self, const tenon_params *request, void *record, tenon_reason *why);
  /* [setup] neighbours before it in the chain that it does itself. */
  tenon_status (*claim)(void *self, const tenon_chain *before, tenon_claim *out, tenon_reason *why);
  /* [record] params: u8[slots][param_bytes]; state: u8[slots][state_bytes] or 0.  A row's slot is that of its OUT_ROW; it sees
   * the slot's state plus this step's tokens up its PARENTs, itself included. */
  tenon_status (*record_apply)(void *self, tenon_candidates *c, tenon_tid params, tenon_tid state,
                               const tenon_chain *claimed, const tenon_recorder *rec, tenon_reason *why);
  /* [record] next: i32[out_rows] = TENON_STEP_NEXT.  Random numbers: Philox4x32-10, key RNG[slot], counter (position of the
   * token to be chosen, purpose 0, index of the candidate / 4), so that a draw depends on nothing else. */
  tenon_status (*record_select)(void *self, const tenon_candidates *c, tenon_tid params, tenon_tid next,
                                const tenon_chain *claimed, const tenon_recorder *rec, tenon_reason *why);
  /* [record] for drafts with probabilities; NULL: core compares tokens (exact for a selector that is a function of logits,
   * key and position). */
  tenon_status (*record_verify)(void *self, const tenon_candidates *target, const tenon_candidates *draft,
                                tenon_tid params, tenon_tid next, tenon_tid accepted, const tenon_recorder *rec,
                                tenon_reason *why);
  /* [record] state moves here only, by the step's tokens that ACCEPTED keeps: nothing is ever rolled back. */
  tenon_status (*record_accept)(void *self, tenon_tid state, const tenon_recorder *rec, tenon_reason *why);
} tenon_sampler;

#ifdef __cplusplus
}
#endif
#endif
