/* attention/1: how queries meet a KV view.  C11 and C++20. */
#ifndef TENON_ABI_ATTENTION_H
#define TENON_ABI_ATTENTION_H

#include "tenon/abi/kv_cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TENON_MASK_CAUSAL = 0, TENON_MASK_PARENT = 1 /* by TENON_STEP_PARENT: trees of drafts */ };
typedef struct tenon_attn { /* of one layer: mask and window are the layer's, not the cache's */
  tenon_head h;
  uint32_t layer, q_heads, kv_heads, k_dim, v_dim;
  uint32_t window;           /* 0 = unlimited; else a row attends to the last `window` positions, itself included */
  uint32_t mask, q_format;   /* TENON_MASK_*; f32 */
  float scale, softcap;      /* softcap 0 = none */
  uint32_t has_sink, want_lse; /* has_sink: one learned logit a head joins the softmax's denominator */
  const tenon_chain *pro, *epi; /* pro: what of ROPE, KV_APPEND the producer left */
} tenon_attn;

typedef struct tenon_attn_call {
  tenon_head h;
  tenon_tid q;    /* f32 (rows, q_heads * k_dim), rows may be strided */
  tenon_tid out;  /* f32 (rows, q_heads * v_dim) */
  tenon_tid lse;  /* f32 (rows, q_heads); 0 = not wanted */
  tenon_tid sink; /* f32 (q_heads) */
  tenon_tid plan; /* what record_plan made; 0 = none */
  uint32_t reserved;
  const tenon_kv_view *kv;
  const tenon_chain *pro, *epi; /* with tensors filled in; only what was claimed */
  const tenon_claim *claim;
} tenon_attn_call;

typedef struct tenon_attention {
  tenon_head h;
  /* A row's result does not depend, to the bit, on the other rows of a step up to this many; see quantization. */
  uint32_t row_invariant_max, reserved;
  /* [setup] REFUSED with the reason when no reader is compiled in for this format: the builder then records the cache's
   * dequant, at a printed cost, or fails under strict. */
  tenon_status (*claim)(void *self, const tenon_attn *a, const tenon_kv_format *f, const tenon_bounds *b, tenon_claim *out,
                        tenon_reason *why);
  /* [record] may be NULL; once per program and group: an op that splits the live lengths into work items on the device. */
  tenon_status (*record_plan)(void *self, const tenon_attn *a, const tenon_kv_view *kv, const tenon_recorder *rec,
                              tenon_tid *plan, tenon_reason *why);
  tenon_status (*record)(void *self, const tenon_attn *a, const tenon_attn_call *c, const tenon_recorder *rec,
                         tenon_reason *why); /* [record] */
  /* [setup] the plain format that this attention reads best, for the cache's dequant after a refusal. */
  tenon_status (*preferred_format)(void *self, tenon_kv_format *out, tenon_reason *why);
} tenon_attention;

#ifdef __cplusplus
}
#endif
#endif
