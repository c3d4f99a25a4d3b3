/* The step program: operations as data, what they may claim of each other, and what records them.  C11 and C++20.
 *
 * Tags on every function of the interfaces:
 *   [setup]   may allocate and load            [record]  host only, while a program is recorded: calls the recorder
 *   [capture] enqueues kernels, nothing else   [step]    hot path, CPU threads: no allocation, no locks
 *   [host]    between launches, bookkeeping    [any]     any time, any thread
 * One instance never gets two [step] calls of one operation's phase on the same chunk; different chunks run at once.
 * Every fallible function ends in `tenon_reason *why`: filled when the result is not TENON_OK. */
#ifndef TENON_ABI_PROGRAM_H
#define TENON_ABI_PROGRAM_H

#include "tenon/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t tenon_tid; /* a tensor of the program being recorded; 0 = none */

/* ---- what one program is good for -------------------------------------------------------------------------------- */
typedef struct tenon_bounds { /* host upper bounds, constants of a program.  Live values are in the step state. */
  tenon_head h;
  uint32_t rows, seqs, rows_per_seq, out_rows; /* rows = (sequence, position) pairs, any mix of prefill and decode */
  uint32_t kv_len;      /* no sequence is longer than this after the step: size splits and scratch by it */
  uint32_t slots;       /* sequence slots: a sequence keeps its slot for life; per-sequence state is by slot */
  uint32_t steps_ahead; /* launches that the host may have in flight: caches reserve this much further */
  uint32_t rank, world; /* tensor parallel; 0, 1 */
} tenon_bounds;

/* The step state, owned by core, in device memory.  Written by the program's last op (commit) and by the host between
 * launches, never inside a program; hence stable and readable before the wait.  Exceptions: ACCEPTED and NEXT, which
 * the sampling ops write. */
enum {
  TENON_STEP_LIVE = 1, /* u32[4]: live rows, seqs, out_rows, 0.  Rows past it are padding: slot -1, no visible effect */
  TENON_STEP_TOKEN,    /* i32[rows] */
  TENON_STEP_POS,      /* i32[rows] */
  TENON_STEP_SLOT,     /* i32[rows] */
  TENON_STEP_PARENT,   /* i32[rows]: row of the preceding token in this step, or -1: chains and trees of drafts */
  TENON_STEP_SEQ_SLOT, /* i32[seqs] */
  TENON_STEP_SEQ_ROW,  /* i32[seqs + 1]: sequence s has rows [s], [s + 1) */
  TENON_STEP_KV_LEN,   /* i32[slots]: tokens in the cache before this step's append */
  TENON_STEP_OUT_ROW,  /* i32[out_rows]: the rows whose logits are wanted, ascending */
  TENON_STEP_ADAPTER,  /* i32[slots]: adapter or -1 */
  TENON_STEP_RNG,      /* u32[slots][4]: Philox key (2), two spare; the counter is (position, purpose) */
  TENON_STEP_ACCEPTED, /* i32[seqs]: rows of the sequence that survive this step, 1 or more; set by verification */
  TENON_STEP_NEXT      /* i32[out_rows]: chosen tokens */
};

/* ---- operations -------------------------------------------------------------------------------------------------- */
enum {
  /* OLD and NEW are a pair for KV planes: positions before, and from, TENON_STEP_KV_LEN on. */
  TENON_READ = 1,
  TENON_WRITE = 2,
  TENON_READ_OLD = 4,
  TENON_WRITE_NEW = 8
};
typedef struct tenon_operand { /* frozen */
  tenon_tid tensor;
  uint32_t access;
} tenon_operand;

typedef struct tenon_launch { /* made by the host once a program's memory is planned */
  tenon_head h;
  void *queue;      /* the device's stream; NULL on the CPU */
  void *const *ptr; /* ptr[i]: address of operand i */
  void *scratch;    /* shared with other ops: touch after the wait only */
  void *zeroed;     /* private to the op, zero at load; the op leaves it zero */
  uint64_t stable;  /* bit i: no earlier op of this program writes a byte of operand i, memory reuse included */
  uint32_t flags, reserved;
} tenon_launch;
enum { TENON_LAUNCH_OVERLAP = 1 }; /* launch with programmatic stream serialization; clear = plain launch */

