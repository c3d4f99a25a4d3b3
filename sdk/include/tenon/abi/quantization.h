/* quantization/1: a scheme decides how weight matrices are stored and multiplied.  C11 and C++20.
 * A site is a set of matrices that share x and whose columns lie side by side in y (Q, K and V; gate and up; or one alone).
 *
 * WHAT A FILE STORES is the scheme's to judge.  The host knows no published format: a matrix comes with all tensors under its
 * name ("X.qweight", "X.scales", "X.g_idx", ...) and with the file's own description, and claim() takes it or refuses it with
 * the name of the tensor, what was found and what would be right.  The host has checked the shape of plain matrices, and that
 * the matrices of all experts are stored alike.
 *
 * A ROUTED site has that set once for each expert, and all sets have one shape and are stored alike: there are
 * tenon_linear.experts sets of n_mats matrices, and out_dim has the rows of one set.  Each row of x is multiplied by the set
 * that its entry of tenon_linear_call.expert names:  y[r] = epilogue(prologue(x[r]) W_{expert[r]}^T).
 *   - The vocabulary's ops keep their meaning, so a scheme claims the same ones: a norm's weight, a bias, an addend are
 *     those of the site, not of an expert.
 *   - expert[r] < 0: the row is skipped.  Its product is zeros, and the epilogue applies to those as to any other, whether
 *     it was claimed or not.  A number from `experts` on is an error on a device that walks; elsewhere the row is skipped.
 *   - The numbers come from an op of the same program as a rule, so a kernel knows what they choose only after the wait of
 *     the overlap contract.
 *   - A product of fewer rows than experts reads no matrices but those that its rows name, and its cost says so.
 *   - In load(), matrix m of expert e is mat = e * n_mats + m.  Experts do not lie in place, and are no embedding.
 * A scheme that has no routed products answers TENON_REFUSED in claim, and says so.
 *
 * WRITING is the scheme's, too.  describe() says which tensors the scheme writes under a matrix's name and encode() fills them,
 * so that any installed scheme can write model files.
 *
 * CALIBRATION: a scheme with observed_bytes and observe sees x of its sites while texts run through a pipeline whose matrices
 * are not its own yet: the host records observe() before the product, on x as the product takes it, after all ops that stand
 * before the product.  What it added up comes back as tenon_encode.observed; an expert's matrix gets what its rows told.
 *
 * FOLDING: column i of every matrix that takes x may be multiplied by a factor, if x is divided by it:  (x / f) (W f)^T is
 * x W^T.  With column_factors() a scheme chooses factors that make its rounding lose less.  The host divides x where it comes
 * from: the weights of the norm before the product, the rows of V before O, the rows of `up` before `down`; so a file needs no
 * place for factors.  It asks where that changes nothing else, and has the matrices encoded with their factors in them.  The
 * router of a mixture takes what its experts take, and stays plain: the host multiplies its columns. */
#ifndef TENON_ABI_QUANTIZATION_H
#define TENON_ABI_QUANTIZATION_H

#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This describes a tensor that a file has, or is to have, under a matrix's name.  Frozen. */
typedef struct tenon_stored {
  const char *name; /* it follows the matrix's name and a dot: "weight", "qweight", "weight_scale" */
  tenon_format format;
  uint32_t rank; /* 0 to 4 */
  int64_t dim[4]; /* counts of elements, outermost first */
} tenon_stored;

/* This describes a matrix and everything that the file has under its name, but for its bias.  A PLAIN matrix is one tensor
 * "weight" of floats or GGUF's blocks, (out_dim, in_dim).  Frozen. */
typedef struct tenon_matrix {
  const char *name; /* the file has it under this name: "model.layers.3.mlp.down_proj" */
  uint32_t n_tensors, reserved;
  const tenon_stored *tensor; /* [n_tensors], sorted by name */
} tenon_matrix;

