/* A step's program is made of operations as data; this header also says how components claim ops and record them.  C11 and C++20.
 *
 * Every function of the interfaces has a tag:
 *   [setup]   It may allocate and load.             [record]  It runs on the host while a program is recorded, and calls the recorder.
 *   [capture] It enqueues kernels, nothing else.    [step]    It is the hot path of CPU threads: it takes no memory and no locks.
 *   [host]    It is called between launches.        [any]     It is called at any time, by any thread.
 * One instance never gets two [step] calls of one operation's phase on the same chunk; different chunks run at once.
 * Every function that can fail ends in `tenon_reason *why`, and fills it when the result is not TENON_OK. */
#ifndef TENON_ABI_PROGRAM_H
#define TENON_ABI_PROGRAM_H

#include "tenon/abi/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t tenon_tid; /* a tensor of the program being recorded; 0 = none */

/* ---- what a program is made for ----------------------------------------------------------------------------------- */
typedef struct tenon_bounds { /* the host chose these upper bounds, constants of a program; the step state has live values */
  tenon_head h;
  uint32_t rows, seqs, rows_per_seq, out_rows; /* a row is a token of a sequence: prefill and decode in any mix */
  uint32_t kv_len;      /* no sequence is longer than this after the step; splits and scratch are sized by it */
  uint32_t slots;       /* a sequence keeps its slot for as long as it runs; what is kept of a sequence is kept by slot */
  uint32_t steps_ahead; /* the host may have so many launches under way; caches reserve this much further */
  uint32_t trees;       /* 1: a sequence's rows may be a tree of drafts; 0: every row follows the row before it */
  uint32_t reserved;
} tenon_bounds;

/* The step state lies in device memory, and core owns it.  A program's last op (commit) writes it, and the host does between
 * launches, but nothing inside a program does: it is stable, and may be read before the wait.  The exceptions are ACCEPTED,
 * SURVIVOR and NEXT, which the sampling ops write. */
enum {
  TENON_STEP_LIVE = 1, /* u32[4]: live rows, seqs, out_rows, 0.  Rows past it are padding: they have slot -1 and no effect */
  TENON_STEP_TOKEN,    /* i32[rows]: the tokens' ids */
  TENON_STEP_POS,      /* i32[rows]: positions, which rotary angles and masks go by */
  TENON_STEP_PLACE,    /* i32[rows]: KV_LEN and the row's number in its sequence's part of the step: the place of a row where
                          the cache keeps cells in order (tenon/abi/kv_cache.h) */
  TENON_STEP_SLOT,     /* i32[rows]: each row's slot */
  TENON_STEP_PARENT,   /* i32[rows]: the row of the token before it, or -1 if that is not in this step; trees of drafts branch here */
  TENON_STEP_SEQ_SLOT, /* i32[seqs]: each sequence's slot */
  TENON_STEP_SEQ_ROW,  /* i32[seqs + 1]: sequence s has rows [s], [s + 1) */
  TENON_STEP_KV_LEN,   /* i32[slots]: tokens in the cache before this step's append */
  TENON_STEP_OUT_ROW,  /* i32[out_rows]: the rows whose logits are wanted, ascending */
  TENON_STEP_RNG,      /* u32[slots][4]: Philox key (2), two spare; the counter is (position, purpose) */
  TENON_STEP_ACCEPTED, /* i32[seqs]: how many rows of the sequence survive this step, 1 or more; verification writes it */
  TENON_STEP_SURVIVOR, /* i32[rows]: the rows that survive, ascending: those of sequence s from SEQ_ROW[s] on; verification writes it */
  TENON_STEP_NEXT      /* i32[out_rows]: chosen tokens */
};

/* ---- operations -------------------------------------------------------------------------------------------------- */
enum {
  /* OLD and NEW are for the planes of a cache: the positions before TENON_STEP_KV_LEN, and those from it on. */
  TENON_READ = 1,
  TENON_WRITE = 2,
  TENON_READ_OLD = 4,
  TENON_WRITE_NEW = 8
};
typedef struct tenon_operand { /* an op's tensor, and how the op uses it.  Frozen. */
  tenon_tid tensor;
  uint32_t access;
} tenon_operand;

