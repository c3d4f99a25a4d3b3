/* attention/1: attention lets queries meet the view of a cache.  C11 and C++20.
 * The view and the step decide what a row sees; tenon/abi/kv_cache.h says how, once for all attentions. */
#ifndef TENON_ABI_ATTENTION_H
#define TENON_ABI_ATTENTION_H

#include "tenon/abi/kv_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tenon_attn { /* this describes the attention of one layer */
  tenon_head h;
  uint32_t q_heads, kv_heads, k_dim, v_dim;
  uint32_t window;      /* 0 = unlimited; else a row sees the last `window` positions, itself included */
  float scale, softcap; /* scores are multiplied by scale, then capped: softcap * tanh(s / softcap); softcap 0 = no cap */
  uint32_t out_format;  /* of tenon_attn_call.out; 0 = f32, and so it is unless the attention leaves_links */
  const tenon_chain *pro; /* the products before it left these of QK_NORM, ROPE, KV_APPEND; ROPE after KV_APPEND turns queries only */
} tenon_attn;

/* This has the tensors of one layer's attention in a program that is being recorded. */
typedef struct tenon_attn_call {
  tenon_head h;
  tenon_tid q;   /* f32 (rows, q_heads * k_dim), rows may be strided */
  tenon_tid out; /* f32 (rows, q_heads * v_dim), or as linked_rows.h has so many rows and columns in out_format */
  const tenon_kv_view *kv;
  const tenon_chain *pro; /* it holds what was claimed and nothing else, with tensors filled in */
  const tenon_claim *claim;
  uint32_t only_out_rows; /* 1: of `out` only the rows of TENON_STEP_OUT_ROW are read; an attention may leave others as they are.
                             It is 0 where the view has weight_rows */
  uint32_t reserved;
} tenon_attn_call;

typedef struct tenon_attention {
  tenon_head h;
  /* In steps of up to this many rows (4, if of one row a sequence) a row's result does not depend, to the bit, on the other rows;
   * 0 = it always may, UINT32_MAX = it never does.  Over a view with TENON_POS_TABLE cells may be summed in another order where a step has several rows of a
   * sequence. */
  uint32_t row_invariant_max;
  uint32_t leaves_links; /* 1: where a product alone reads the result, claim is asked once more, with formats of that product's x
                            (tenon/sdk/linked_rows.h) as out_format, and REFUSES those that record does not leave */
  /* [setup] kv is the prototype of the layer's view: tensors and strides are 0.  REFUSED, with the reason: it has no reader for
   * that view, or none for trees where the bounds allow them.  The host then asks once more with the codecs of preferred_format
   * and records the cache's record_dequant, whose cost the plan names; pipeline.strict makes that an error. */
  tenon_status (*claim)(void *self, const tenon_attn *a, const tenon_kv_view *kv, const tenon_bounds *b, tenon_claim *out,
                        tenon_reason *why);
  tenon_status (*record)(void *self, const tenon_attn *a, const tenon_attn_call *c, const tenon_recorder *rec,
                         tenon_reason *why); /* [record] */
  /* [setup] It names the plain codecs that it reads best: to these the cache's record_dequant turns after a refusal. */
  tenon_status (*preferred_format)(void *self, tenon_kv_format *out, tenon_reason *why);
} tenon_attention;

#ifdef __cplusplus
}
#endif
#endif