/* This describes a site to its scheme.  The host owns it and what it points to; the scheme borrows them for the call. */
typedef struct tenon_linear {
  tenon_head h;
  const char *path;                    /* the site's name in the model: "layers.3.attention.qkv" */
  uint32_t n_mats, x_format, y_format; /* a site, or one expert of it, has 1 to TENON_MAX_STORES matrices; a format may be one
                                          that two schemes agree on (tenon/sdk/linked_rows.h) */
  uint32_t experts;                    /* a routed site has so many sets of n_mats matrices; 0 = the site is not routed */
  const int64_t *out_dim;              /* [n_mats]: matrix m has out_dim[m] rows */
  const tenon_matrix *matrix;          /* [n_mats], or [experts][n_mats]: the matrices as the file has them */
  const char *description;             /* the file says this about how its matrices are stored: config.json's
                                          quantization_config as JSON; "" = it says nothing */
  int64_t in_dim;                      /* every matrix has so many columns */
  uint32_t rows_wanted;    /* 1: the host will call record_rows too (tied or plain embedding) */
  uint32_t product_wanted; /* 1: the host will call record */
  const tenon_chain *pro, *epi; /* the small ops before and after the product, which the scheme may claim */
} tenon_linear;

/* This has the tensors of one product of a site in a program that is being recorded. */
typedef struct tenon_linear_call {
  tenon_head h;
  tenon_tid x, y;         /* (rows, in_dim), (rows, sum of out_dim); rows may be strided */
  const tenon_tid *store; /* [n_stores of the footprint] */
  tenon_tid expert;       /* i32[rows] of a routed site: each row's set; else 0.  Sorting rows is the scheme's affair */
  tenon_tid row_live;     /* u32: how many rows are live; 0 = TENON_STEP_LIVE's first */
  uint32_t reserved;
  const tenon_chain *pro, *epi; /* they hold what was claimed and nothing else, with tensors filled in */
  const tenon_claim *claim;
  /* If y_format was one for a norm (tenon/sdk/linked_rows.h) when the scheme claimed: y is f32, and besides it the product leaves
   * rows for this RMSNORM in a tensor of that format.  0, NULL: it leaves y alone, whatever it claimed. */
  tenon_tid normed;
  uint32_t reserved2;
  const tenon_fop *norm;
} tenon_linear_call;

/* This is a tensor of a matrix, or some rows of it: contiguous, as the file stores it.  Frozen. */
typedef struct tenon_slice {
  const void *data; /* device memory where the device has queues (valid until what load() enqueued is done), else the host's */
  uint64_t bytes;
} tenon_slice;

/* load() gets rows [row0, row0 + rows) of matrix `mat`: a tensor whose first dimension is the matrix's rows comes as these
 * rows, any other comes whole with every call. */
typedef struct tenon_rows {
  tenon_head h;
  uint32_t mat, pass; /* passes count from 0 */
  uint64_t row0, rows;
  const tenon_slice *tensor; /* [n_tensors of the matrix], in the matrix's order */
} tenon_rows;

/* This says how a scheme writes one matrix.  The component owns the texts; they are valid as long as it lives. */
#define TENON_MAX_STORED 8
typedef struct tenon_written {
  tenon_head h;
  uint32_t n_tensors;
  uint32_t whole; /* 1: encode() wants all rows in one call */
  tenon_stored tensor[TENON_MAX_STORED];
  const char *description; /* a JSON object, config.json's quantization_config: the same one for every matrix */
  const char *plain_names; /* the description's list of this name gets the names of the matrices that no scheme writes, but for
                              embeddings: "model.layers.0.mlp.gate", beside those that it has; NULL: there is no such list */
} tenon_written;

/* encode() gets rows [row0, row0 + rows) of a matrix. */
typedef struct tenon_encode {
  tenon_head h;
  uint64_t row0, rows;
  const float *data;    /* (rows, in_dim), contiguous */
  const void *observed; /* observe() added this up for the site or the expert; NULL = no calibration, or no row came to it */
  void *const *out;     /* [n_tensors described], in host memory: a tensor whose first dimension is the matrix's rows has its
                           pointer at row0; any other is all there, zero before the first call, and every call may write to it */
  const float *factor;  /* [in_dim]: data has been multiplied by these, column by column, and x will come divided by them;
                           `observed` is about x before that.  NULL = there are none */
} tenon_encode;

/* column_factors() gets the matrices that share x, and says what their columns are multiplied by.  Where experts is not 0 these
 * are the gate and up of all experts, each with its own rows of x, and have one set of factors.  About the down of each expert
 * it is asked by itself, as of a site that is not routed. */
typedef struct tenon_column_factors {
  tenon_head h;
  const float *const *data;    /* [n_mats], or [experts][n_mats]: matrix m is (out_dim[m], in_dim), contiguous, without factors */
  const void *const *observed; /* [1], or [experts]: as in tenon_encode; one at least is not NULL */
  const uint32_t *tied;        /* [in_dim]: columns of the same number get the same factor, since one element before them makes
                                  them all; the numbers are below in_dim */
  float *factor;               /* [in_dim]: ones, to be replaced by finite numbers above 0 */
} tenon_column_factors;

