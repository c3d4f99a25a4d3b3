/* quantization/1: how weight matrices are stored and multiplied.  C11 and C++20.
 * A site is a group of matrices that share x and lie side by side in y (Q, K, V; gate, up; or just one).
 *
 * WHAT A FILE STORES is the scheme's to judge.  The host knows no published format: a matrix comes with all tensors under its
 * name ("X.qweight", "X.scales", "X.g_idx", ...) and with the file's own description, and claim() takes it or refuses it with
 * the name of the tensor, what was found and what would be right.  The host has checked the shape of plain matrices, and that
 * the matrices of all experts are stored alike.
 *
 * A ROUTED site has that group once for each expert, all of one shape and stored alike: tenon_linear.experts sets of n_mats
 * matrices; out_dim has those of one set.  Each row of x is multiplied by the set that its entry of
 * tenon_linear_call.expert names:  y[r] = epilogue(prologue(x[r]) W_{expert[r]}^T).
 *   - The vocabulary's ops keep their meaning, so a scheme claims the same ones: a norm's weight, a bias, an addend are
 *     those of the site, not of an expert.
 *   - expert[r] < 0: the row is skipped.  Its product is zeros, and the epilogue applies to those as to any other, whether
 *     it was claimed or not.  A number from `experts` on is an error on a device that walks; elsewhere the row is skipped.
 *   - The numbers come from an op of the same program as a rule, so that what they choose is not known before the wait of
 *     the overlap contract.
 *   - A product of fewer rows than experts reads no matrices but those that its rows name, and its cost says so.
 *   - In load(), matrix m of expert e is mat = e * n_mats + m.  Experts do not lie in place, and are no embedding.
 * A scheme that has no routed products answers TENON_REFUSED in claim, and says so.
 *
 * WRITING is the scheme's, too.  describe() says which tensors it writes under a matrix's name and encode() fills them, so that
 * any installed scheme can write model files.
 *
 * CALIBRATION: a scheme with observed_bytes and observe sees x of its sites while texts run through a pipeline whose matrices
 * are not its own yet: the house records observe() before the product, on x as the product takes it, all ops before it done.
 * What it added up comes back as tenon_encode.observed. */
#ifndef TENON_ABI_QUANTIZATION_H
#define TENON_ABI_QUANTIZATION_H

#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor that a file has, or is to have, under a matrix's name.  Frozen. */
typedef struct tenon_stored {
  const char *name; /* what follows the matrix's name and a dot: "weight", "qweight", "weight_scale" */
  tenon_format format;
  uint32_t rank; /* 0 to 4 */
  int64_t dim[4]; /* elements, outermost first */
} tenon_stored;

/* A matrix and everything that the file has under its name, but for its bias.  A PLAIN matrix is one tensor "weight" of
 * floats or GGUF's blocks, (out_dim, in_dim).  Frozen. */
typedef struct tenon_matrix {
  const char *name; /* in the file: "model.layers.3.mlp.down_proj" */
  uint32_t n_tensors, reserved;
  const tenon_stored *tensor; /* in the order of their names */
} tenon_matrix;

typedef struct tenon_linear {
  tenon_head h;
  const char *path;                    /* "layers.3.attention.qkv" */
  uint32_t n_mats, x_format, y_format; /* 1 to TENON_MAX_STORES matrices */
  uint32_t experts;                    /* 0, or of a routed site how many sets of n_mats matrices there are */
  const int64_t *out_dim;              /* rows of each matrix, of this rank */
  const tenon_matrix *matrix;          /* each matrix in the file; of a routed site matrix m of expert e at e * n_mats + m */
  const char *description;             /* what the file says of how matrices are stored: config.json's quantization_config
                                          as JSON; "" = nothing */
  int64_t in_dim;
  uint32_t rows_wanted;    /* 1: record_rows will be called too (tied or plain embedding) */
  uint32_t product_wanted; /* 1: record will be called */
  const tenon_chain *pro, *epi;
} tenon_linear;

typedef struct tenon_linear_call {
  tenon_head h;
  tenon_tid x, y;         /* (rows, in_dim), (rows, sum of out_dim); rows may be strided */
  const tenon_tid *store; /* as many as the footprint has */
  tenon_tid expert;       /* of a routed site, i32[rows]: each row's set; else 0.  Sorting rows is the scheme's affair */
  tenon_tid row_live;     /* u32: live rows; 0 = TENON_STEP_LIVE's first */
  uint32_t reserved;
  const tenon_chain *pro, *epi; /* with tensors filled in; only what was claimed */
  const tenon_claim *claim;
} tenon_linear_call;

