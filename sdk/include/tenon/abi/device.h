/* device/1: a device has memory and queues, captures and replays, and records the step's own ops.  C11 and C++20. */
#ifndef TENON_ABI_DEVICE_H
#define TENON_ABI_DEVICE_H

#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { /* tenon_device.isa on x86-64 says what kernels may use; if the user asked for less, it is that already */
  TENON_ISA_AVX2 = 1,        /* AVX2, FMA, F16C */
  TENON_ISA_AVX512 = 2,      /* F, BW, DQ, VL */
  TENON_ISA_AVX512_VNNI = 4,
  TENON_ISA_AVX512_BF16 = 8,
  TENON_ISA_AVX_VNNI = 16,
  TENON_ISA_AVX512_VBMI = 32
};
enum {
  TENON_DEVICE_WALKS = 1,  /* no queues: core walks the program with its threads and calls part() */
  TENON_DEVICE_ZEROES = 2, /* what alloc gives is zero, and takes no memory before it is touched */
  TENON_DEVICE_OVERLAPS = 4 /* kernels that keep the overlap contract may be launched with TENON_LAUNCH_OVERLAP */
};

/* Elements 2p, 2p + 1 of a made-up tensor: the word mix(key + (p + 1) * 0x9e3779b97f4a7c15), mix being SplitMix64's finalizer,
 * gives two sums of four bytes each (bytes 0, 1, 2, 3 and 4, 5, 6, 7), which are the places in the table. */
typedef struct tenon_generated {
  tenon_head h;
  tenon_format format; /* TENON_F32, TENON_F16, TENON_BF16 */
  uint32_t reserved;
  uint64_t key, first, count; /* elements [first, first + count) are wanted; first is even */
  const void *table;          /* 1021 elements of the format, host memory */
} tenon_generated;

/* This op stands before a pass of a draft model in a program whose sequences have rows_per_seq rows each, one after another, of
 * which only the first one's token is given.  The token that the samplers chose for a live sequence in the pass before becomes
 * the TOKEN of the sequence's row `pass`, unless `pass` is 0, and that row is the sequence's only one in the pass. */
typedef struct tenon_draft_pass {
  tenon_head h;
  uint32_t pass, rows_per_seq;
  tenon_tid next; /* i32[seqs]: the tokens chosen in the pass before */
  /* The op writes the step state of the pass: as TENON_STEP_*, one row a sequence.  KV_LEN is the step's and `pass` more. */
  tenon_tid live, token, pos, slot, parent, seq_row, kv_len, out_row;
  tenon_tid choice_live, choice_row; /* it writes LIVE and OUT_ROW for the pass's samplers, which see the step's own rows */
} tenon_draft_pass;

typedef struct tenon_device {
  tenon_head h;
  void *self;
  const char *kind; /* "cpu", "cuda": which libraries fit */
  const char *name; /* what people call the hardware */
  uint32_t ordinal, units, arch, flags; /* units: threads, or multiprocessors; arch: 90 for sm_90, 0 on the CPU */
  uint64_t memory, shared_per_unit, isa; /* bytes */
  tenon_status (*alloc)(void *self, uint32_t space, uint64_t bytes, void **out, tenon_reason *why); /* [setup] 256-aligned */
  void (*release)(void *self, uint32_t space, void *p, uint64_t bytes);                             /* [setup] */
  /* [host] It enqueues a copy between any spaces; on a device that walks the copy is done when it returns.  src NULL: zeros. */
  tenon_status (*copy)(void *self, void *queue, void *dst, const void *src, uint64_t bytes, tenon_reason *why);
  /* A device that walks has NULL for all of the next six. */
  tenon_status (*queue)(void *self, void **out, tenon_reason *why);                /* [setup] */
  tenon_status (*wait)(void *self, void *queue, tenon_reason *why);                /* [host] */
  tenon_status (*capture_begin)(void *self, void *queue, tenon_reason *why);       /* [setup] */
  tenon_status (*capture_end)(void *self, void *queue, void **graph, tenon_reason *why); /* [setup] the graph can be replayed */
  tenon_status (*replay)(void *self, void *graph, void *queue, tenon_reason *why); /* [host] */
  void (*graph_release)(void *self, void *graph);                                  /* [setup] */
  /* [record] It emits one of the step's own ops: TENON_F_GATHER_ROWS, VERIFY, POOL and, on a device with queues, ADVANCE.  REFUSED
   * for TAKE: no step is launched before it is known who goes on. */
  tenon_status (*record_step_op)(void *self, const tenon_fop *op, tenon_tid x, tenon_tid y, const tenon_recorder *rec,
                                 tenon_reason *why);
  /* [record] It emits the op that tenon_draft_pass describes.  NULL: the device runs no draft models. */
  tenon_status (*record_draft_pass)(void *self, const tenon_draft_pass *pass, const tenon_recorder *rec,
                                    tenon_reason *why);
  /* [setup] It enqueues the making of a tensor at dst.  NULL: the host makes it up and copies it. */
  tenon_status (*generate)(void *self, void *queue, void *dst, const tenon_generated *what, tenon_reason *why);
  /* [setup] It measures how fast memory can be read: the best of several passes over *bytes, in memory that it takes for that and
   * gives back.  NULL: the host measures. */
  tenon_status (*read_rate)(void *self, void *queue, uint64_t *bytes, double *bytes_per_second, tenon_reason *why);
} tenon_device;

#ifdef __cplusplus
}
#endif
#endif