/* CPU: one thread's share of a phase.  All threads walk the program together; the host puts a barrier after each phase,
 * so an op starts no threads and takes no locks.  Which thread gets which chunk does not change the result's bits. */
typedef struct tenon_part {
  tenon_head h;
  const tenon_launch *launch;
  uint32_t phase, begin, end; /* chunks [begin, end) of chunks[phase] */
  uint32_t thread, threads;
  void *thread_scratch; /* thread_scratch_bytes, private to the thread for the call, 64-byte aligned */
  tenon_reason *why;
} tenon_part;

/* What an op costs: [0] + [1] * rows + [2] * (sum over rows of the tokens that the row attends to).  Frozen. */
typedef struct tenon_cost {
  double read[3], written[3]; /* bytes, of main memory */
  double flops[3];
} tenon_cost;

#define TENON_MAX_PHASES 4
#define TENON_MAX_OPERANDS 64
typedef struct tenon_op {
  tenon_head h;
  const char *name; /* below the module path that the host keeps, e.g. "gemv" */
  tenon_id kind;    /* 0, or the fusion vocabulary's id if it is one of those alone */
  const tenon_operand *operand;
  uint32_t n_operands;
  uint32_t flags;
  const void *args; /* copied, 8-byte aligned for the op; no pointers inside, so that a program can be printed and hashed */
  uint32_t args_bytes;
  uint32_t phases;                   /* CPU: 1 to TENON_MAX_PHASES */
  uint32_t chunks[TENON_MAX_PHASES]; /* CPU: fixed when recorded */
  uint64_t scratch_bytes, zeroed_bytes, thread_scratch_bytes;
  tenon_cost cost;
  tenon_status (*launch)(void *self, const void *args, const tenon_launch *l, tenon_reason *why); /* [capture] */
  tenon_status (*part)(void *self, const void *args, const tenon_part *p);                        /* [step] */
  void *self; /* lives as long as the component's instance or site */
} tenon_op;
enum { TENON_OP_FOREIGN = 1 /* holds kernels that do not obey the overlap contract (cuBLASLt): never overlapped */ };

/* THE OVERLAP CONTRACT of every kernel not flagged FOREIGN
 * 1. The wait triggers the dependents; a kernel that keeps to 6 may trigger them at its start.  Triggering promises nothing
 *    about memory.
 * 2. Before the wait a kernel may read stable operands (weights, step state, older KV) and write nothing global.
 * 3. Every block, on every path, executes the wait before it exits: also idle blocks, also with no live rows.
 * 4. After its wait everything earlier in the program is complete and visible (by induction over 3).
 * 5. Kernels only: a copy, memset or host node in the middle cuts the overlap.
 * 6. Blocks are small (at most 94 KB of shared memory) or large (130 KB), never large twice in a row; at most half of an SM's
 *    threads and registers.  tenon/cuda/block_size.h says why. */

/* ---- recording --------------------------------------------------------------------------------------------------- */
/* Host services, valid during the call that receives it.  An id of 0 or a status other than OK means that the recording
 * has failed; the host has noted why, and the caller just returns. */
typedef struct tenon_recorder {
  tenon_head h;
  void *ctx;
  const tenon_bounds *bounds;
  tenon_tid (*temp)(void *ctx, const tenon_tensor *t);                  /* activation; its lifetime follows from the ops */
  tenon_tid (*keep)(void *ctx, const tenon_tensor *t, const char *key); /* survives steps; one per key over all programs;
                                                                           zero at load */
  tenon_tid (*slice)(void *ctx, tenon_tid of, const tenon_tensor *t, uint64_t offset); /* a view, offset in bytes */
  tenon_tid (*step)(void *ctx, uint32_t role);                          /* TENON_STEP_* */
  void (*describe)(void *ctx, tenon_tid id, tenon_tensor *out);         /* out->h.size set by the caller */
  tenon_status (*emit)(void *ctx, const tenon_op *op);                  /* copies op, operands, args, name */
} tenon_recorder;