typedef struct tenon_launch { /* the host makes it once a program's memory is planned */
  tenon_head h;
  void *queue;      /* the device's stream; NULL on the CPU */
  void *const *ptr; /* ptr[i] is the address of operand i */
  void *scratch;    /* the op shares it with others, and touches it after the wait only */
  void *zeroed;     /* the op's own; it is zero when the program is loaded, and the op leaves it zero */
  uint64_t stable;  /* bit i: no earlier op of this program writes a byte of operand i, not even where memory is used again */
  uint32_t flags;  /* TENON_LAUNCH_* */
  uint32_t blocks; /* the class that the op's blocks are to have: one of TENON_BLOCKS_* that the op named */
} tenon_launch;
enum { TENON_LAUNCH_OVERLAP = 1 }; /* the kernel is launched with programmatic stream serialization; clear = a plain launch */

/* On the CPU a part is one thread's share of a phase.  All threads walk the program together, and the host puts a barrier after
 * each phase, so an op starts no threads and takes no locks.  Which thread gets which chunk does not change the result's bits. */
typedef struct tenon_part {
  tenon_head h;
  const tenon_launch *launch;
  uint32_t phase, begin, end; /* chunks [begin, end) of chunks[phase] */
  uint32_t reserved;
  void *thread_scratch; /* thread_scratch_bytes, which are the thread's own during the call, aligned to 64 bytes */
  tenon_reason *why;
} tenon_part;

/* An op costs [0] + [1] * rows + [2] * (the sum over rows of the tokens that the row attends to).  Frozen. */
typedef struct tenon_cost {
  double read[3], written[3]; /* bytes of main memory */
  double flops[3];
} tenon_cost;

/* Classes of an op's thread blocks, for rule 6 of the overlap contract.  An op names those that it can run as; the host
 * chooses while recording, large where the op before is small.  Whole blocks are an op's only class. */
enum { TENON_BLOCKS_SMALL = 1, TENON_BLOCKS_LARGE = 2, TENON_BLOCKS_WHOLE = 4 };

#define TENON_MAX_PHASES 4
#define TENON_MAX_OPERANDS 64
typedef struct tenon_op {
  tenon_head h;
  const char *name; /* it stands after the module's path, which the host keeps: "gemv" */
  const tenon_operand *operand;
  uint32_t n_operands;
  uint32_t flags;
  const void *args; /* the host copies them, aligned to 8 bytes; they hold no pointers, so that a program can be printed and hashed */
  uint32_t args_bytes;
  uint32_t blocks;                   /* TENON_BLOCKS_* that the op can run as; 0 = small */
  uint32_t phases;                   /* CPU: it has 1 to TENON_MAX_PHASES phases, with a barrier after each */
  uint32_t chunks[TENON_MAX_PHASES]; /* CPU: they are fixed when the op is recorded */
  uint64_t scratch_bytes, zeroed_bytes, thread_scratch_bytes;
  tenon_cost cost;
  tenon_status (*launch)(void *self, const void *args, const tenon_launch *l, tenon_reason *why); /* [capture] */
  tenon_status (*part)(void *self, const void *args, const tenon_part *p);                        /* [step] */
  void *self; /* it lives as long as the component's instance, or the site */
} tenon_op;
enum { TENON_OP_FOREIGN = 1 /* its kernels do not obey the overlap contract (cuBLASLt): they never overlap with others */ };

