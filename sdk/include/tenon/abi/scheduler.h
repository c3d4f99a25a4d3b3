/* scheduler/1: a scheduler decides which sequences run in the next step, and with how many of their tokens.  C11 and C++20.
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

enum {                      /* how far a sequence is */
  TENON_SEQUENCE_WAITS = 1, /* it has no slot: it is new, or was pre-empted */
  TENON_SEQUENCE_PROMPT,    /* it has a slot; tokens before its newest one are not in the cache yet */
  TENON_SEQUENCE_GENERATES  /* it has a slot; only its newest token and drafts after it are pending */
};
typedef struct tenon_sequence {
  tenon_head h;
  uint64_t id;      /* ids grow in the order of arrival; a sequence that is pre-empted keeps its own */
  uint64_t age;     /* it came so many steps ago */
  uint32_t phase;   /* one of TENON_SEQUENCE_* */
  int32_t priority; /* the request stated it; a higher one goes first, if the scheduler heeds it */
  uint32_t tokens;  /* its prompt and its text so far have so many tokens */
  uint32_t cached;  /* so many of them are in the cache */
  uint32_t pending; /* it can take so many rows in this step: the tokens that are not in the cache, and drafts; at least 1 */
  /* A sequence that waits has nothing in the cache by itself: its `cached` tokens are those that it will share with another
   * one (tenon_kv_cache.find), and `held` of them lie in pages that a sequence holds: it takes no free page for these.  Else 0. */
  uint32_t held;
  /* Whoever sent a request is its client: requests of one client have one number, and so have those that name none. */
  uint64_t client;
  uint64_t client_served; /* steps have computed so many tokens of that client's requests, those that have ended included */
  uint64_t client_waits;  /* so many steps ago one of them had rows, or, if that is later, their client came with the first of them */
} tenon_sequence;

/* A workload is what there is to do before a step.  The scheduler borrows it for the call. */
typedef struct tenon_workload {
  tenon_head h;
  uint32_t n;           /* there are so many sequences: those that run in the order of their admission, then those that wait by id */
  uint32_t rows;        /* a step has so many rows at most */
  uint32_t free_slots;  /* so many sequences may be admitted beside those that run */
  uint32_t page_tokens; /* a page of the cache has so many; 0: every slot has room for a whole sequence, or the cache does not tell */
  uint32_t free_pages;  /* so many pages no sequence holds; a page serves one sequence */
  uint32_t reserved;
  const tenon_sequence *const *sequence; /* [n] */
  /* [n_programs] A device with queues has programs of so many rows, ascending, for steps with prompts: a step takes as long as the least
   * one that has room for it, however many of its rows are used.  NULL: a step takes as long as its own rows do. */
  const uint32_t *program_rows;
  uint32_t n_programs, reserved_too;
} tenon_workload;

/* A share gives the first `rows` pending tokens of a sequence (an index into the workload) to the step.  Frozen. */
typedef struct tenon_share {
  uint32_t sequence, rows;
} tenon_share;

/* This is the answer.  The host gives arrays with room for workload.n entries each; both counts are 0 before the call.
 * Rules: a sequence stands in `share` or in `preempted`, once at most; a share has 1 to pending rows, and all shares together no
 * more than workload.rows; no more waiting sequences get rows (and are admitted by that) than there are free slots and pre-empted
 * sequences; only sequences that run are pre-empted.  At least one sequence gets rows.  The step's rows stand in the order of the
 * shares: if the order stays the same from step to step, a device with queues goes on by itself. */
typedef struct tenon_schedule {
  tenon_head h;
  uint32_t n_shares, n_preempted;
  tenon_share *share;
  uint32_t *preempted; /* they lose slot and cache, wait, and are computed anew later; their text is the same */
} tenon_schedule;

#define TENON_NO_SEQUENCE UINT32_MAX

/* One thread at a time calls these functions. */
typedef struct tenon_scheduler {
  tenon_head h;
  /* [any] So many sequences run at once at most, and the cache has so many slots: at least 1, and fixed after create. */
  uint32_t (*sequences)(void *self);
  /* [host] It is called before each step; workload->n is at least 1.  The same calls must get the same answers. */
  tenon_status (*next)(void *self, const tenon_workload *workload, tenon_schedule *out, tenon_reason *why);
  /* [host] It is called when the cache has no room for the rows of `sequence` and other sequences hold some of it.  *victim
   * becomes a sequence that runs, which is pre-empted before the cache is asked again; or `sequence` itself, which then gives up
   * its slot, or is not admitted; or TENON_NO_SEQUENCE: `sequence` keeps what it has and sits this step out.  The workload is
   * that of `next`, brought up to date. */
  tenon_status (*no_space)(void *self, const tenon_workload *workload, uint32_t sequence, uint32_t *victim, tenon_reason *why);
} tenon_scheduler;

#ifdef __cplusplus
}
#endif
#endif