/* ---- fusion: a vocabulary that kernels may claim ------------------------------------------------------------------ */
typedef struct tenon_fop {
  tenon_head h;
  tenon_id id;
  tenon_tid t[4]; /* 0 while a claim is asked for; filled when recorded */
  float f[4];
  int32_t i[4];
  const void *ext; /* a struct named by the id, e.g. tenon_kv_view; borrowed for the call */
} tenon_fop;
/* t[3] of any of them: u32, how many rows are live; 0 = TENON_STEP_LIVE's first. */
enum {                  /*  t[]; f[]; i[]; ext                        (a revised meaning is a new id) */
  TENON_F_RMSNORM = 1,  /*  weight f32[columns]; eps: y = x * rsqrt(mean(x^2) + eps) * weight */
  TENON_F_BIAS = 2,     /*  bias f32[columns] */
  TENON_F_ADD = 3,      /*  addend f32[rows][columns]: the residual, or a delta made beforehand */
  TENON_F_SILU_MUL = 4, /*  -: columns [0, n/2) gate columns [n/2, n): y = silu(a) * b, n/2 columns */
  TENON_F_QK_NORM = 5,  /*  q weight, k weight f32[head_dim]; eps; -, -, q heads, kv heads */
  TENON_F_ROPE = 6,     /*  table f32[positions][rotated / 2][2] of (cos, sin); -; rotated dims, pairing (0: i with i +
                            rotated/2, 1: 2i with 2i + 1), q heads, kv heads.  x's columns are Q, K, V heads in order */
  TENON_F_KV_APPEND = 7, /* -; -; layer, -, q heads, kv heads; tenon_kv_view: takes the K and V columns, Q stays */
  TENON_F_SOFTCAP = 8,   /* -; cap: y = cap * tanh(x / cap) */
  TENON_F_LORA = 9,      /* A table, B table, adapter of row; scale */
  TENON_F_QUANT = 10,    /* scales out; -; format, group */
  TENON_F_COMBINE = 11,  /* row of output, weight: weighted scatter-add (experts) */
  TENON_F_ALL_REDUCE = 12, /* -; -; communicator.  The tensor is in TENON_SPACE_SYMMETRIC */
  TENON_F_TEMPERATURE = 32,
  TENON_F_TOP_K,
  TENON_F_TOP_P,
  TENON_F_MIN_P,
  TENON_F_PENALTY,
  TENON_F_TOKEN_MASK, /* sampler; parameters by slot */
  TENON_F_GATHER_ROWS = 64, /* rows by TENON_STEP_OUT_ROW: y[i] = x[out_row[i]] */
  TENON_F_VERIFY = 65,      /* y = TENON_STEP_ACCEPTED from x = TENON_STEP_NEXT: a drafted row survives while every drafted
                               row before it equals the token chosen for its parent */
  TENON_F_ADVANCE = 66      /* count u32[1]; -; entries, words of an entry, 1 = every sequence has one row, which moves on:
                               the step's last op, on devices with queues.  Sets TOKEN, POS and KV_LEN for the next step if
                               the rows move on, and posts x = TENON_STEP_NEXT for the host to y, u32[entries][words] in
                               TENON_SPACE_HOST: the entry count % entries gets the NEXT of all out rows, ACCEPTED of all
                               sequences and last, in word 0, count + 1, which is the new count */
};
typedef struct tenon_chain { /* applied in order */
  tenon_head h;
  uint32_t n, reserved;
  const tenon_fop *const *op;
} tenon_chain;
typedef struct tenon_claim { /* an answer: how much of each chain the op does itself */
  tenon_head h;
  uint32_t pro;     /* the LAST pro ops of the prologue */
  uint32_t epi;     /* the FIRST epi ops of the epilogue; the builder records the rest as visible ops */
  int32_t rank;     /* higher wins among components; the choice is printed */
  uint32_t variant; /* the plugin's own; handed back to bind and record */
  double us;        /* estimated time; 0 = unknown */
} tenon_claim;

/* What a site or cache needs.  Bytes in device memory unless said otherwise. */
#define TENON_MAX_STORES 8
typedef struct tenon_footprint {
  tenon_head h;
  uint32_t n_stores, flags;
  uint64_t store_bytes[TENON_MAX_STORES]; /* persistent, owned by the host, 256-byte aligned */
  uint64_t load_bytes;                    /* scratch while loading, given to load() */
} tenon_footprint;
/* Store i is matrix i exactly as the file has it: the host may hand out the file's mapping and never calls load(). */
enum { TENON_FOOTPRINT_IN_PLACE = 1 };

#ifdef __cplusplus
}
#endif
#endif
