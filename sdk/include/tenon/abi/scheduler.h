/* scheduler/1: which sequences run in the next step, and how many of their tokens.  C11 and C++20.
 * A scheduler decides on the host (device "host") for a pipeline on any device.  Before a step it sees every sequence that waits
 * or runs, and answers with the rows of the step and with the sequences that give up their slot.  The host checks the answer:
 * one that breaks a rule below ends the run with an error that names the component. */
#ifndef TENON_ABI_SCHEDULER_H
#define TENON_ABI_SCHEDULER_H

#include "tenon/abi/params.h"
#include "tenon/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TENON_SEQUENCE_WAITS = 1, /* it has no slot: new, or pre-empted */
  TENON_SEQUENCE_PROMPT,    /* it has a slot; tokens before its newest one are not in the cache yet */
  TENON_SEQUENCE_GENERATES  /* it has a slot; only its newest token and drafts after it are pending */
};
typedef struct tenon_sequence {
  tenon_head h;
  uint64_t id;      /* in the order of arrival; a sequence that is pre-empted keeps it */
  uint64_t age;     /* steps since it came */
  uint32_t phase;   /* TENON_SEQUENCE_* */
  int32_t priority; /* the request's; a higher one goes first, where the scheduler heeds it */
  uint32_t tokens;  /* its prompt and its text so far */
  uint32_t cached;  /* how many of them are in the cache */
  uint32_t pending; /* rows that it can take in this step: the tokens that are not in the cache, and drafts; at least 1 */
  /* One that waits has nothing in the cache by itself: its `cached` tokens are those that it will share with another sequence
   * (tenon_kv_cache.find), and `held` of them lie in pages that a sequence holds: it takes no free page for these.  Else 0. */
  uint32_t held;
} tenon_sequence;

/* What there is to do.  Borrowed for the call. */
typedef struct tenon_workload {
  tenon_head h;
  uint32_t n;           /* sequences: those that run in the order of their admission, then those that wait by id */
  uint32_t rows;        /* of a step at most */
  uint32_t free_slots;  /* sequences that may be admitted beside those that run */
  uint32_t page_tokens; /* of a page of the cache; 0: every slot has room for a whole sequence, or the cache does not tell */
  uint32_t free_pages;  /* that no sequence holds; a page serves one sequence */
  uint32_t reserved;
  const tenon_sequence *const *sequence; /* [n] */
} tenon_workload;

/* The first `rows` of the pending tokens of a sequence (an index into the workload).  Frozen. */
typedef struct tenon_share {
  uint32_t sequence, rows;
} tenon_share;

/* The answer.  The host gives arrays with room for workload.n entries each; both counts are 0 before the call.
 * Rules: a sequence stands in `share` or in `preempted`, once; rows are 1 to pending, together no more than workload.rows; as
 * many waiting sequences get rows (and are admitted by that) as there are free slots and pre-empted ones; pre-empted ones run.
 * At least one sequence gets rows.  In the batch they stand in the order of the shares: a stable order lets a device with queues
 * go on by itself. */
typedef struct tenon_schedule {
  tenon_head h;
  uint32_t n_shares, n_preempted;
  tenon_share *share;
  uint32_t *preempted; /* they lose slot and cache, wait, and are computed anew later; their text is the same */
} tenon_schedule;

#define TENON_NO_SEQUENCE UINT32_MAX

/* All by one thread at a time. */
typedef struct tenon_scheduler {
  tenon_head h;
  /* [any] sequences that run at once at most: the slots of the cache; fixed after create, at least 1. */
  uint32_t (*sequences)(void *self);
  /* [host] before a step; workload->n is at least 1.  The same calls have the same answers. */
  tenon_status (*next)(void *self, const tenon_workload *workload, tenon_schedule *out, tenon_reason *why);
  /* [host] the cache has no room for the rows of `sequence`, and others hold some of it.  *victim: a sequence that runs, to be
   * pre-empted before the cache is asked again; `sequence` itself, which then gives up its slot, or is not admitted; or
   * TENON_NO_SEQUENCE: it keeps what it has and sits this step out.  The workload is that of `next` as it is by now. */
  tenon_status (*no_space)(void *self, const tenon_workload *workload, uint32_t sequence, uint32_t *victim, tenon_reason *why);
} tenon_scheduler;

#ifdef __cplusplus
}
#endif
#endif
