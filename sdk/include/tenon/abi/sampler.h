/* sampler/1: a sampler turns logits into a token, by recorded ops: a chain of processors and one selector.  C11 and C++20. */
#ifndef TENON_ABI_SAMPLER_H
#define TENON_ABI_SAMPLER_H

#include "tenon/abi/params.h"
#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TENON_DENSE = 1, TENON_SPARSE = 2 }; /* the forms of candidates: a logit for each token of the vocabulary, or a list */
/* Candidates run down the chain.  A processor never writes to the tensors that it is given: it makes new ones and rewrites *c.
 * A candidate that is out has the logit -infinity (DENSE) or is not listed (SPARSE).  Finite logits leave no NaN and no +infinity. */
typedef struct tenon_candidates {
  tenon_head h;
  uint32_t form, cap, vocab, reserved; /* SPARSE: a row has room for cap entries */
  tenon_tid logits;                 /* DENSE: f32[out_rows][vocab]; SPARSE: f32[out_rows][cap] */
  tenon_tid id, count;              /* SPARSE: i32[out_rows][cap], i32[out_rows]; only the first `count` of a row count */
} tenon_candidates;

/* The three recording functions of a sampler get these tensors. */
typedef struct tenon_sampling {
  tenon_head h;
  tenon_tid params; /* u8[slots][param_bytes]: what encode() wrote for the request of each slot */
  tenon_tid state;  /* u8[slots][state_bytes]; 0 if the sampler has no state */
  tenon_tid next;   /* i32[out_rows] = TENON_STEP_NEXT: record_select writes it, record_accept reads it; 0 in record_apply */
  uint32_t reserved;
} tenon_sampling;

typedef struct tenon_sampler {
  tenon_head h;
  uint32_t in_forms;    /* a mask of the forms that it takes */
  uint32_t is_selector; /* 1: record_select; 0: record_apply */
  uint32_t param_bytes; /* there is one record a slot, in device memory */
  uint32_t reserved;
  uint64_t (*state_bytes)(void *self, uint32_t vocab); /* [setup] A slot has so many; 0 = no state.  Zero when a sequence starts. */
  /* [host] It writes param_bytes to record; request has every value of the schema, overridden where the request says so. */
  tenon_status (*encode)(void *self, const tenon_params *request, void *record, tenon_reason *why);
  /* [record] Processors have it.  A row's slot is that of its OUT_ROW; it sees the slot's state plus this step's tokens up
   * its PARENTs, itself included, so that verifying drafts chooses what single steps would.  The host checks what it leaves
   * in *c: a form, tensors of that form's shape, and room (cap) for no more than vocab entries; and in each step, of finite
   * logits, that there is no NaN and no +infinity, that counts are 1 to cap, that ids are in the vocabulary, and that one
   * logit is above -infinity. */
  tenon_status (*record_apply)(void *self, const tenon_sampling *s, tenon_candidates *c, const tenon_recorder *rec,
                               tenon_reason *why);
  /* [record] Selectors have it.  It writes s->next, each a token of the vocabulary.  Random numbers come from Philox4x32-10 with
   * key RNG[slot] and counter (position of the token to be chosen, purpose 0, index of the candidate / 4), so that a draw depends
   * on nothing else.  Drafts are verified by comparing tokens, which is exact: logits, state, key and position fix the choice. */
  tenon_status (*record_select)(void *self, const tenon_sampling *s, const tenon_candidates *c, const tenon_recorder *rec,
                                tenon_reason *why);
  /* [record] It stands after the selector and the verification.  NULL: there is no state.  State moves here only, by what
   * survives, so that nothing is ever rolled back: the ACCEPTED[i] rows of sequence i that SURVIVOR lists have their tokens kept
   * (TOKEN of the row), and those of them that are out rows had s->next chosen.  `given` are the candidates that record_apply or
   * record_select of this sampler was given. */
  tenon_status (*record_accept)(void *self, const tenon_sampling *s, const tenon_candidates *given,
                                const tenon_recorder *rec, tenon_reason *why);
} tenon_sampler;

#ifdef __cplusplus
}
#endif
#endif