/* A tensor of a matrix, or some rows of it: contiguous, as the file stores it.  Frozen. */
typedef struct tenon_slice {
  const void *data; /* device memory where the device has queues (valid until what load() enqueued is done), else the host's */
  uint64_t bytes;
} tenon_slice;

/* Rows [row0, row0 + rows) of matrix `mat`: of tensors whose first dimension is the matrix's rows these rows, of others all
 * of it, with every call. */
typedef struct tenon_rows {
  tenon_head h;
  uint32_t mat, pass; /* passes count from 0 */
  uint64_t row0, rows;
  const tenon_slice *tensor; /* for each tensor of the matrix, in its order */
} tenon_rows;

/* How a scheme writes one matrix.  Texts are the component's and valid as long as it. */
#define TENON_MAX_STORED 8
typedef struct tenon_written {
  tenon_head h;
  uint32_t n_tensors;
  uint32_t whole; /* 1: encode() wants all rows in one call */
  tenon_stored tensor[TENON_MAX_STORED];
  const char *description; /* a JSON object, config.json's quantization_config: of every matrix the same */
} tenon_written;

/* Rows [row0, row0 + rows) of a matrix, to be written. */
typedef struct tenon_encode {
  tenon_head h;
  uint64_t row0, rows;
  const float *data;    /* (rows, in_dim), contiguous */
  const void *observed; /* what observe() added up for the site, observed_bytes, in host memory; NULL: no calibration */
  void *const *out;     /* for each tensor described: where these rows of it go if its first dimension is the matrix's rows,
                           else all of it, zeroed before the first call, which every call may write to */
} tenon_encode;

typedef struct tenon_observe_call {
  tenon_head h;
  tenon_tid x;        /* f32 (rows, in_dim); rows may be strided */
  tenon_tid state;    /* observed_bytes, zeroed before the first text; what a step adds, later ones add to */
  tenon_tid expert;   /* see tenon_linear_call */
  tenon_tid row_live; /* see tenon_linear_call */
} tenon_observe_call;

typedef struct tenon_quantization {
  tenon_head h;
  /* Up to this many rows a row's result does not depend, to the bit, on the other rows; 0 = not even that. */
  uint32_t row_invariant_max, reserved;
  /* [setup] for each bucket of bounds, before bind: rows decide what pays. */
  tenon_status (*claim)(void *self, const tenon_linear *s, const tenon_bounds *b, tenon_claim *out, tenon_reason *why);
  /* [setup] sees the claims of all buckets at once: the layout may depend on them.  No weights yet. */
  tenon_status (*bind)(void *self, const tenon_linear *s, const tenon_claim *const *claims, uint32_t n, void **site,
                       tenon_reason *why);
  tenon_status (*footprint)(void *self, void *site, tenon_footprint *out, tenon_reason *why); /* [setup] */
  /* [setup] converts into the stores, with growing row ranges, each row once in each pass, one pass over all matrices after
   * the other; deterministic.  scratch: load_bytes. */
  tenon_status (*load)(void *self, void *site, const tenon_rows *src, void *const *store, void *scratch, void *queue,
                       tenon_reason *why);
  void (*unbind)(void *self, void *site); /* [setup] programs that use it are gone */
  tenon_status (*record)(void *self, void *site, const tenon_linear_call *c, const tenon_recorder *rec,
                         tenon_reason *why); /* [record] */
  /* [record] y[r] = row index[r] of matrix 0 as f32; index i32[rows].  NULL: the scheme cannot hold embeddings. */
  tenon_status (*record_rows)(void *self, void *site, const tenon_tid *store, tenon_tid index, tenon_tid y,
                              const tenon_recorder *rec, tenon_reason *why);
  /* [setup] how it would write the one matrix of s, whose floats it will be given, its file's format being of no account.
   * REFUSED: such a matrix it cannot write, with the reason.  NULL: the scheme writes no files. */
  tenon_status (*describe)(void *self, const tenon_linear *s, tenon_written *out, tenon_reason *why);
  /* [setup, any thread] after describe() of the same s; calls with growing row ranges, each row once; deterministic.
   * Different matrices are encoded by different threads at the same time.  REFUSED: these numbers it cannot write. */
  tenon_status (*encode)(void *self, const tenon_linear *s, const tenon_encode *e, tenon_reason *why);
  /* [setup] device memory that observe() wants for the site s; 0: it has no wish to see it.  NULL: no calibration. */
  uint64_t (*observed_bytes)(void *self, const tenon_linear *s);
  /* [record] an op that adds to the state what the live rows of x tell. */
  tenon_status (*observe)(void *self, const tenon_linear *s, const tenon_observe_call *c, const tenon_recorder *rec,
                          tenon_reason *why);
} tenon_quantization;

#ifdef __cplusplus
}
#endif
#endif
