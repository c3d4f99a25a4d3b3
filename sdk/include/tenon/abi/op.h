/* op/1: a small operation stands before or after a product, or over heads, and has a name.  C11 and C++20.
 *
 * A model names it with its arguments; the host makes a tenon_fop of that and offers it to the products and the attention
 * beside it.  What they do not claim, because they do not know its id or for any other reason, the component records
 * itself.  So a new operation is one library for each device, and nothing else needs to know it. */
#ifndef TENON_ABI_OP_H
#define TENON_ABI_OP_H

#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An argument of an op has a name and a place in tenon_fop.  Frozen. */
enum {
  TENON_ARG_VECTOR = 1, /* t[index]: f32, an element for each column of x; the model declares it */
  TENON_ARG_TABLE,      /* t[index]: f32 of another shape, which the argument's doc states; the model declares it */
  TENON_ARG_ROWS,       /* t[index]: f32 (rows, columns of x), named when a step is recorded; rows may be strided */
  TENON_ARG_NUMBER,     /* f[index] */
  TENON_ARG_INTEGER     /* i[index] */
};
typedef struct tenon_op_arg {
  const char *name, *doc;
  uint32_t kind, index;
} tenon_op_arg;

enum {
  TENON_SMALL_OP_IN_PLACE = 1, /* y may be x */
  TENON_SMALL_OP_BY_COLUMN = 2 /* column c of y is made of column c of x, of VECTORs and of ROWS: ops over columns that lie
                                  side by side are one op over all of them */
};
typedef struct tenon_small_op {
  tenon_head h;
  tenon_id id;    /* below 2^16 Tenon's own (TENON_F_*), else the 64-bit FNV-1a hash of the component's name */
  uint32_t flags; /* TENON_SMALL_OP_* */
  uint32_t n_args;
  const tenon_op_arg *arg; /* every one of them is needed.  INTEGERs named q_heads, kv_heads, k_dim and v_dim are the
                              attention's; the host fills them in */
  /* [setup] It says how many columns y has if x has so many; op has its numbers and integers.  REFUSED, with the reason: the op
   * cannot have such columns or numbers. */
  tenon_status (*columns)(void *self, const tenon_fop *op, int64_t x, int64_t *y, tenon_reason *why);
  /* [record] y = op(x) for the rows below op->live; x and y are f32 (rows, columns), contiguous inside a row, rows may be
   * strided.  y is x only if the flags allow it. */
  tenon_status (*record)(void *self, const tenon_fop *op, tenon_tid x, tenon_tid y, const tenon_recorder *rec,
                         tenon_reason *why);
} tenon_small_op;

#ifdef __cplusplus
}
#endif
#endif