/* THE OVERLAP CONTRACT holds for every kernel that is not flagged FOREIGN.
 * 1. The wait triggers the dependents; a kernel that keeps to 6 may trigger them at its start.  Triggering promises nothing
 *    about memory.
 * 2. Before the wait a kernel may read stable operands (weights, step state, older KV) and write nothing global.
 * 3. Every block, on every path, executes the wait before it exits: idle blocks do, and blocks of a step with no live rows.
 * 4. After its wait everything earlier in the program is complete and visible (by induction over 3).
 * 5. Ops enqueue kernels only: a copy, memset or host node in the middle cuts the overlap.
 * 6. Blocks are small (at most 94 KB of shared memory) or large (130 KB), as tenon_launch.blocks says, and take at most half
 *    of an SM's threads and registers; or they are whole, so that no block of another op that overlaps stands beside one.  No
 *    two large ops follow each other: the host sees to it (TENON_BLOCKS_*), and launches plainly what it cannot alternate.
 *    tenon/cuda/block_size.h says why. */

/* ---- recording --------------------------------------------------------------------------------------------------- */
/* The host's services are valid during the call that receives them.  An id of 0 or a status other than OK means that the recording
 * has failed; the host has noted why, and the caller just returns. */
typedef struct tenon_recorder {
  tenon_head h;
  void *ctx;
  const tenon_bounds *bounds;
  const tenon_bounds *largest; /* each bound is the largest of all programs: what is kept by slot, or by row, is sized by it */
  tenon_tid (*temp)(void *ctx, const tenon_tensor *t);                  /* an activation: its lifetime follows from the ops */
  tenon_tid (*keep)(void *ctx, const tenon_tensor *t, const char *key); /* it survives steps: one for each key, over all
                                                                           programs, zero when they are loaded */
  tenon_tid (*slice)(void *ctx, tenon_tid of, const tenon_tensor *t, uint64_t offset); /* a view; the offset is in bytes */
  tenon_tid (*step)(void *ctx, uint32_t role);                          /* the step state's tensor with this role, TENON_STEP_* */
  void (*describe)(void *ctx, tenon_tid id, tenon_tensor *out);         /* fills out; the caller has set out->h.size */
  tenon_status (*emit)(void *ctx, const tenon_op *op);                  /* appends an op; the host copies op, operands, args, name */
} tenon_recorder;