/* This has the tensors of one observe() in a program that is being recorded. */
typedef struct tenon_observe_call {
  tenon_head h;
  tenon_tid x;        /* f32 (rows, in_dim); rows may be strided */
  tenon_tid state;    /* u8[observed_bytes], [experts][..] if routed; zero before the first text; every step adds to it */
  tenon_tid expert;   /* as in tenon_linear_call */
  tenon_tid row_live; /* as in tenon_linear_call */
} tenon_observe_call;

typedef struct tenon_quantization {
  tenon_head h;
  /* In steps of up to this many rows (4, if of one row a sequence) a row's bits depend on no other row; 0 = they always may.
   * In a pipeline none of whose programs has more than one row whose token is wanted (tenon_recorder's largest), a step of one
   * row may have other bits than one of several. */
  uint32_t row_invariant_max, reserved;
  /* [setup] It is called once for each bounds of the programs to be made, before bind: how many rows x has at most decides
   * which ops are worth claiming (the last layer's sites may have fewer rows than the program).  REFUSED, with the reason: the
   * scheme cannot hold or multiply this site. */
  tenon_status (*claim)(void *self, const tenon_linear *s, const tenon_bounds *b, tenon_claim *out, tenon_reason *why);
  /* [setup] It sees all n claims at once, since the stores' layout may depend on them, and makes the site, which lives until
   * unbind.  There are no weights yet. */
  tenon_status (*bind)(void *self, const tenon_linear *s, const tenon_claim *const *claims, uint32_t n, void **site,
                       tenon_reason *why);
  tenon_status (*footprint)(void *self, void *site, tenon_footprint *out, tenon_reason *why); /* [setup] */
  /* [setup] It converts rows into the stores and is deterministic.  The row ranges grow, each pass has each row once, and a
   * pass goes over all matrices before the next one begins.  scratch has load_bytes. */
  tenon_status (*load)(void *self, void *site, const tenon_rows *src, void *const *store, void *scratch, void *queue,
                       tenon_reason *why);
  void (*unbind)(void *self, void *site); /* [setup] programs that use the site are gone by then */
  tenon_status (*record)(void *self, void *site, const tenon_linear_call *c, const tenon_recorder *rec,
                         tenon_reason *why); /* [record] */
  /* [record] y[r] = row index[r] of matrix 0, as f32; index is i32[rows].  NULL: the scheme cannot hold embeddings. */
  tenon_status (*record_rows)(void *self, void *site, const tenon_tid *store, tenon_tid index, tenon_tid y,
                              const tenon_recorder *rec, tenon_reason *why);
  /* [setup] It says how it would write the one matrix of s.  encode() will get floats, so the format that the matrix's own
   * file has does not matter.  REFUSED, with the reason: it cannot write such a matrix.  NULL: the scheme writes no files. */
  tenon_status (*describe)(void *self, const tenon_linear *s, tenon_written *out, tenon_reason *why);
  /* [setup, any thread] It is called after describe() of the same s, with row ranges that grow and have each row once, and is
   * deterministic.  Different threads encode different matrices at the same time.  REFUSED: it cannot write these numbers. */
  tenon_status (*encode)(void *self, const tenon_linear *s, const tenon_encode *e, tenon_reason *why);
  /* [setup] observe() wants so many bytes of device memory for the site s, or for each of its experts; 0: it need not see x of
   * this site.  NULL: the scheme needs no calibration. */
  uint64_t (*observed_bytes)(void *self, const tenon_linear *s);
  /* [record] It emits ops that add to the state what the live rows of x tell. */
  tenon_status (*observe)(void *self, const tenon_linear *s, const tenon_observe_call *c, const tenon_recorder *rec,
                          tenon_reason *why);
  /* [setup] It chooses the factors of the columns of x, see FOLDING, and is deterministic.  s has all matrices that share x,
   * which may be those of two sites.  NULL: the scheme wants no factors. */
  tenon_status (*column_factors)(void *self, const tenon_linear *s, const tenon_column_factors *c, tenon_reason *why);
} tenon_quantization;

#ifdef __cplusplus
}
#endif
#endif
