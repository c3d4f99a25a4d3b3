/* kv_cache/1: where keys and values live.  C11 and C++20.
 * A format is a point in a parameter space plus run-time strides and a page table that is always there.  Attention always
 * reads back what the cache stored, this step's keys too, so that verifying k rows equals decoding them one by one. */
#ifndef TENON_ABI_KV_CACHE_H
#define TENON_ABI_KV_CACHE_H

#include "tenon/abi/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tenon_kv_plane { /* how one of K, V is coded.  Frozen: a further property comes as a new ext id */
  uint32_t codec;               /* tenon_format */
  uint32_t block, block_axis;   /* elements per scale, 0 = no scales; axis 0 along the head dimension, 1 along tokens */
  uint32_t scale, zero;         /* formats of scale and zero point; 0 = none */
  uint32_t inner;               /* contiguous axis: 0 head dimension, 1 tokens */
  uint32_t tile;                /* 0 plain strides; else the id of a swizzle that the SDK's reader knows */
  uint32_t rotated;             /* 1: stored after rope (K) or after a rotation that q needs too (ext) */
} tenon_kv_plane;

typedef struct tenon_kv_format {
  tenon_head h;
  tenon_kv_plane k, v;
  uint32_t tail_codec, tail_tokens; /* the newest tokens kept in another codec; 0 = none */
  tenon_id ext;
} tenon_kv_format;

enum { TENON_POS_LINEAR = 1, TENON_POS_RING, TENON_POS_TABLE };
#define TENON_NO_PAGE UINT32_MAX
typedef struct tenon_kv_view { /* everything that a reader or writer needs */
  tenon_head h;
  const tenon_kv_format *format; /* lives as long as the cache */
  uint32_t heads, k_dim, v_dim;
  uint32_t page_tokens; /* a power of two: token t of a sequence lies in table column t / page_tokens */
  uint32_t pos_rule;    /* which position a slot of the table holds: masks work on positions, never on slots */
  uint32_t sink_tokens, ring_tokens;
  uint32_t sink_page; /* a page that padding rows may write to, or TENON_NO_PAGE: then they must not write */
  uint32_t columns;   /* of the page table */
  tenon_tid k, v, k_scale, v_scale, k_tail, v_tail;
  tenon_tid pages; /* i32[slots][columns] */
  tenon_tid pos;   /* i32 by page and token, for POS_TABLE */
  int64_t k_stride[3], v_stride[3], ks_stride[3], vs_stride[3]; /* page, token, head; bytes */
  tenon_id group; /* layers of one group share pages and lengths: plan once for all of them */
} tenon_kv_view;

typedef struct tenon_kv_geometry {
  tenon_head h;
  uint32_t layer, heads, k_dim, v_dim;
  uint32_t window, sinks; /* 0 = unlimited; the layer's mask, not the cache's choice */
} tenon_kv_geometry;

/* Layers are known once, by attach: geometry[i] describes layer i.  The pool is the host's: one store of plane bytes, one of
 * tables, as the footprint says; ids of the stores come with view() and the recording functions. */
typedef struct tenon_kv_stores {
  tenon_head h;
  const tenon_tid *store; /* as many as the footprint has */
} tenon_kv_stores;

typedef struct tenon_kv_cache {
  tenon_head h;
  /* [setup] may it hold this layer under these bounds?  Claims nothing, reports rank and refusal. */
  tenon_status (*claim)(void *self, const tenon_kv_geometry *g, const tenon_bounds *b, tenon_claim *out, tenon_reason *why);
  /* [setup] once, before any recording: all layers, and the largest bounds.  bounds->kv_len is the capacity in tokens. */
  tenon_status (*plan)(void *self, const tenon_kv_geometry *const *g, uint32_t n, const tenon_bounds *b,
                       tenon_footprint *out, tenon_reason *why);
  /* [setup] the stores are allocated and zero. */
  tenon_status (*attach)(void *self, void *const *store, void *queue, tenon_reason *why);
  tenon_status (*view)(void *self, uint32_t layer, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_kv_view *out,
                       tenon_reason *why); /* [record] */
  /* The three that make any cache work with any writer and any reader.  All [record], none optional.
   * append: k, v are f32 (rows, heads * dim), rows may be strided; the step's rows, by SLOT and POS. */
  tenon_status (*record_append)(void *self, uint32_t layer, const tenon_kv_stores *s, tenon_tid k, tenon_tid v,
                                const tenon_recorder *rec, tenon_reason *why);
  /* A copy of the layer in the wanted plain format, made anew each step. */
  tenon_status (*record_dequant)(void *self, uint32_t layer, const tenon_kv_stores *s, const tenon_kv_format *want,
                                 const tenon_recorder *rec, tenon_kv_view *out, tenon_reason *why);
  /* Once a program, after verification: drop what TENON_STEP_ACCEPTED rejects.  May emit nothing. */
  tenon_status (*record_commit)(void *self, const tenon_kv_stores *s, const tenon_recorder *rec, tenon_reason *why);
  /* [host] by slot; decisions from upper bounds only.  NO_SPACE: the scheduler waits or preempts. */
  tenon_status (*reserve)(void *self, uint32_t slot, uint32_t kv_len, tenon_reason *why);
  tenon_status (*fork)(void *self, uint32_t from, uint32_t to, uint32_t kv_len, void *queue, tenon_reason *why);
  tenon_status (*truncate)(void *self, uint32_t slot, uint32_t kv_len, tenon_reason *why); /* 0 frees the slot */
  tenon_status (*publish)(void *self, void *queue, tenon_reason *why); /* enqueue changed tables, if any changed */
  /* [host] a sequence's cache as bytes, tagged with the format.  dst NULL: only *bytes is set. */
  tenon_status (*export_sequence)(void *self, uint32_t slot, uint32_t kv_len, void *queue, void *dst, uint64_t *bytes,
                                  tenon_reason *why);
  tenon_status (*import_sequence)(void *self, uint32_t slot, uint32_t kv_len, void *queue, const void *src, uint64_t bytes,
                                  tenon_reason *why);
  /* [any] bytes of live keys and values for a sequence of that length, for counters and costs. */
  uint64_t (*used_bytes)(void *self, uint32_t kv_len);
  /* [any] the format of all layers, known after create: attention is asked with it before plan(). */
  const tenon_kv_format *(*format)(void *self);
} tenon_kv_cache;

#ifdef __cplusplus
}
#endif
#endif