/* ---- fusion: chains of small ops that kernels may claim ------------------------------------------------------------ */
typedef struct tenon_fop { /* one op of a chain; an op component (abi/op.h) publishes which argument stands where */
  tenon_head h;
  tenon_id id;
  tenon_tid t[4]; /* vectors, tables, rows; they are 0 while a claim is asked for, and filled in when the op is recorded */
  float f[4];
  int32_t i[8];
  tenon_tid live; /* u32: how many rows are live; 0 = TENON_STEP_LIVE's first.  Every form honours it */
  uint32_t reserved;
} tenon_fop;
enum {                  /*  t[]; f[]; i[]                             (a revised meaning is a new id) */
  TENON_F_RMSNORM = 1,  /*  weight f32[columns]; eps: y = x * rsqrt(mean(x^2) + eps) * weight */
  TENON_F_BIAS = 2,     /*  bias f32[columns] */
  TENON_F_ADD = 3,      /*  addend f32[rows][columns]: the residual, or a delta made beforehand */
  TENON_F_SILU_MUL = 4, /*  -: columns [0, n/2) gate columns [n/2, n): y = silu(a) * b, n/2 columns */
  /* The next three work over heads: x's columns are the Q, K and V heads of a row in order; i[2..5]: q heads, kv heads, k dim, v dim. */
  TENON_F_QK_NORM = 5,   /* q weight, k weight f32[k dim]; eps */
  TENON_F_ROPE = 6,      /* table f32[positions][rotated / 2][2] of (cos, sin); -; rotated dims, pairing (0: i with i +
                            rotated/2, 1: 2i with 2i + 1) */
  TENON_F_KV_APPEND = 7, /* -: the cache takes the K and V columns, Q stays.  The cache records it */
  TENON_F_SOFTCAP = 8,   /* -; cap: y = cap * tanh(x / cap) */
  TENON_F_LAYER_NORM = 9, /* weight, bias f32[columns]; eps: y = (x - mean(x)) * rsqrt(variance(x) + eps) * weight + bias */
  TENON_F_SCALE = 10,     /* -; factor: y = factor * x */
  TENON_F_GELU_MUL = 11,  /* -: as SILU_MUL with gelu(a) = a / 2 * (1 + tanh(sqrt(2 / pi) * (a + 0.044715 a^3))) */
  /* These are the step's own ops: the device records them (record_step_op). */
  TENON_F_GATHER_ROWS = 64, /* rows by TENON_STEP_OUT_ROW: y[i] = x[out_row[i]] */
  TENON_F_VERIFY = 65,      /* t[] as in tenon/sdk/told.h.  y = ACCEPTED from x = NEXT, and SURVIVOR: the rows
                               up to the first whose logits are wanted survive, then from that one on the first child whose
                               token is the one chosen for its parent, and so on */
  TENON_F_ADVANCE = 66,     /* count u32[1]; -; entries, words of an entry, 1 = the rows move on, the first word for SURVIVOR or
                               0: the step's last op, on devices with queues.  If rows move on, every row's logits are wanted,
                               each sequence's rows follow each other, POS, PLACE and KV_LEN grow by ACCEPTED, and the first
                               row's TOKEN becomes the x of the last row that survives, or 0 if that is no token.  Posts x, what
                               VERIFY told, for the host to y, u32[entries][words] in TENON_SPACE_HOST: the entry count % entries
                               gets x of all out rows, ACCEPTED of all sequences, SURVIVOR of all live rows if it has a word, and
                               last, in word 0, count + 1, which is the new count */
  TENON_F_POOL = 67,        /* -: x f32[rows][columns] of all rows goes into y f32[slots][2][columns].  Of each sequence of the step,
                               y[slot][0] becomes the sum of its rows, each added in its turn to what is there, or to 0 if
                               KV_LEN[slot] is 0, so that a text's sum has the same bits in one step or many; y[slot][1]
                               becomes its last row */
  TENON_F_TAKE = 69         /* told i32[out rows]; x i32[rows], y = TOKEN: before a step that is launched while the one before it
                               runs, on devices with queues.  A row whose x is not below 0 gets as its TOKEN the NEXT of the out row
                               x of the step before, or 0 if told, what VERIFY told of it, is no token */
};
typedef struct tenon_chain { /* the ops are applied in order */
  tenon_head h;
  uint32_t n, reserved;
  const tenon_fop *const *op;
} tenon_chain;
typedef struct tenon_claim { /* an answer: how much of each chain the op does itself */
  tenon_head h;
  uint32_t pro;     /* the LAST pro ops of the prologue */
  uint32_t epi;     /* the FIRST epi ops of the epilogue; the builder records the rest as visible ops */
  uint32_t variant; /* the plugin's own; the host hands it back to bind and record */
} tenon_claim;

/* A footprint says what a site or a cache needs, in bytes of device memory unless it says otherwise. */
#define TENON_MAX_STORES 8
typedef struct tenon_footprint {
  tenon_head h;
  uint32_t n_stores, flags;
  uint64_t store_bytes[TENON_MAX_STORES]; /* the host owns the stores, which outlive steps and are aligned to 256 bytes */
  uint64_t load_bytes;                    /* load() gets so much scratch */
  uint32_t passes, reserved;              /* load() sees every row so often; 0 or 1 = once */
} tenon_footprint;
enum {
  /* Store i is plain matrix i exactly as the file has it: the host may hand out the file's mapping and never calls load(). */
  TENON_FOOTPRINT_IN_PLACE = 1,
  TENON_FOOTPRINT_ENDLESS = 2, /* a cache says that sequences of any length fit */
  TENON_FOOTPRINT_WHOLE = 4,   /* load() wants all rows of a matrix in one call */
  TENON_FOOTPRINT_EXACT = 8    /* each weight stands for the value that it has in the file: nothing is rounded anew */
};

#ifdef __cplusplus
}
#endif
#endif
